// Prints the tables of docs/open-weights.md about folders of Hugging Face: for each setting of config.json the
// architectures that load it, that ignore it, and that refuse it with the reason; the same for files of tensors; and
// the architectures that are refused as a whole. A setting counts as loaded if the model that it describes is built,
// and if each parameter of this model has its tensor; a file, if a folder with such a file is read. Exit status 1 if an
// architecture has no small configuration below, if an error does not name the key, or if a model cannot be built.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "conversion/huggingface_folder.h"
#include "fixtures/family_vocabularies.h"
#include "fixtures/folder.h"
#include "fixtures/models.h"
#include "huggingface/architecture.h"
#include "huggingface/refusals.h"
#include "model/load.h"

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
       R"("vocab_size": 14, "pad_token_id": 13, "decoder_start_token_id": 13, "eos_token_id": 0)"},
      {"opt", R"("hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4, )"
              R"("max_position_embeddings": 64)"},
      {"t5", R"("d_model": 32, "d_kv": 12, "d_ff": 48, "num_layers": 2, "num_heads": 4)"}};
  if (const auto entry = sizes.find(type == "mt5" ? "t5" : type); entry != sizes.end()) return entry->second;
  if (Types types{"bert", "roberta", "xlm-roberta", "camembert", "modernbert"}; std::ranges::count(types, type) > 0)
    return kEncoderSizes;
  if (type == "gpt_neox") return std::string(R"("rotary_pct": 0.5, )") + kDecoderSizes;
  if (type == "phi3") return kDecoderSizes;
  if (Types types{"gemma", "gemma2", "gemma3_text", "llama", "mistral", "olmo2", "qwen2", "qwen3", "smollm3"};
      std::ranges::count(types, type) > 0)
    return std::string(R"("head_dim": 12, )") + kDecoderSizes;
  return "";
}

// A setting of config.json.
struct Case {
  std::string name;            // for the table
  std::string key;             // the key that an error must name, or that the architecture ignores
  std::string keys;            // content of config.json besides the sizes, which it may replace
  std::string other_key = {};  // another key that an error may name
  std::string tensor = {};     // name of a tensor of the folder, without Architecture::tensor_prefix(); "": none
};

// Returns the cases for an architecture; the names are the same for all architectures.
std::vector<Case> cases_for(const std::string& type) {
  const std::string scaling = R"("rope_scaling": {"rope_type": ")",
                    length = R"("original_max_position_embeddings": 16)";
  // One factor for each pair of rotated elements.
  const std::string factors = type == "phi3" || type == "falcon" || type == "modernbert" ? "[1, 2, 3, 4]"
                              : type == "gpt_neox"                                       ? "[1, 2]"
                                                                                         : "[1, 2, 3, 4, 5, 6]";
  const std::string factor_lists = R"("short_factor": )" + factors + R"(, "long_factor": )" + factors;
  const std::string new_rope = R"({"rope_type": "default", "rope_theta": 500})";
  const bool is_translator = type == "marian" || type == "t5" || type == "mt5";
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
      // Files of Phi-3 may call longrope yarn.
      {"`rope_scaling`: yarn", "rope_scaling",
       type == "phi3" ? length + ", " + scaling + "yarn\", " + factor_lists + "}"
                      : scaling + R"(yarn", "factor": 2, )" + length + "}",
       "rope_type"},
      {"`rope_scaling`: longrope", "rope_scaling", length + ", " + scaling + "longrope\", " + factor_lists + "}",
       "short_factor"},
      rope("proportional", R"("factor": 1)"),
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
      {"`multi_query` false", "multi_query", R"("multi_query": false)"},
      {"`parallel_attn` false", "parallel_attn", R"("parallel_attn": false)"},
      {"`new_decoder_architecture` true", "new_decoder_architecture",
       R"("new_decoder_architecture": true, "num_kv_heads": 2)"},
      {"`num_ln_in_parallel_attn` 1", "num_ln_in_parallel_attn",
       R"("new_decoder_architecture": true, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1)"},
      {"`alibi` true", "alibi",
       type == "falcon" ? R"("alibi": true, "multi_query": false, "parallel_attn": false, "bias": true, )"
                          R"("hidden_size": 36, "num_attention_heads": 6)"
                        : R"("alibi": true)"},
      {"`head_dim` 12", "head_dim", R"("head_dim": 12)"},
      {"`rotary_dim` 4", "rotary_dim", R"("rotary_dim": 4)"},
      {"`word_embed_proj_dim` 16", "word_embed_proj_dim", R"("word_embed_proj_dim": 16)"},
      {"`do_layer_norm_before` false", "do_layer_norm_before", R"("do_layer_norm_before": false)"},
      {"`pad_token_id` 1", "pad_token_id",
       R"("pad_token_id": 1)" + std::string(is_translator ? R"(, "decoder_start_token_id": 1)" : "")},
      {"a tensor `final_logits_bias`", "final_logits_bias", "", "", "final_logits_bias"},
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

