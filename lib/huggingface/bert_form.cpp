#include "huggingface/bert_form.h"

#include "base/error.h"
#include "base/text.h"

namespace mh::huggingface {

namespace {

// Keys of config.json without effect on the output of the model; vocab_size follows from the tensors.
constexpr const char* kIgnoredKeys[] = {"chunk_size_feed_forward", "initializer_range", "use_cache", "vocab_size",
                                        "pad_token_id"};

constexpr const char* kMaxPositionsKey = "max_position_embeddings";
constexpr int64_t kDefaultMaxPositions = 512;

}  // namespace

const std::vector<SettingPair>& BertForm::setting_pairs() const {
  static const std::vector<SettingPair> pairs{
      {"hidden_size", 768, {"model.width"}},
      {"num_hidden_layers", 12, {"model.layers"}, kMaxLayers},
      {"num_attention_heads", 12, {"attention.heads"}},
      {"intermediate_size", 3072, {"model.ffn_dim"}},
      {"type_vocab_size", 2, {"model.bert.segments"}},
      {"layer_norm_eps", 1e-12, {"model.norm_epsilon"}},
      {"hidden_dropout_prob", 0.1, {"model.dropout_embedding", "model.dropout_attention", "model.dropout_ffn"}},
      {"attention_probs_dropout_prob", 0.1, {"attention.dropout"}},
      {"tie_word_embeddings", true, {"model.tied"}},
  };
  return pairs;
}

Settings BertForm::settings(const JsonConfig& config, const std::set<std::string>& tensor_names) const {
  Settings result{{"model.backbone", backbone()},   {"model.norm", "post"},
                  {"model.positions", "learned"},   {"model.bert.embedding_norm", true},
                  {"model.scale_embedding", false}, {"model.init", "bert"},
                  {"attention.bias", true}};
  read_keys(setting_pairs(), config, result);
  const Json num_rows = config.value(kMaxPositionsKey, kDefaultMaxPositions);
  const std::string where = str(config.path(), ": ", kMaxPositionsKey);
  require_size(num_rows, where, 1 << 24);
  const int64_t max_positions = num_rows.get<int64_t>() - family_.num_unused_positions;
  if (max_positions < 1)
    refuse_input(where, str("more than ", family_.num_unused_positions, ", the number of rows without a position"),
                 num_rows.dump(), "copy config.json from the source of the model");
  result["model.max_positions"] = max_positions;
  result["model.activation"] = activation_of(config, "hidden_act", "gelu");
  config.require("position_embedding_type", "absolute", {"absolute"},
                 "use a model with absolute position embeddings, the only kind that multihead supports for this "
                 "architecture");
  config.require("is_decoder", false, {false}, "use an encoder, which has no causal mask");
  config.require("add_cross_attention", false, {false}, "use an encoder without cross-attention");
  config.require("pruned_heads", Json::object(), {Json::object()},
                 "use the model before pruning: multihead does not read pruned heads of this architecture");
  for (const char* key : kIgnoredKeys) config.value(key, nullptr);
  family_.heads.read(config, tensor_names, result);
  return result;
}

TensorNames BertForm::tensor_names(const Settings& settings) const {
  TensorNames tensor_names{{{"embeddings.word_embeddings.weight", {"encoder.embedding.weight"}},
                            {.huggingface_name = "embeddings.position_embeddings.weight",
                             .multihead_names = {"encoder.positions.weight"},
                             .num_unused_rows = family_.num_unused_positions},
                            {"embeddings.token_type_embeddings.weight", {"encoder.segments.weight"}}},
                           {}};
  const auto add = [&](const std::string& huggingface_name, const std::string& multihead_name) {
    for (const char* suffix : {".weight", ".bias"})
      tensor_names.pairs.push_back({huggingface_name + suffix, {multihead_name + suffix}});
  };
  add("embeddings.LayerNorm", "encoder.embedding_norm");
  for (int64_t i = 0; i < settings.at("model.layers").get<int64_t>(); ++i) {
    const std::string huggingface_prefix = str("encoder.layer.", i, "."),
                      multihead_prefix = str("encoder.layers.", i, ".");
    for (const char* projection : {"query", "key", "value"})
      add(huggingface_prefix + "attention.self." + projection, multihead_prefix + "self." + projection);
    add(huggingface_prefix + "attention.output.dense", multihead_prefix + "self.output");
    add(huggingface_prefix + "attention.output.LayerNorm", multihead_prefix + "self.norm");
    add(huggingface_prefix + "intermediate.dense", multihead_prefix + "ffn.up");
    add(huggingface_prefix + "output.dense", multihead_prefix + "ffn.down");
    add(huggingface_prefix + "output.LayerNorm", multihead_prefix + "ffn.norm");
  }
  family_.heads.add_tensors(settings, tensor_names);
  return tensor_names;
}

bool BertForm::is_unused(const std::string& tensor_name, const Settings& settings) const {
  return tensor_name.starts_with("pooler.") && !family_.heads.uses_layer(kPooler, settings);
}

Json BertForm::config(const Settings& settings) const {
  Json config{{"model_type", family_.model_type}};
  set_keys(setting_pairs(), settings, config);
  config[kMaxPositionsKey] = settings.at("model.max_positions").get<int64_t>() + family_.num_unused_positions;
  config["hidden_act"] = huggingface_activation(settings.at("model.activation"));
  config.update({{"is_decoder", false},
                 {"add_cross_attention", false},
                 {"initializer_range", 0.02},
                 {"use_cache", true},
                 {"dtype", "float32"}});
  family_.heads.write(settings, config);
  return config;
}

}  // namespace mh::huggingface
