// Decoders of all families written as Hugging Face folders and read back, and the choice of the architecture of a
// folder.
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "base/file.h"
#include "conversion/huggingface_folder.h"
#include "fixtures/aten.h"
#include "fixtures/converted_models.h"
#include "fixtures/family_vocabularies.h"
#include "fixtures/folder.h"
#include "fixtures/huggingface_settings.h"
#include "fixtures/status.h"
#include "io/tensor_files.h"

using namespace mh;

namespace {

model::LoadedModel make_model(const std::string& toml) {
  return converted_models::random_model(family_vocabularies::tokenizers_of("llama").target, toml);
}

// Returns the settings of a small model of a family. `keys`: further keys of config.json.
huggingface::Settings small_settings(const std::string& type, const std::string& keys) {
  const std::string head_size = type == "phi3" || type == "gpt_neox" ? "" : R"("head_dim": 12, )";
  return huggingface_settings::settings_from(
      type, "{" + keys + head_size +
                R"("hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, )" +
                (type == "gpt_neox" ? "" : R"("num_key_value_heads": 2, )") + R"("max_position_embeddings": 64})");
}

std::string small_config(const std::string& type, const std::string& keys) {
  return huggingface::toml_of(small_settings(type, keys));
}

std::string model_type_of(const std::string& folder) {
  return io::JsonConfig::read_if_exists(folder + "/config.json").value("model_type", "");
}

const std::map<std::string, std::string> kFamilies{
    {"llama",
     R"("attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true, "rope_scaling": {"rope_type": "llama3",
                "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 16}, )"},
    {"mistral", R"("sliding_window": 5, )"},
    {"qwen2", R"("use_sliding_window": true, "sliding_window": 5, "max_window_layers": 1, )"},
    {"qwen3", ""},
    {"phi3",
     R"("rope_scaling": {"type": "su", "short_factor": [1, 2], "long_factor": [3, 4]}, "partial_rotary_factor": 0.5,
               "original_max_position_embeddings": 16, )"},
    {"olmo2", R"("rope_scaling": {"type": "linear", "factor": 2}, )"},
    {"smollm3", R"("no_rope_layers": [1, 0, 1], )"},
    {"gemma", ""},
    {"gemma3_text",
     R"("sliding_window": 5, "sliding_window_pattern": 3, "query_pre_attn_scalar": 7, "final_logit_softcapping": 20, )"},
    {"gpt_neox", R"("rotary_pct": 0.5, )"}};

}  // namespace

TEST_CASE("a decoder of each family reads back from its folder with the same configuration, vocabulary and parameters",
          "[conversion]") {
  for (const auto& [type, keys] : kFamilies) {
    INFO(type);
    const Folder folder;
    const model::LoadedModel written_model = make_model(small_config(type, keys));
    conversion::write_folder(written_model, folder.file("model"), {.model_type = type});
    CHECK(model_type_of(folder.file("model")) == type);
    const conversion::Folder opened_folder(folder.file("model"), {});
    CHECK(opened_folder.model_type() == type);
    const model::LoadedModel read_model = conversion::read_folder(folder.file("model"), {});
    CHECK(opened_folder.model().config.toml() == written_model.config.toml());
    const bool is_gemma = type.starts_with("gemma");  // a weight that is stored minus 1 is rounded once
    converted_models::check_same_model(
        read_model, written_model, [&](const std::string& name, const at::Tensor& read, const at::Tensor& written) {
          return is_gemma && name.find("norm") != std::string::npos ? at::allclose(read, written, 0, 0x1p-22)
                                                                    : at::equal(read, written);
        });
  }
}

TEST_CASE("a folder without a preferred architecture gets the first architecture with all settings", "[conversion]") {
  for (const auto& [type, keys] : kFamilies) {
    INFO(type);
    const Folder folder;
    conversion::write_folder(make_model(small_config(type, keys)), folder.file("model"));
    // Phi-3 with longrope in half of each head, and the others, differ from all earlier ones.
    CHECK(model_type_of(folder.file("model")) == type);
  }
  // Without a window, Mistral is Llama; an architecture that lacks a setting of the model is not preferred.
  const model::LoadedModel plain_model = make_model(small_config("mistral", R"("sliding_window": null, )"));
  for (const auto& [preferred_type, type] : std::map<std::string, std::string>{{"", "llama"},
                                                                               {"mistral", "mistral"},
                                                                               {"phi3", "phi3"},
                                                                               {"qwen3", "llama"},
                                                                               {"gpt2", "llama"},
                                                                               {"bert", "llama"},
                                                                               {"unknown", "llama"}}) {
    const Folder folder;
    conversion::write_folder(plain_model, folder.file("model"), {.model_type = preferred_type});
    CHECK(model_type_of(folder.file("model")) == type);
  }
}

