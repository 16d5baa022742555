// Encoders with a vocabulary of the type tokenizer-json written as Hugging Face folders and read back.
#include <c10/core/GradMode.h>

#include <array>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "conversion/huggingface_folder.h"
#include "fixtures/aten.h"
#include "fixtures/encoder_vocabulary.h"
#include "fixtures/folder.h"
#include "fixtures/huggingface_settings.h"
#include "fixtures/models.h"
#include "io/tensor_files.h"
#include "text/json_tokenizer.h"

using namespace mh;

namespace {

// Returns a model with random parameters, for the content of config.json. `keys`: keys of config.json besides sizes.
model::LoadedModel make_encoder(const std::string& type, const std::string& keys) {
  model::LoadedModel loaded_model;
  loaded_model.name = "test";
  loaded_model.tokenizers.target =
      std::make_unique<text::JsonTokenizer>(encoder_vocabulary::roberta_json().dump(), "tokenizer.json");
  loaded_model.config = models::parse_model_config(huggingface::toml_of(huggingface_settings::settings_from(
      type,
      "{" + keys + R"("hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2,
                            "max_position_embeddings": 34})")));
  loaded_model.model =
      model::build_language_model(loaded_model.config, model::vocabulary_sizes_of(loaded_model.tokenizers), at::kCPU);
  c10::NoGradGuard no_gradient;
  at::manual_seed(1);
  for (nn::Parameter& p : loaded_model.model->parameters().all()) p.master().copy_(at::randn(p.master().sizes()));
  return loaded_model;
}

std::string model_type_of(const std::string& folder) {
  return io::JsonConfig::read_if_exists(folder + "/config.json").value("model_type", "");
}

}  // namespace

TEST_CASE("an encoder of each family reads back from its folder with the same configuration, vocabulary and parameters",
          "[conversion]") {
  for (const auto& [type, keys] : std::vector<std::pair<std::string, std::string>>{
           {"roberta", R"("type_vocab_size": 1, "layer_norm_eps": 1e-5, )"},
           {"roberta", R"("tie_word_embeddings": false, )"},
           {"roberta", R"("architectures": ["RobertaForSequenceClassification"], "classifier_dropout": 0.25, )"},
           {"xlm-roberta", R"("architectures": ["XLMRobertaForQuestionAnswering"], "hidden_act": "relu", )"},
           {"camembert", R"("architectures": ["CamembertForSequenceClassification"], "id2label": {"0": "x"}, )"},
           {"modernbert", R"("local_attention": 6, )"},
           {"modernbert",
            R"("tie_word_embeddings": false, "norm_bias": true, "mlp_bias": true, "attention_bias": true, )"},
           {"modernbert", R"("architectures": ["ModernBertForSequenceClassification"], "classifier_bias": true, )"}}) {
    INFO(type << " " << keys);
    const Folder folder;
    const model::LoadedModel written_model = make_encoder(type, keys);
    conversion::write_folder(written_model, folder.file("model"), {.model_type = type});
    CHECK(model_type_of(folder.file("model")) == type);
    const model::LoadedModel read_model = conversion::read_folder(folder.file("model"), {});
    CHECK(read_model.config.toml() == written_model.config.toml());
    CHECK(read_model.tokenizers.target->serialize() == written_model.tokenizers.target->serialize());
    CHECK(read_model.model->parameters().all().size() == written_model.model->parameters().all().size());
    for (const nn::Parameter& p : written_model.model->parameters().all()) {
      INFO(p.name());
      const nn::Parameter* read_parameter = read_model.model->parameters().find(p.name());
      REQUIRE(read_parameter != nullptr);
      CHECK(at::equal(read_parameter->master(), p.master()));
    }
    const io::JsonConfig config = io::JsonConfig::read_if_exists(folder.file("model") + "/tokenizer_config.json");
    CHECK(config.value("cls_token", "") == "<s>");
    CHECK(config.value("sep_token", "") == "</s>");
    CHECK(config.value("pad_token", "") == "<pad>");
    CHECK(config.value("mask_token", "") == "<mask>");
  }
}

TEST_CASE("the position table of RoBERTa begins with two rows of zeros", "[conversion]") {
  const Folder folder;
  const model::LoadedModel model = make_encoder("roberta", "");
  conversion::write_folder(model, folder.file("model"), {.model_type = "roberta"});
  const io::TensorFiles files = io::open_model_files(folder.file("model"));
  const std::string name = "roberta.embeddings.position_embeddings.weight";
  REQUIRE(files.find(name) != nullptr);
  CHECK(files.find(name)->info.shape == std::vector<int64_t>{34, 16});
  const at::Tensor table = at::empty({34, 16});
  const io::TensorFiles::Reader reader = files.open(name);
  reader.read(0, table.numel(), table.mutable_data_ptr<float>());
  reader.finish();
  CHECK(at::equal(table.narrow(0, 0, 2), at::zeros({2, 16})));
  CHECK(at::equal(table.narrow(0, 2, 32), model.model->parameters().find("encoder.positions.weight")->master()));
}

TEST_CASE("an encoder is written as an architecture that supports its vocabulary", "[conversion]") {
  for (const auto& [type, keys, preferred_type, written_type] :
       std::vector<std::array<std::string, 4>>{{"roberta", "", "roberta", "roberta"},
                                               {"roberta", "", "bert", "camembert"},
                                               {"roberta", "", "", "camembert"},
                                               {"modernbert", "", "", "modernbert"}}) {
    INFO(type << " as " << preferred_type);
    const Folder folder;
    conversion::write_folder(make_encoder(type, keys), folder.file("model"), {.model_type = preferred_type});
    CHECK(model_type_of(folder.file("model")) == written_type);
  }
}
