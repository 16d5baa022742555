// Tests of the refusals of models without an equivalent, and the table of supported cases of each family.
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
      {"inputs other than text", {"gemma3", "mllama", "llava", "qwen2_vl", "paligemma"}},
      {"soft cap of attention logits", {"gemma2"}},
      {"rotary positions of adjacent elements", {"gptj", "cohere", "glm"}},
      {"ALiBi", {"bloom", "mpt"}},
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
  for (const char* type : {"gemma", "gemma3_text"})
    CHECK_THAT(refusal_message(type, R"({"use_bidirectional_attention": true})"),
               Catch::Contains("use_bidirectional_attention"));
  CHECK_THAT(refusal_message("gemma3_text", R"({"attn_logit_softcapping": 50.0})"),
             Catch::Contains("attn_logit_softcapping"));
  CHECK_THAT(refusal_message("gemma3_text", R"({"final_logit_softcapping": -1})"),
             Catch::Contains("final_logit_softcapping"));
  CHECK_THAT(refusal_message("gemma3_text", R"({"query_pre_attn_scalar": 0})"),
             Catch::Contains("query_pre_attn_scalar"));
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

namespace {

struct Case {
  const char* name;
  const char* key;   // a key that the case is about
  std::string keys;  // keys of config.json
};

// Returns the keys of the cases. `head_size`: number of elements of a head; `type`: the family.
std::vector<Case> cases_of(const std::string& type) {
  const std::string rope = R"("rope_scaling": {"type": ")", length = R"("original_max_position_embeddings": 16)";
  // One factor for each pair of rotated elements.
  const std::string factors = type == "phi3" ? "[1, 2, 3, 4]" : type == "gpt_neox" ? "[1]" : "[1, 2, 3, 4, 5, 6]";
  const std::string new_rope = R"({"rope_type": "default", "rope_theta": 500})";
  return {{"tied", "tie_word_embeddings", R"("tie_word_embeddings": true)"},
          {"bias", "attention_bias", R"("attention_bias": true)"},
          {"mlp-bias", "mlp_bias", R"("mlp_bias": true)"},
          {"window", "sliding_window", R"("sliding_window": 5, "use_sliding_window": true, "max_window_layers": 1)"},
          {"linear", "rope_scaling", rope + R"(linear", "factor": 2})"},
          {"dynamic", "rope_scaling", rope + R"(dynamic", "factor": 2})"},
          {"llama3", "rope_scaling",
           rope + R"(llama3", "factor": 2, "low_freq_factor": 1, "high_freq_factor": 4, )" + length + "}"},
          {"yarn", "rope_scaling", rope + R"(yarn", "factor": 2, )" + length + "}"},
          {"longrope", "rope_scaling",
           length + ", " + rope + R"(longrope", "short_factor": )" + factors + R"(, "long_factor": )" + factors + "}"},
          {"partial", type == "gpt_neox" ? "rotary_pct" : "partial_rotary_factor",
           std::string(type == "gpt_neox" ? R"("rotary_pct": 0.5)" : R"("partial_rotary_factor": 0.5)")},
          {"new-rope", "rope_parameters",
           R"("rope_parameters": )" + (type == "gemma3_text" ? R"({"full_attention": )" + new_rope +
                                                                   R"(, "sliding_attention": )" + new_rope + "}"
                                                             : new_rope)},
          {"act", "hidden_act", type == "gemma3_text" ? R"("hidden_activation": "gelu")" : R"("hidden_act": "gelu")"},
          {"chunked", "layer_types", R"("layer_types": ["full_attention", "chunked_attention"])"},
          {"experts", "num_local_experts", R"("num_local_experts": 8)"},
          {"quantised", "quantization_config", R"("quantization_config": {"quant_method": "gptq"})"}};
}

// Returns "loaded", "ignored" if the family has no such key, as in transformers, or "refused".
std::string outcome_of(const std::string& type, const Case& c) {
  const std::string head_size = type == "phi3" || type == "gpt_neox" ? "" : R"("head_dim": 12, )";
  const std::string text =
      R"({"model_type": ")" + type + "\", " + head_size + c.keys +
      R"(, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, )" +
      R"("num_key_value_heads": 2, "max_position_embeddings": 64})";
  const JsonConfig file = config(text);
  try {
    refuse_unsupported_settings(file);
    find_architecture(file)->settings(file, {});
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::input);
    CHECK_THAT(error.problem().where,
               Catch::Contains(c.key) || Catch::Contains("rope_type") || Catch::Contains("short_factor"));
    return "refused";
  }
  for (const std::string& key : file.unread_keys())
    if (key == c.key) return "ignored";
  return "loaded";
}

}  // namespace

TEST_CASE("each family loads, ignores or refuses each case as the table states", "[huggingface]") {
  const std::vector<std::string> types{"llama", "mistral", "qwen2", "qwen3",       "phi3",
                                       "olmo2", "smollm3", "gemma", "gemma3_text", "gpt_neox"};
  std::string table = "\n";
  for (size_t i = 0; i < cases_of("llama").size(); ++i) {
    std::map<std::string, std::string> types_by_outcome;
    for (const std::string& type : types) {
      const Case c = cases_of(type)[i];
      std::string& list = types_by_outcome[outcome_of(type, c)];
      list += (list.empty() ? "" : " ") + type;
    }
    table += cases_of("llama")[i].name;
    for (const auto& [outcome, list] : types_by_outcome)
      table += "\n  " + outcome + ": " + (types_by_outcome.size() == 1 ? "all" : list);
    table += "\n";
  }
  // Phi-3 has only longrope, of which yarn is an old name. Only Phi-3 and GPT-NeoX rotate a part of each head.
  CHECK(table == R"(
tied
  loaded: all
bias
  ignored: mistral qwen2 phi3
  loaded: llama qwen3 olmo2 smollm3 gemma gemma3_text gpt_neox
mlp-bias
  ignored: mistral qwen2 qwen3 phi3 olmo2 gemma gemma3_text gpt_neox
  loaded: llama smollm3
window
  ignored: llama olmo2 gemma gpt_neox
  loaded: mistral qwen2 qwen3 phi3 smollm3 gemma3_text
linear
  loaded: llama mistral qwen2 qwen3 olmo2 smollm3 gemma gemma3_text gpt_neox
  refused: phi3
dynamic
  loaded: llama mistral qwen2 qwen3 olmo2 smollm3 gemma gemma3_text gpt_neox
  refused: phi3
llama3
  loaded: llama mistral qwen2 qwen3 olmo2 smollm3 gemma gemma3_text gpt_neox
  refused: phi3
yarn
  loaded: llama mistral qwen2 qwen3 olmo2 smollm3 gemma gemma3_text gpt_neox
  refused: phi3
longrope
  loaded: all
partial
  loaded: phi3 gpt_neox
  refused: llama mistral qwen2 qwen3 olmo2 smollm3 gemma gemma3_text
new-rope
  loaded: all
act
  loaded: all
chunked
  refused: all
experts
  refused: all
quantised
  refused: all
)");
}