TEST_CASE("overrides of all layers are written like settings of all layers", "[conversion]") {
  std::string toml = small_config("llama", "");
  for (const char* layer : {"0", "1", "2"}) toml += std::string("attention.decoder.self.") + layer + ".window = 5\n";
  const Folder folder;
  const model::LoadedModel model = make_model(toml);
  conversion::write_folder(model, folder.file("model"));
  CHECK(model_type_of(folder.file("model")) == "mistral");
  CHECK(io::JsonConfig::read_if_exists(folder.file("model/config.json")).value("sliding_window", 0) == 5);
}

TEST_CASE("the error for a decoder without an architecture names the differences from the nearest", "[conversion]") {
  const Folder folder;
  const auto error_of = [&](const std::string& type, const std::string& key, const huggingface::Json& value) {
    huggingface::Settings settings = small_settings(type, "");
    settings[key] = value;
    try {
      conversion::write_folder(make_model(huggingface::toml_of(settings)), folder.file("model"));
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::input);
      CHECK_FALSE(std::filesystem::exists(folder.file("model")));
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(error_of("llama", "model.output_scale", 0.5), Catch::Contains("model.output_scale: 0.5 -> 1"));
  CHECK_THAT(error_of("qwen3", "attention.qk-norm.epsilon", 0.5), Catch::Contains("attention.qk-norm.epsilon: 0.5"));
  CHECK_THAT(error_of("llama", "attention.decoder.self.1.rotary.base", 500.0),
             Catch::Contains("attention.decoder.self.1.rotary.base: 500"));
  CHECK_THAT(error_of("llama", "model.gated_ffn", false), Catch::Contains("model.gated_ffn: false -> true"));
}

TEST_CASE("the tensors of a folder have the requested format, and bf16 reads back to the rounded numbers",
          "[conversion]") {
  for (const io::DType dtype : {io::DType::f16, io::DType::bf16, io::DType::f32}) {
    const Folder folder;
    const model::LoadedModel model = make_model(small_config("phi3", ""));
    conversion::write_folder(model, folder.file("model"), {.dtype = dtype});
    CHECK(io::JsonConfig::read_if_exists(folder.file("model/config.json")).value("dtype", "") ==
          conversion::dtype_name(dtype));
    const io::TensorFiles files = io::open_model_files(folder.file("model"));
    for (const auto& [name, entry] : files.entries()) CHECK(entry.info.type == dtype);
    const at::ScalarType type = dtype == io::DType::f16    ? at::kHalf
                                : dtype == io::DType::bf16 ? at::kBFloat16
                                                           : at::kFloat;
    const model::LoadedModel read_model = conversion::read_folder(folder.file("model"), {});
    for (const nn::Parameter& p : model.model->parameters().all())
      CHECK(at::equal(read_model.model->parameters().find(p.name())->master(), p.master().to(type).to(at::kFloat)));
  }
}

TEST_CASE("the vocabulary files of a decoder name the tokens around a text for transformers", "[conversion]") {
  const Folder folder;
  conversion::write_folder(make_model(small_config("llama", "")), folder.file("model"));
  const io::JsonConfig config = io::JsonConfig::read_if_exists(folder.file("model/config.json")),
                       tokenizer = io::JsonConfig::read_if_exists(folder.file("model/tokenizer_config.json")),
                       special = io::JsonConfig::read_if_exists(folder.file("model/special_tokens_map.json"));
  CHECK(config.value("bos_token_id", 0) == 1);
  CHECK(config.value("eos_token_id", 0) == 2);
  CHECK(config.value("vocab_size", 0) == 7);
  for (const io::JsonConfig* file : {&tokenizer, &special}) {
    CHECK(file->value("bos_token", "") == "<s>");
    CHECK(file->value("eos_token", "") == "</s>");
    CHECK(file->value("unk_token", "") == "<unk>");
  }
  CHECK(tokenizer.value("tokenizer_class", "") == "PreTrainedTokenizerFast");
  CHECK(std::filesystem::exists(folder.file("model/tokenizer.json")));
}
