#include "huggingface/refusals.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "huggingface/llama_form.h"

namespace mh::huggingface {

namespace {

constexpr const char* kExperts = "a mixture of experts in the feed-forward sublayers";

}  // namespace

const std::vector<UnsupportedTypes>& unsupported_types() {
  static const char* const kDense = "use a dense model";
  static const char* const kAttention = "use a model whose layers all have softmax attention";
  static const char* const kText =
      "save the language model alone with transformers in Python, if its architecture is supported";
  static const char* const kOther = "use a model of another architecture";
  static const std::vector<UnsupportedTypes> table{
      {kExperts,
       kDense,
       {"afmoe",
        "cohere2_moe",
        "dbrx",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "deepseek_v4",
        "dots1",
        "ernie4_5_moe",
        "exaone_moe",
        "flex_olmo",
        "glm4_moe",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "gpt_oss",
        "granitemoe",
        "granitemoeshared",
        "granitemoe_swa",
        "hunyuan_v1_moe",
        "jetmoe",
        "kimi_k2",
        "llama4",
        "llama4_text",
        "longcat_flash",
        "minimax_m2",
        "mixtral",
        "olmoe",
        "phimoe",
        "qwen2_moe",
        "qwen3_moe",
        "sarvam_moe",
        "solar_open",
        "switch_transformers"}},
      {"layers without softmax attention, such as state-space, convolution or linear attention layers",
       kAttention,
       {"bamba", "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba", "kimi_linear", "lfm2", "lfm2_moe", "mamba",
        "mamba2", "minimax", "nemotron_h", "olmo_hybrid", "recurrent_gemma", "rwkv", "xlstm", "zamba", "zamba2"}},
      {"layers of linear attention, and gates on the output of attention",
       kAttention,
       {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next"}},
      {"embeddings of each layer, and layers that share keys and values",
       kOther,
       {"gemma3n", "gemma3n_text", "gemma4", "gemma4_text"}},
      {"inputs other than text",
       kText,
       {"aya_vision",      "idefics",  "idefics2", "idefics3",     "internvl",        "llava",        "llava_next",
        "llava_onevision", "mistral3", "mllama",   "paligemma",    "phi4_multimodal", "qwen2_5_omni", "qwen2_5_vl",
        "qwen2_audio",     "qwen2_vl", "qwen3_vl", "qwen3_vl_moe", "smolvlm",         "vipllava",     "whisper"}},
      {"cross-attention to images in its layers", kOther, {"mllama_text_model"}},
      {"norms under other names than the norms of Gemma 2", kOther, {"vaultgemma"}},
      {"rotary positions of adjacent elements, which are converted for gptj only",
       kOther,
       {"codegen", "cohere", "cohere2", "glm", "glm4", "helium"}},
      {"attention logits with linear biases of positions (ALiBi)", kOther, {"bloom", "mpt"}},
      {"the settings of early Falcon files",
       "copy the newer folder of the model, whose model_type is falcon",
       {"RefinedWeb", "RefinedWebModel"}},
      {"differential attention of its own form", kOther, {"diffllama"}},
      {"factors of its embeddings, attention and residual sums", kOther, {"granite", "minicpm3"}},
      {"an encoder and a decoder of another form",
       "use an encoder-decoder of the type marian, t5 or mt5",
       {"bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "encoder-decoder", "fsmt", "led", "longt5",
        "m2m_100", "mbart", "mvp", "nllb-moe", "pegasus", "pegasus_x", "plbart", "prophetnet", "t5gemma", "udop"}},
      {"an encoder and a decoder, in which each layer has position biases of its own",
       "use an encoder-decoder of the type marian, t5 or mt5",
       {"umt5"}},
  };
  return table;
}

namespace {

// A key of config.json whose value, if it is true or a number greater than 0, shows a mixture of experts.
constexpr const char* kExpertKeys[] = {"num_local_experts",   "num_experts",           "n_routed_experts",
                                       "num_experts_per_tok", "moe_intermediate_size", "first_k_dense_replace",
                                       "moe_num_experts",     "enable_moe_block"};
// Keys of gates that multiply the output of attention by a function of its input.
constexpr const char* kOutputGateKeys[] = {"attn_output_gate", "headwise_attn_output_gate",
                                           "elementwise_attn_output_gate"};

// Parts of tensor names, and the unsupported parts of a model to which such tensors belong.
constexpr std::pair<const char*, const char*> kUnsupportedParts[] = {
    {".block_sparse_moe.", kExperts},
    {".mlp.experts.", kExperts},
    {".mlp.router.", kExperts},
    {".mlp.gate.weight", kExperts},
    {".mlp.shared_expert", kExperts},
    {".qweight", "quantised weights"},
    {".qzeros", "quantised weights"},
    {".weight_scale", "quantised weights"},
    {".weight_packed", "quantised weights"},
    {".absmax", "quantised weights"},
    {"_blocks", "quantised weights"},
    {"lora_A", "an adapter"},
    {"lora_B", "an adapter"},
    {"vision_tower.", "a part for images"},
    {"vision_model.", "a part for images"},
    {"multi_modal_projector.", "a part for images"},
    {"audio_tower.", "a part for sounds"},
    {".self_attn.sinks", "learned logits of attention to no key (sinks)"},
    {".linear_attn.", "layers of linear attention"},
};

// Returns whether the value is true or a number greater than 0.
bool is_set(const Json& value) {
  return value.is_boolean() ? value.get<bool>() : value.is_number() && value.get<double>() > 0;
}

}  // namespace

void refuse_adapter(const std::string& folder) {
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"})
    if (std::filesystem::exists(folder + "/" + name))
      refuse_input(
          folder, "a folder with a whole model", str(name, ", an adapter of another model"),
          "merge the adapter into its model with merge_and_unload() of the package peft in Python, and save the "
          "result");
}

void refuse_missing_config(const std::string& folder) {
  if (std::filesystem::exists(folder + "/config.json")) return;
  std::string gguf_name;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".gguf") gguf_name = std::max(gguf_name, entry.path().filename().string());
  if (!gguf_name.empty())
    refuse_input(folder, "a Hugging Face folder with config.json",
                 str("no config.json, and ", gguf_name, ", a model of llama.cpp"),
                 "copy the model in the format of transformers, with config.json and model.safetensors");
  refuse_input(folder, "a Hugging Face folder with config.json", "no config.json",
               "give the folder that save_pretrained wrote");
}

std::unique_ptr<Architecture> find_architecture(const JsonConfig& config) {
  const std::string type = config.value("model_type", "");
  const std::vector<std::string> names = architectures().names();
  if (std::ranges::count(names, type) > 0) return architectures().make(type, "model_type");
  const std::string where = config.path() + ": model_type", expected = "one of: " + join(names, ", ");
  for (const UnsupportedTypes& types : unsupported_types())
    if (std::ranges::count(types.model_types, type) > 0)
      refuse_input(where, expected, str('"', type, "\", a model with ", types.reason), types.advice);
  if (config.value("auto_map", nullptr) != nullptr)
    refuse_input(where, expected, str('"', type, "\", a model whose code is in the folder (auto_map)"),
                 "use a model of one of these architectures: multihead executes no code of a folder");
  refuse_input(where, expected, type.empty() ? "none" : str('"', type, '"'),
               did_you_mean(type, names, "use a model of one of these architectures"));
}

void refuse_unsupported_settings(const JsonConfig& config) {
  if (const auto quantisation = config.object("quantization_config")) {
    const Json method = quantisation->value("quant_method", nullptr);
    refuse_input(
        config.path() + ": quantization_config", "weights in F32, F16 or BF16",
        "quantised weights" + (method.is_null() ? std::string() : " (quant_method " + io::json_excerpt(method) + ")"),
        "use the model before quantisation, or save the model with dequantize() of transformers in Python");
  }
  for (const char* key : kExpertKeys)
    if (const Json value = config.value(key, nullptr); is_set(value))
      refuse_input(config.path() + ": " + key, "a model without experts", io::json_excerpt(value),
                   "use a dense model: multihead has no mixture of experts in feed-forward sublayers");
  for (const char* key : kOutputGateKeys)
    if (const Json value = config.value(key, nullptr); is_set(value))
      refuse_input(config.path() + ": " + key, "attention without gates on its output", io::json_excerpt(value),
                   "use a model without these gates");
  // The copy leaves the key unread, so that it is reported if the architecture ignores it.
  require_attention_layers(config.only("layer_types"));
  if (config.value("per_layer_config", nullptr) != nullptr)
    refuse_input(config.path() + ": per_layer_config", "layers of equal shapes", "layers with settings of their own",
                 "use a model without this key");
}

std::string unsupported_part(const std::string& tensor_name) {
  for (const auto& [part, meaning] : kUnsupportedParts)
    if (tensor_name.find(part) != std::string::npos) return meaning;
  return "";
}

}  // namespace mh::huggingface
