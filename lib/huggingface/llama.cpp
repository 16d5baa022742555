// Llama 1 to 3 (Touvron et al. 2023, Grattafiori et al. 2024), and the families that are differences without settings
// of single layers: Mistral 7B (Jiang et al. 2023), Phi-3 (Abdin et al. 2024) and OLMo 2 (OLMo team 2024).
#include "huggingface/llama_form.h"

namespace mh::huggingface {

namespace {

const LlamaFamily kLlama{.model_type = "llama",
                         .model_class = "LlamaForCausalLM",
                         .attention_bias = AttentionBias::attention_bias,
                         .has_mlp_bias = true};

// Mistral: one window for all layers. The key is absent in files that mean the default, and null means no window.
const LlamaFamily kMistral{.model_type = "mistral",
                           .model_class = "MistralForCausalLM",
                           .ffn_dim = 14336,
                           .kv_heads = 8,
                           .max_positions = 131072};
constexpr int64_t kMistralWindow = 4096;

// Phi-3: fused projections, rotary positions that scale by longrope only, and heads of which a part may rotate.
const LlamaFamily kPhi3{.model_type = "phi3",
                        .model_class = "Phi3ForCausalLM",
                        .width = 3072,
                        .ffn_dim = 8192,
                        .max_positions = 4096,
                        .norm_epsilon = 1e-5,
                        .has_fused_projections = true,
                        .has_dropouts = true,
                        .rope = {.rotary_fraction_key = "partial_rotary_factor",
                                 .default_original_length = 4096,
                                 .has_only_longrope = true,
                                 .has_plain_scaling = true},
                        .ignored_keys = {"original_max_position_embeddings"}};

// OLMo 2: norms on the output of each sublayer instead of its input, and a norm of all queries or keys together.
const LlamaFamily kOlmo2{.model_type = "olmo2",
                         .model_class = "Olmo2ForCausalLM",
                         .norm_epsilon = 1e-5,
                         .attention_bias = AttentionBias::attention_bias,
                         .norm = "output",
                         .qk_norm_scope = "joint",
                         .rope = {.has_plain_scaling = true}};

class Llama : public LlamaForm {
 public:
  Llama() : LlamaForm(kLlama) {}
};

class Olmo2 : public LlamaForm {
 public:
  Olmo2() : LlamaForm(kOlmo2) {}
};

// A family whose layers have one window, which config.json states.
class OneWindowForm : public LlamaForm {
 public:
  OneWindowForm(const LlamaFamily& family, std::optional<int64_t> default_window)
      : LlamaForm(family), default_window_(default_window) {}

 protected:
  LayerSettings read_layers(const JsonConfig& config, const Settings& layer, const RopeSizes& sizes,
                            size_t num_layers) const override {
    Settings settings = layer;
    settings["window"] = sliding_window(config, default_window_);
    return LlamaForm::read_layers(config, settings, sizes, num_layers);
  }
  void write_layers(const LayerSettings& layers, const RopeSizes& sizes, Json& config) const override {
    LlamaForm::write_layers(layers, sizes, config);
    config["sliding_window"] = window_of(layers.of_layer(0));
  }

 private:
  std::optional<int64_t> default_window_;
};

class Mistral : public OneWindowForm {
 public:
  Mistral() : OneWindowForm(kMistral, kMistralWindow) {}
};

class Phi3 : public OneWindowForm {
 public:
  Phi3() : OneWindowForm(kPhi3, std::nullopt) {}
};

const Registration<Llama> llama_entry(
    architectures(), "llama",
    "A decoder with pre-norm, RMSNorm, rotary positions, grouped-query attention and a gated feed-forward sublayer: "
    "Llama "
    "1 to 3, and other models of this form, such as SmolLM, TinyLlama, Yi and Vicuna. The vocabulary is tokenizer.json "
    "or, without it, tokenizer.model of SentencePiece, as in all decoders except gpt2.");
const Registration<Mistral> mistral_entry(architectures(), "mistral",
                                          "The form of llama with a window in all layers (sliding_window).");
const Registration<Phi3> phi3_entry(architectures(), "phi3",
                                    "The form of llama with fused projections, a window and longrope: Phi-3 and "
                                    "Phi-4-mini without its vision and speech parts.");
const Registration<Olmo2> olmo2_entry(architectures(), "olmo2",
                                      "The form of llama with norms on the outputs of the sublayers, and norms of all "
                                      "queries and of all keys of a position.");

}  // namespace

}  // namespace mh::huggingface
