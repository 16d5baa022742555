// Prints the tables of docs/open-weights.md about folders of Hugging Face: for each setting of config.json the
// architectures that load it, that ignore it, and that refuse it with the reason; and the architectures that are
// refused as a whole. Exit status 1 if an architecture has no small configuration below, or if an error does not name
// the key.
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "huggingface/architecture.h"
#include "huggingface/refusals.h"

namespace {

using namespace mh;
using namespace mh::huggingface;

using Types = std::vector<std::string>;

constexpr const char* kDecoderSizes =
    R"("hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, )"
    R"("num_key_value_heads": 2, "max_position_embeddings": 64)";
constexpr const char* kEncoderSizes =
    R"("hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, )"
    R"("max_position_embeddings": 66)";

// Returns the settings of a small model of the architecture; "" for an architecture without such settings.
std::string sizes_of(const std::string& type) {
  static const std::map<std::string, std::string> sizes{
      {"falcon", R"("hidden_size": 32, "ffn_hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, )"
                 R"("max_position_embeddings": 64)"},
      {"gptj", R"("n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4)"},
      {"gpt2", R"("n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64)"},
      {"marian",
       R"("d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, )"
       R"("decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64, )"
       R"("vocab_size": 99, "pad_token_id": 98, "decoder_start_token_id": 98, "eos_token_id": 0)"},
      {"opt", R"("hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4, )"
              R"("max_position_embeddings": 64)"},
      {"t5", R"("d_model": 32, "d_kv": 12, "d_ff": 48, "num_layers": 2, "num_heads": 4)"}};
  if (const auto entry = sizes.find(type == "mt5" ? "t5" : type); entry != sizes.end()) return entry->second;
  if (Types types{"bert", "roberta", "xlm-roberta", "camembert", "modernbert"}; std::ranges::count(types, type) > 0)
    return kEncoderSizes;
  if (Types types{"gpt_neox", "phi3"}; std::ranges::count(types, type) > 0) return kDecoderSizes;
  if (Types types{"gemma", "gemma2", "gemma3_text", "llama", "mistral", "olmo2", "qwen2", "qwen3", "smollm3"};
      std::ranges::count(types, type) > 0)
    return std::string(R"("head_dim": 12, )") + kDecoderSizes;
  return "";
}

// A setting of config.json.
struct Case {
  std::string name;            // for the table
  std::string key;             // the key that an error must name, or that the architecture ignores
  std::string keys;            // content of config.json besides the sizes
  std::string other_key = {};  // another key that an error may name
};

// Returns the cases for an architecture; the names are the same for all architectures.
std::vector<Case> cases_for(const std::string& type) {
  const std::string scaling = R"("rope_scaling": {"rope_type": ")",
                    length = R"("original_max_position_embeddings": 16)";
  // One factor for each pair of rotated elements.
  const std::string factors = type == "phi3" || type == "falcon" ? "[1, 2, 3, 4]"
                              : type == "gpt_neox"               ? "[1]"
                                                                 : "[1, 2, 3, 4, 5, 6]";
  const std::string new_rope = R"({"rope_type": "default", "rope_theta": 500})";
  const bool has_two_ropes = type == "gemma3_text" || type == "modernbert";
  static const std::map<std::string, const char*> activation_keys{{"falcon", "activation"},
                                                                  {"gemma2", "hidden_activation"},
                                                                  {"gemma3_text", "hidden_activation"},
                                                                  {"gpt2", "activation_function"},
                                                                  {"gptj", "activation_function"},
                                                                  {"marian", "activation_function"},
                                                                  {"modernbert", "hidden_activation"},
                                                                  {"opt", "activation_function"}};
  const auto entry = activation_keys.find(type);
  const char* activation_key = entry == activation_keys.end() ? "hidden_act" : entry->second;
  const auto rope = [&](const std::string& kind, const std::string& numbers) {
    return Case{"`rope_scaling`: " + kind, "rope_scaling", scaling + kind + "\", " + numbers + "}", "rope_type"};
  };
  return {
      {"`tie_word_embeddings` true", "tie_word_embeddings", R"("tie_word_embeddings": true)"},
      {"`tie_word_embeddings` false", "tie_word_embeddings", R"("tie_word_embeddings": false)"},
      {"`attention_bias` true", "attention_bias", R"("attention_bias": true)"},
      {"`mlp_bias` true", "mlp_bias", R"("mlp_bias": true)"},
      {"activation `gelu`", activation_key, str("\"", activation_key, "\": \"gelu\"")},
      {"`sliding_window` 5", "sliding_window",
       R"("sliding_window": 5, "use_sliding_window": true, "max_window_layers": 1)"},
      {"`sliding_window` null", "sliding_window", R"("sliding_window": null)"},
      rope("linear", R"("factor": 2)"),
      rope("dynamic", R"("factor": 2)"),
      rope("llama3", R"("factor": 2, "low_freq_factor": 1, "high_freq_factor": 4, )" + length),
      rope("yarn", R"("factor": 2, )" + length),
      {"`rope_scaling`: longrope", "rope_scaling",
       length + ", " + scaling + R"(longrope", "short_factor": )" + factors + R"(, "long_factor": )" + factors + "}",
       "short_factor"},
      {"half of each head rotates", type == "gpt_neox" ? "rotary_pct" : "partial_rotary_factor",
       type == "gpt_neox" ? R"("rotary_pct": 0.5)" : R"("partial_rotary_factor": 0.5)"},
      {"`rope_parameters` of transformers 5", "rope_parameters",
       R"("rope_parameters": )" +
           (has_two_ropes ? R"({"full_attention": )" + new_rope + R"(, "sliding_attention": )" + new_rope + "}"
                          : new_rope)},
      {"`attn_logit_softcapping` 50", "attn_logit_softcapping", R"("attn_logit_softcapping": 50)"},
      {"`final_logit_softcapping` 30", "final_logit_softcapping", R"("final_logit_softcapping": 30)"},
      {"`query_pre_attn_scalar` 7", "query_pre_attn_scalar", R"("query_pre_attn_scalar": 7)"},
      {"`use_bidirectional_attention` true", "use_bidirectional_attention", R"("use_bidirectional_attention": true)"},
      {"`no_rope_layers`", "no_rope_layers", R"("no_rope_layers": [1, 0])"},
      {"`use_parallel_residual` false", "use_parallel_residual", R"("use_parallel_residual": false)"},
      {"`is_decoder` true", "is_decoder", R"("is_decoder": true)"},
      {"`position_embedding_type` relative_key", "position_embedding_type",
       R"("position_embedding_type": "relative_key")"},
      {"`feed_forward_proj` gated-gelu", "feed_forward_proj", R"("feed_forward_proj": "gated-gelu")"},
      {"`layer_types` with chunked_attention", "layer_types",
       R"("layer_types": ["full_attention", "chunked_attention"])"},
      {"`num_local_experts` 8", "num_local_experts", R"("num_local_experts": 8)"},
      {"`quantization_config`", "quantization_config", R"("quantization_config": {"quant_method": "gptq"})"}};
}