// Returns the difference between the parameters of the model, which is built without values, and the parameters that
// the tensors of the architecture contain; or the error if the model cannot be built; "" if all is well.
std::string fault_of_model(const std::string& type, const Architecture& architecture, const Settings& settings) {
  static std::map<std::string, text::Tokenizers> tokenizers;
  if (tokenizers.count(type) == 0) tokenizers[type] = family_vocabularies::tokenizers_of(type);
  try {
    const auto model = model::build_language_model(models::parse_model_config(toml_of(settings)),
                                                   model::vocabulary_sizes_of(tokenizers[type]), at::kMeta);
    std::set<std::string> parameters, expected;
    for (const nn::Parameter& parameter : model->parameters().all()) parameters.insert(parameter.name());
    for (const TensorPair& pair : architecture.tensor_names(settings).pairs)
      expected.insert(pair.multihead_names.begin(), pair.multihead_names.end());
    for (const std::string& name : parameters)
      if (expected.count(name) == 0) return "the parameter " + name + ", for which there is no tensor";
    for (const std::string& name : expected)
      if (parameters.count(name) == 0) return "no parameter " + name + ", for which there is a tensor";
  } catch (const Error& error) {
    return str("an error: ", error.what());
  }
  return "";
}

// Returns whether a folder with these settings may have a tensor of this name.
bool is_known_tensor(const std::string& name, const Architecture& architecture, const Settings& settings) {
  const TensorNames names = architecture.tensor_names(settings);
  return std::ranges::any_of(names.pairs, [&](const TensorPair& pair) { return pair.huggingface_name == name; }) ||
         names.aliases.count(name) > 0 || architecture.is_buffer(name) || architecture.is_unused(name, settings);
}

// Returns the content of config.json.
std::string config_text(const std::string& type, const Case& c) {
  Json config = Json::parse("{" + sizes_of(type) + "}");
  config["model_type"] = type;
  config.update(Json::parse("{" + c.keys + "}"));
  return config.dump();
}

// Returns kLoaded; kIgnored if the architecture does not read the key, as in transformers; or the reason of the
// refusal.
std::string outcome_of(const std::string& type, const Case& c) {
  const JsonConfig config(config_text(type, c), "config.json");
  std::unique_ptr<Architecture> architecture;
  Settings settings;
  try {
    refuse_unsupported_settings(config);
    architecture = find_architecture(config);
    settings =
        architecture->settings(config, c.tensor.empty() ? std::set<std::string>() : std::set<std::string>{c.tensor});
  } catch (const Error& error) {
    const Problem& problem = error.problem();
    if (problem.where.find(c.key) == std::string::npos &&
        (c.other_key.empty() || problem.where.find(c.other_key) == std::string::npos))
      report(str(type, ", ", c.name, ": expected an error that names the key; found: ", error.what()));
    return str("expected ", problem.expected, "; found ", problem.found);
  }
  if (const std::string fault = fault_of_model(type, *architecture, settings); !fault.empty())
    report(str(type, ", ", c.name, ": expected a model; found ", fault));
  if (!c.tensor.empty())
    return is_known_tensor(c.tensor, *architecture, settings) ? kLoaded
                                                              : "expected tensors of this model only; found this one";
  return std::ranges::count(config.unread_keys(), c.key) > 0 ? kIgnored : kLoaded;
}

