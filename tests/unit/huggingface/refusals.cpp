// Tests of the refusals of models without an equivalent.
#include "huggingface/refusals.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "fixtures/folder.h"
#include "fixtures/huggingface_settings.h"

using namespace mh;
using namespace mh::huggingface;
using namespace huggingface_settings;

namespace {

// Returns the message with which the content of config.json is refused before its architecture reads it; "" if it is
// not.
std::string early_refusal(const std::string& text) {
  try {
    const JsonConfig file = config(text);
    refuse_unsupported_settings(file);
    find_architecture(file);
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::input);
    return error.what();
  }
  return "";
}

std::string refusal_of_type(const std::string& type) { return early_refusal(R"({"model_type": ")" + type + "\"}"); }

}  // namespace

TEST_CASE("a known model without support is refused with the reason", "[huggingface]") {
  const std::map<std::string, std::vector<std::string>> types_by_reason{
      {"a mixture of experts",
       {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2", "deepseek_v3", "phimoe", "granitemoe", "glm4_moe",
        "llama4", "dbrx", "gpt_oss"}},
      {"linear attention, and gates", {"qwen3_next", "qwen3_5"}},
      {"without softmax attention", {"mamba", "falcon_h1", "lfm2", "jamba", "zamba"}},
      {"embeddings of each layer", {"gemma3n", "gemma3n_text", "gemma4"}},
      {"inputs other than text", {"mllama", "llava", "qwen2_vl", "paligemma"}},
      {"norms under other names", {"vaultgemma"}},
      {"rotary positions of adjacent elements", {"codegen", "cohere", "glm"}},
      {"ALiBi", {"bloom", "mpt"}},
      {"early Falcon files", {"RefinedWeb", "RefinedWebModel"}},
      {"an encoder and a decoder", {"bart", "mbart", "pegasus", "umt5"}}};
  for (const auto& [reason, types] : types_by_reason)
    for (const std::string& type : types) {
      INFO(type);
      const std::string message = refusal_of_type(type);
      CHECK_THAT(message, Catch::Contains("config.json: model_type") &&
                              Catch::Contains("\"" + type + "\", a model with ") && Catch::Contains(reason));
    }
  for (const std::string& name : architectures().names()) CHECK(refusal_of_type(name).empty());
}

TEST_CASE("an unknown model_type is refused with all supported types and the most similar one", "[huggingface]") {
  const std::string message = refusal_of_type("lama");
  for (const std::string& name : architectures().names()) CHECK_THAT(message, Catch::Contains(name));
  CHECK_THAT(message, Catch::Contains("found \"lama\"") && Catch::Contains("did you mean 'llama'?"));
  CHECK_THAT(refusal_of_type("wav2vec2"), Catch::Contains("use a model of one of these architectures"));
  CHECK_THAT(early_refusal("{}"), Catch::Contains("model_type") && Catch::Contains("none"));
  CHECK_THAT(early_refusal(R"({"model_type": "chatglm", "auto_map": {"AutoModel": "modeling.ChatGLM"}})"),
             Catch::Contains("auto_map") && Catch::Contains("no code of a folder"));
  CHECK(early_refusal(R"({"model_type": "llama", "auto_map": {"AutoModel": "modeling.Llama"}})").empty());
}

TEST_CASE("settings that no architecture supports are refused by their keys", "[huggingface]") {
  const auto refusal_with = [](const std::string& keys) {
    return early_refusal(R"({"model_type": "llama", )" + keys + "}");
  };
  for (const char* method : {"fp8", "mxfp4", "fbgemm_fp8", "gptq", "awq", "bitsandbytes", "compressed-tensors"})
    CHECK_THAT(
        refusal_with(std::string(R"("quantization_config": {"quant_method": ")") + method + "\"}"),
        Catch::Contains("quantization_config") && Catch::Contains(std::string("(quant_method \"") + method + "\")"));
  CHECK_THAT(refusal_with(R"("quantization_config": {"bits": 4})"), Catch::Contains("found quantised weights;"));
  CHECK(refusal_with(R"("quantization_config": null)").empty());
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok",
                          "moe_intermediate_size", "first_k_dense_replace"}) {
    CHECK_THAT(refusal_with(std::string("\"") + key + "\": 8"),
               Catch::Contains(key) && Catch::Contains("without experts"));
    CHECK(refusal_with(std::string("\"") + key + "\": 0").empty());
    CHECK(refusal_with(std::string("\"") + key + "\": null").empty());
  }
  CHECK_THAT(refusal_with(R"("enable_moe_block": true)"), Catch::Contains("enable_moe_block"));
  CHECK(refusal_with(R"("enable_moe_block": false)").empty());
  for (const char* key : {"attn_output_gate", "headwise_attn_output_gate", "elementwise_attn_output_gate"})
    CHECK_THAT(refusal_with(std::string("\"") + key + "\": true"),
               Catch::Contains(key) && Catch::Contains("without gates"));
  CHECK_THAT(refusal_with(R"("per_layer_config": [{"hidden_size": 3}])"), Catch::Contains("per_layer_config"));
  for (const char* word : {"chunked_attention", "linear_attention", "conv", "hybrid", "mamba"})
    CHECK_THAT(refusal_with(std::string(R"("layer_types": ["full_attention", ")") + word + "\"]"),
               Catch::Contains("layer_types") && Catch::Contains(word));
  CHECK(refusal_with(R"("layer_types": ["full_attention", "sliding_attention"])").empty());
}

