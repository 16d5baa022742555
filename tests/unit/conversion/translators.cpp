// Encoder-decoders written as Hugging Face folders and read back.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>

#include "conversion/huggingface_folder.h"
#include "fixtures/aten.h"
#include "fixtures/family_vocabularies.h"
#include "fixtures/folder.h"
#include "fixtures/huggingface_settings.h"
#include "fixtures/models.h"

using namespace mh;

namespace {

struct Form {
  const char* type;
  const char* keys;  // of config.json
};
constexpr Form kForms[] = {
    {"marian", R"("share_encoder_decoder_embeddings": true)"},
    {"marian", R"("share_encoder_decoder_embeddings": false, "encoder_attention_heads": 2, "scale_embedding": true)"},
    {"marian", R"("tie_word_embeddings": false, "activation_function": "swish")"},
    {"t5", R"("feed_forward_proj": "relu")"},
    {"t5", R"("feed_forward_proj": "gated-gelu", "tie_word_embeddings": false, "relative_attention_max_distance": 20)"},
    {"mt5", R"("feed_forward_proj": "gated-silu")"}};

// Returns a model with random parameters.
model::LoadedModel make_model(const Form& form) {
  const bool is_marian = form.type == std::string("marian");
  const std::string sizes =
      is_marian
          ? R"("d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
               "decoder_attention_heads": 4, "pad_token_id": 13, "decoder_start_token_id": 13, "eos_token_id": 0, )" +
                (std::string(form.keys).find("encoder_attention_heads") == std::string::npos
                     ? std::string(R"("encoder_attention_heads": 4, )")
                     : std::string())
          : R"("d_model": 16, "d_ff": 24, "d_kv": 8, "num_layers": 1, "num_decoder_layers": 2, "num_heads": 4, )";
  model::LoadedModel loaded_model;
  loaded_model.name = "test";
  loaded_model.tokenizers = family_vocabularies::tokenizers_of(form.type);
  loaded_model.config = models::parse_model_config(
      huggingface::toml_of(huggingface_settings::settings_from(form.type, "{" + sizes + form.keys + "}")));
  loaded_model.model =
      model::build_language_model(loaded_model.config, model::vocabulary_sizes_of(loaded_model.tokenizers), at::kCPU);
  c10::NoGradGuard no_gradient;
  at::manual_seed(1);
  for (nn::Parameter& p : loaded_model.model->parameters().all()) p.master().copy_(at::randn(p.master().sizes()));
  return loaded_model;
}

}  // namespace

TEST_CASE("an encoder-decoder reads back from its folder with the same configuration, vocabularies and parameters",
          "[conversion]") {
  for (const Form& form : kForms) {
    INFO(form.type << ' ' << form.keys);
    const Folder folder;
    const model::LoadedModel written_model = make_model(form);
    conversion::write_folder(written_model, folder.file("model"), {.model_type = form.type});
    const model::LoadedModel read_model = conversion::read_folder(folder.file("model"), {});
    CHECK(read_model.config.toml() == written_model.config.toml());
    CHECK(read_model.tokenizers.target->serialize() == written_model.tokenizers.target->serialize());
    CHECK(read_model.tokenizers.source_or_target().serialize() ==
          written_model.tokenizers.source_or_target().serialize());
    CHECK(read_model.model->parameters().all().size() == written_model.model->parameters().all().size());
    for (const nn::Parameter& p : written_model.model->parameters().all()) {
      INFO(p.name());
      const nn::Parameter* read_parameter = read_model.model->parameters().find(p.name());
      REQUIRE(read_parameter != nullptr);
      CHECK(at::equal(read_parameter->master(), p.master()));
    }
  }
}

TEST_CASE("an encoder-decoder that does not state its architecture is written as Marian or T5", "[conversion]") {
  for (const Form& form : kForms) {
    INFO(form.type << ' ' << form.keys);
    const Folder folder;
    conversion::write_folder(make_model(form), folder.file("model"));
    const std::string type = form.type;
    CHECK(io::JsonConfig::read_if_exists(folder.file("model") + "/config.json").value("model_type", "") ==
          (type == "mt5" ? "t5" : type));
  }
}