bool has_failed = false;

void report(const std::string& text) {
  std::cerr << "architecture-cases: " << text << "\n";
  has_failed = true;
}

constexpr const char* kLoaded = "loaded";
constexpr const char* kIgnored = "ignored";

// Returns kLoaded; kIgnored if the architecture does not read the key, as in transformers; or the reason of the
// refusal.
std::string outcome_of(const std::string& type, const Case& c) {
  const JsonConfig config(
      R"({"model_type": ")" + type + "\", " + sizes_of(type) + (c.keys.empty() ? "" : ", ") + c.keys + "}",
      "config.json");
  try {
    refuse_unsupported_settings(config);
    find_architecture(config)->settings(config, {});
  } catch (const Error& error) {
    const Problem& problem = error.problem();
    if (problem.where.find(c.key) == std::string::npos &&
        (c.other_key.empty() || problem.where.find(c.other_key) == std::string::npos))
      report(str(type, ", ", c.name, ": expected an error that names the key; found: ", error.what()));
    return str("expected ", problem.expected, "; found ", problem.found);
  }
  return std::ranges::count(config.unread_keys(), c.key) > 0 ? kIgnored : kLoaded;
}

// Returns the types as text; "all" if they are all architectures.
std::string types_text(const Types& types, const Types& all) { return types == all ? "all" : join(types, ", "); }

void print_cases(const Types& types) {
  std::cout << "| setting | loaded | reported as unknown, without effect | refused |\n|---|---|---|---|\n";
  const size_t num_cases = cases_for("llama").size();
  for (size_t i = 0; i < num_cases; ++i) {
    std::map<std::string, Types> types_by_outcome;
    for (const std::string& type : types) {
      const Case c = cases_for(type)[i];
      types_by_outcome[outcome_of(type, c)].push_back(type);
    }
    Types refusals;
    for (const auto& [outcome, refused_types] : types_by_outcome)
      if (outcome != kLoaded && outcome != kIgnored)
        refusals.push_back(types_text(refused_types, types) + ": " + outcome);
    std::cout << "| " << cases_for("llama")[i].name << " | " << types_text(types_by_outcome[kLoaded], types) << " | "
              << types_text(types_by_outcome[kIgnored], types) << " | " << join(refusals, "; ") << " |\n";
  }
}

void print_refused_types() {
  std::cout << "\n| `model_type` | refused, since the models have |\n|---|---|\n";
  for (const UnsupportedTypes& refused : unsupported_types())
    std::cout << "| " << join({refused.model_types.begin(), refused.model_types.end()}, ", ") << " | " << refused.reason
              << " |\n";
}

}  // namespace

int main() {
  const Types types = architectures().names();
  for (const std::string& type : types)
    if (sizes_of(type).empty()) report(str(type, ": expected sizes of a small model in sizes_of(); found none"));
    else if (const std::string outcome = outcome_of(type, {"no further setting", "config.json", ""});
             outcome != kLoaded)
      report(str(type, ": expected a small model; found an error: ", outcome));
  if (has_failed) return 1;
  print_cases(types);
  print_refused_types();
  return has_failed ? 1 : 0;
}