TEST_CASE("settings of single families without an equivalent are refused", "[huggingface]") {
  for (const char* type : {"gemma", "gemma2", "gemma3_text"})
    CHECK_THAT(refusal_message(type, R"({"use_bidirectional_attention": true})"),
               Catch::Contains("use_bidirectional_attention"));
  for (const char* type : {"gemma2", "gemma3_text"}) {
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
      for (const char* cap : {"-1", "0"})
        CHECK_THAT(refusal_message(type, std::string("{\"") + key + "\": " + cap + "}"),
                   Catch::Contains(key) && Catch::Contains("null or a number greater than 0"));
    CHECK_THAT(refusal_message(type, R"({"query_pre_attn_scalar": 0})"), Catch::Contains("query_pre_attn_scalar"));
  }
  CHECK_THAT(refusal_message("gemma3_text", R"({"layer_types": ["full_attention"], "num_hidden_layers": 2})"),
             Catch::Contains("layer_types: expected a type for each of the 2 layers; found 1 type"));
  CHECK_THAT(refusal_message("llama", R"({"hidden_act": "relu2"})"),
             Catch::Contains("\"relu2\"") && Catch::Contains("\"silu\""));
  CHECK_THAT(refusal_message("llama", R"({"hidden_size": "32"})"), Catch::Contains("hidden_size"));
  CHECK_THAT(refusal_message("gpt_neox", R"({"num_hidden_layers": 0})"), Catch::Contains("num_hidden_layers"));
}

TEST_CASE("a folder with an adapter is refused, whatever else it has", "[huggingface]") {
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"}) {
    const Folder folder;
    write_file_atomically(folder.file("config.json"), R"({"model_type": "llama"})");
    CHECK_NOTHROW(refuse_adapter(folder.path.string()));
    write_file_atomically(folder.file(name), "{}");
    CHECK_THROWS_WITH(refuse_adapter(folder.path.string()),
                      Catch::Contains("a whole model") && Catch::Contains(name) && Catch::Contains("merge_and_unload"));
  }
}

TEST_CASE("a folder without config.json is refused, with the name of a GGUF file if it has one", "[huggingface]") {
  const Folder folder;
  CHECK_THROWS_WITH(refuse_missing_config(folder.path.string()),
                    Catch::Contains("config.json; found no config.json; give the folder that save_pretrained wrote"));
  write_file_atomically(folder.file("model-Q4.gguf"), "GGUF");
  CHECK_THROWS_WITH(refuse_missing_config(folder.path.string()),
                    Catch::Contains("no config.json, and model-Q4.gguf, a model of llama.cpp"));
  write_file_atomically(folder.file("config.json"), "{}");
  CHECK_NOTHROW(refuse_missing_config(folder.path.string()));
}

TEST_CASE("an unknown tensor shows what the model has that is not supported", "[huggingface]") {
  CHECK(unsupported_part("model.layers.0.block_sparse_moe.gate.weight").starts_with("a mixture of experts"));
  CHECK(unsupported_part("model.layers.0.mlp.experts.3.up_proj.weight").starts_with("a mixture of experts"));
  CHECK(unsupported_part("model.layers.0.mlp.router.weight").starts_with("a mixture of experts"));
  CHECK(unsupported_part("model.layers.0.mlp.gate.weight").starts_with("a mixture of experts"));
  CHECK(unsupported_part("model.layers.0.mlp.gate_proj.weight").empty());
  CHECK(unsupported_part("model.layers.0.mlp.down_proj.qweight") == "quantised weights");
  CHECK(unsupported_part("model.layers.0.self_attn.q_proj.weight_scale_inv") == "quantised weights");
  CHECK(unsupported_part("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight") == "an adapter");
  CHECK(unsupported_part("vision_tower.encoder.layers.0.weight") == "a part for images");
  CHECK(unsupported_part("model.layers.0.self_attn.sinks").starts_with("learned logits"));
  CHECK(unsupported_part("transformer.h.0.ln_3.weight").empty());
}
