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

// Returns the message of the error for the content of config.json before its architecture reads it; "" without an
// error.
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

// Returns the message of the error for config.json with these keys; "" without an error.
std::string refusal_of_keys(const std::string& type, const std::string& keys) {
  const std::string text = R"({"model_type": ")" + type + "\", " + keys + "}", message = early_refusal(text);
  return message.empty() ? refusal_message(type, text) : message;
}

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
      {"rotary positions of adjacent elements, which are converted for gptj only", {"codegen", "cohere", "glm"}},
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

TEST_CASE("settings without an equivalent are refused by their keys, and their neutral values are not",
          "[huggingface]") {
  struct Refusal {
    std::vector<std::string> types;
    std::vector<std::string> keys;   // alternatives
    std::vector<std::string> parts;  // of the message, besides the key
    std::vector<std::string> values;
    std::vector<std::string> neutral_values = {};
  };
  const std::vector<std::string> llama{"llama"}, gemmas{"gemma2", "gemma3_text"};
  const std::vector<Refusal> refusals{
      {llama, {"quantization_config"}, {"found quantised weights;"}, {R"({"bits": 4})"}, {"null"}},
      {llama,
       {"num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
        "first_k_dense_replace"},
       {"without experts"},
       {"8"},
       {"0", "null"}},
      {llama, {"enable_moe_block"}, {}, {"true"}, {"false"}},
      {llama,
       {"attn_output_gate", "headwise_attn_output_gate", "elementwise_attn_output_gate"},
       {"without gates"},
       {"true"},
       {"false"}},
      {llama, {"per_layer_config"}, {}, {R"([{"hidden_size": 3}])"}},
      {llama, {"hidden_act"}, {"\"relu2\"", "\"silu\""}, {"\"relu2\""}},
      {llama, {"hidden_size"}, {}, {"\"32\""}},
      {{"gpt_neox"}, {"num_hidden_layers"}, {}, {"0"}},
      {{"gemma", "gemma2", "gemma3_text"}, {"use_bidirectional_attention"}, {}, {"true"}, {"false"}},
      {gemmas,
       {"attn_logit_softcapping", "final_logit_softcapping"},
       {"null or a number greater than 0"},
       {"-1", "0"},
       {"null", "0.5"}},
      {gemmas, {"query_pre_attn_scalar"}, {}, {"0"}}};
  for (const auto& [types, keys, parts, values, neutral_values] : refusals)
    for (const std::string& type : types)
      for (const std::string& key : keys) {
        for (const std::string& value : values) {
          INFO(type << " " << key << " " << value);
          const std::string message = refusal_of_keys(type, "\"" + key + "\": " + value);
          CHECK_THAT(message, Catch::Contains("config.json: " + key));
          for (const std::string& part : parts) CHECK_THAT(message, Catch::Contains(part));
        }
        for (const std::string& value : neutral_values) {
          INFO(type << " " << key << " " << value);
          CHECK(refusal_of_keys(type, "\"" + key + "\": " + value).empty());
        }
      }
  for (const char* method : {"fp8", "mxfp4", "fbgemm_fp8", "gptq", "awq", "bitsandbytes", "compressed-tensors"})
    CHECK_THAT(
        refusal_of_keys("llama", std::string(R"("quantization_config": {"quant_method": ")") + method + "\"}"),
        Catch::Contains("quantization_config") && Catch::Contains(std::string("(quant_method \"") + method + "\")"));
  for (const char* word : {"chunked_attention", "linear_attention", "conv", "hybrid", "mamba"})
    CHECK_THAT(refusal_of_keys("llama", std::string(R"("layer_types": ["full_attention", ")") + word + "\"]"),
               Catch::Contains("layer_types") && Catch::Contains(word));
  CHECK(early_refusal(R"({"model_type": "llama", "layer_types": ["full_attention", "sliding_attention"]})").empty());
  CHECK_THAT(refusal_of_keys("gemma3_text", R"("layer_types": ["full_attention"], "num_hidden_layers": 2)"),
             Catch::Contains("layer_types: expected a type for each of the 2 layers; found 1 type"));
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
  const std::map<std::string, std::vector<std::string>> tensors_by_part{
      {"a mixture of experts in the feed-forward sublayers",
       {"model.layers.0.block_sparse_moe.gate.weight", "model.layers.0.mlp.experts.3.up_proj.weight",
        "model.layers.0.mlp.router.weight", "model.layers.0.mlp.gate.weight"}},
      {"quantised weights",
       {"model.layers.0.mlp.down_proj.qweight", "model.layers.0.self_attn.q_proj.weight_scale_inv"}},
      {"an adapter", {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"}},
      {"a part for images", {"vision_tower.encoder.layers.0.weight"}},
      {"learned logits of attention to no key (sinks)", {"model.layers.0.self_attn.sinks"}},
      {"", {"model.layers.0.mlp.gate_proj.weight", "transformer.h.0.ln_3.weight"}}};
  for (const auto& [part, tensors] : tensors_by_part)
    for (const std::string& tensor : tensors) {
      INFO(tensor);
      CHECK(unsupported_part(tensor) == part);
    }
}