// Divides model.safetensors of a folder into two files with an index.
void divide_tensors(const std::string& folder) {
  const std::string path = folder + "/model.safetensors", bytes = read_regular_file(path);
  uint64_t header_size = 0;
  std::copy_n(bytes.data(), sizeof header_size, reinterpret_cast<char*>(&header_size));
  const Json header = Json::parse(bytes.substr(sizeof header_size, header_size));
  const std::string data = bytes.substr(sizeof header_size + header_size);
  Json headers[2] = {Json::object(), Json::object()}, index = {{"weight_map", Json::object()}};
  std::string parts[2];
  const auto file_name = [](size_t part) { return str("model-0000", part + 1, "-of-00002.safetensors"); };
  size_t part = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto begin = entry.at("data_offsets").at(0).get<size_t>(), end = entry.at("data_offsets").at(1).get<size_t>();
    Json new_entry = entry;
    new_entry["data_offsets"] = {parts[part].size(), parts[part].size() + end - begin};
    headers[part][name] = std::move(new_entry);
    parts[part] += data.substr(begin, end - begin);
    index["weight_map"][name] = file_name(part);
    part = 1 - part;
  }
  for (part = 0; part < 2; ++part) {
    const std::string text = headers[part].dump();
    const uint64_t size = text.size();
    write_file_atomically(folder + "/" + file_name(part),
                          std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + parts[part]);
  }
  write_file_atomically(path + ".index.json", index.dump());
  std::filesystem::remove(path);
}

// Writes the folder of a small model with tensors of the type `dtype`, in two files if `is_divided`. Returns the
// outcome of reading the folder.
std::string folder_outcome(const std::string& type, io::DType dtype, bool is_divided) {
  const Folder folder;
  const std::string path = folder.file("model");
  try {
    const JsonConfig config(config_text(type, {}), "config.json");
    model::LoadedModel written;
    written.name = type;
    written.tokenizers = family_vocabularies::tokenizers_of(type);
    written.config = models::parse_model_config(toml_of(find_architecture(config)->settings(config, {})));
    written.model =
        model::build_language_model(written.config, model::vocabulary_sizes_of(written.tokenizers), at::kCPU);
    written.model->parameters().initialise(1);
    conversion::write_folder(written, path, {.model_type = type, .dtype = dtype});
    if (is_divided) divide_tensors(path);
    const model::LoadedModel read = conversion::read_folder(path, {});
    if (read.config.toml() != written.config.toml()) report(type + ": expected the written settings; found others");
    return kLoaded;
  } catch (const Error& error) {
    report(str(type, ": expected a folder that is read; found: ", error.what()));
    return error.what();
  }
}

// Returns the types as text; "all" if they are all architectures.
std::string types_text(const Types& types, const Types& all) { return types == all ? "all" : join(types, ", "); }

// Prints a row of the table. `outcomes`: by type.
void print_row(const std::string& name, const Types& types, const std::map<std::string, std::string>& outcomes) {
  std::map<std::string, Types> types_by_outcome;
  for (const std::string& type : types) types_by_outcome[outcomes.at(type)].push_back(type);
  Types refusals;
  for (const auto& [outcome, refused_types] : types_by_outcome)
    if (outcome != kLoaded && outcome != kIgnored)
      refusals.push_back(types_text(refused_types, types) + ": " + outcome);
  std::cout << "| " << name << " | " << types_text(types_by_outcome[kLoaded], types) << " | "
            << types_text(types_by_outcome[kIgnored], types) << " | " << join(refusals, "; ") << " |\n";
}

void print_cases(const Types& types) {
  std::cout << "| setting | loaded | reported as unknown, without effect | refused |\n|---|---|---|---|\n";
  const size_t num_cases = cases_for("llama").size();
  std::map<std::string, std::string> outcomes;
  for (size_t i = 0; i < num_cases; ++i) {
    for (const std::string& type : types) outcomes[type] = outcome_of(type, cases_for(type)[i]);
    print_row(cases_for("llama")[i].name, types, outcomes);
  }
  for (const bool is_divided : {false, true}) {
    for (const std::string& type : types) outcomes[type] = folder_outcome(type, io::DType::bf16, is_divided);
    print_row(is_divided ? "tensors in bf16, in two files with an index" : "tensors in bf16", types, outcomes);
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
  const c10::NoGradGuard no_gradient;
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
