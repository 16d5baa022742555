// Lists, reads and writes the options of attention layers.
#include "attention/options.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace mh::attention {

namespace {

// Lists the options of the stage implementation `name`, and adds them to `stages`, with default values, if `stages`
// lacks them.
template <class S>
void describe_stage(Fields& f, const Registry<StageFactory<S>>& registry, const std::string& key,
                    const std::string& name, std::map<std::string, std::shared_ptr<StageOptions>>& stages) {
  auto it = stages.find(name);
  if (it == stages.end()) it = stages.emplace(name, registry.make(name, "attention." + key)->options()).first;
  if (it->second != nullptr) f.section(name, *it->second);
}

}  // namespace

AttentionOptions::AttentionOptions(const AttentionOptions& other) { *this = other; }

AttentionOptions& AttentionOptions::operator=(const AttentionOptions& o) {
  heads = o.heads, value_heads = o.value_heads, output_heads = o.output_heads;
  kv_heads = o.kv_heads, group_sizes = o.group_sizes;
  head_size = o.head_size, value_size = o.value_size, bias = o.bias, output_bias = o.output_bias;
  scale = o.scale, window = o.window, soft_cap = o.soft_cap, sink = o.sink, dropout = o.dropout;
  transform = o.transform, pairing = o.pairing, score = o.score, position_bias = o.position_bias;
  normaliser = o.normaliser, mixer = o.mixer, combiner = o.combiner;
  std::map<std::string, std::shared_ptr<StageOptions>> copies;
  for (const auto& [name, options] : o.stages) copies[name] = options != nullptr ? options->copy() : nullptr;
  stages = std::move(copies);
  return *this;
}

void AttentionOptions::describe(Fields& f) {
  f.field("heads", heads, "number of attention heads; 0: the layer outputs only the bias of its output projection",
          between(0, 1 << 16));
  f.field("value_heads", value_heads,
          "number of value heads, if the mixer can change the number of heads; 0: equal to attention.heads",
          between(0, 1 << 16));
  f.field("output_heads", output_heads,
          "number of output heads, if the last combiner mixes heads; 0: equal to the number of value heads",
          between(0, 1 << 16));
  f.field("key_value_heads", kv_heads,
          "number of key/value heads in grouped-query attention, a divisor of attention.heads; consecutive query heads "
          "read the same key/value head; 0: equal to attention.heads, without groups",
          between(0, 1 << 16));
  f.field("group_sizes", group_sizes,
          "number of query heads that read each key/value head, after heads were pruned; []: groups of equal size",
          between(1, 1 << 16));
  f.field("head_size", head_size, "size of the query and key vectors of a head; 0: model width / number of heads",
          between(0, 1 << 16));
  f.field("value_size", value_size, "size of the value vectors of a head; 0: equal to the size of the key vectors",
          between(0, 1 << 16));
  f.field("bias", bias, "add biases to the projections of queries, keys, values and output");
  f.choice("output_bias", output_bias,
           {{OutputBias::same, "same"}, {OutputBias::yes, "true"}, {OutputBias::no, "false"}},
           "bias of the output projection; same: as attention.bias");
  f.field("scale", scale, "factor of the products of queries and keys; 0: 1/sqrt(head size)", at_least(0));
  f.field("window", window,
          "in self-attention: number of keys on each side that a query attends to, the key of its own position "
          "included; a decoder has earlier keys only; 0: all keys",
          between(0, 1 << 30));
  f.field("soft_cap", soft_cap,
          "bound c of the logits x, which become c tanh(x / c) before the position bias and the mask; 0: no bound",
          at_least(0));
  f.choice("sink", sink, {{Sink::none, "none"}, {Sink::learned, "learned"}, {Sink::zero, "zero"}},
           "logit without a value in the softmax of each head, so that probabilities sum to less than 1; learned: a "
           "parameter of each head; zero: the logit 0");
  f.field("dropout", dropout, "dropout rate of attention probabilities", between(0, 0.999));
  f.field("transform", transform,
          str("transforms of queries and keys before the key/value cache, in order; available: ",
              join(transforms().names(), ", ")));
  f.field("pairing", pairing, "choice of the key/value head that each query head reads", pairings().names());
  f.field("score", score, "computation of logits from queries and keys", scores().names());
  f.field("position_bias", position_bias, "bias of the logits that depends on the distance between query and key",
          position_biases().names());
  f.field("normaliser", normaliser, "function from logits to probabilities", normalisers().names());
  f.field("mixer", mixer, "mixing of logits or probabilities across heads", mixers().names());
  f.text_or_texts("combiner", combiner,
                  "functions of head outputs before the output projection, in order; []: concatenate",
                  combiners().names());
  if (combiner.empty()) combiner = AttentionOptions().combiner;
  for (const std::string& name : transform) describe_stage(f, transforms(), "transform", name, stages);
  describe_stage(f, pairings(), "pairing", pairing, stages);
  describe_stage(f, scores(), "score", score, stages);
  describe_stage(f, position_biases(), "position_bias", position_bias, stages);
  describe_stage(f, normalisers(), "normaliser", normaliser, stages);
  describe_stage(f, mixers(), "mixer", mixer, stages);
  for (const std::string& name : combiner) describe_stage(f, combiners(), "combiner", name, stages);
}

void AttentionConfig::read(Config& config, const std::vector<std::pair<AttentionKind, int64_t>>& layer_counts) {
  config.read("attention", base_options_);
  for (auto [kind, count] : layer_counts) {
    const std::string section = std::string("attention.") + name_of(kind);
    AttentionOptions kind_options = base_options_;
    config.read(section, kind_options);
    kind_options_[kind] = kind_options;
    for (int64_t layer = 0; layer < count; ++layer) {
      AttentionOptions layer_options = kind_options;
      config.read(section + "." + std::to_string(layer), layer_options);
      layer_options_[{kind, layer}] = layer_options;
    }
  }
}

const AttentionOptions& AttentionConfig::layer(AttentionKind kind, int64_t layer) const {
  return layer_options_.at({kind, layer});
}

void AttentionConfig::set_layer(AttentionKind kind, int64_t layer, const AttentionOptions& options) {
  layer_options_.at({kind, layer}) = options;
}

namespace {

using OptionValues = std::map<std::string, std::string>;  // "heads", "mixhead-a.scope" -> TOML value

OptionValues option_values_of(const AttentionOptions& options) {
  FieldLister lister;
  AttentionOptions copy = options;
  lister.section("", copy);
  OptionValues option_values;
  for (const auto& field : lister.descriptions()) option_values[field.key] = field.value;
  return option_values;
}

// Returns the options that differ from `base` as a TOML section; empty if all are equal.
std::string difference(const std::string& section, const OptionValues& base, const OptionValues& options) {
  std::string text;
  for (const auto& [key, value] : options) {
    auto it = base.find(key);
    if (it == base.end() || it->second != value) text += str(key, " = ", value, "\n");
  }
  return text.empty() ? "" : "\n[" + section + "]\n" + text;
}

}  // namespace

void AttentionConfig::hoist_common_options() {
  auto are_equal = [](const AttentionOptions& a, const AttentionOptions& b) {
    return option_values_of(a) == option_values_of(b);
  };
  for (auto& [kind, options] : kind_options_) {
    const auto first = layer_options_.find({kind, 0});
    if (first == layer_options_.end()) continue;
    const bool all_equal =
        std::all_of(layer_options_.begin(), layer_options_.end(), [&, layer_kind = kind](const auto& layer_entry) {
          return layer_entry.first.first != layer_kind || are_equal(layer_entry.second, first->second);
        });
    if (all_equal) options = first->second;
  }
  const bool all_equal =
      !kind_options_.empty() && std::all_of(kind_options_.begin(), kind_options_.end(), [&](const auto& kind_entry) {
        return are_equal(kind_entry.second, kind_options_.begin()->second);
      });
  if (all_equal) base_options_ = kind_options_.begin()->second;
}

std::string AttentionConfig::toml() const {
  TomlWriter writer;
  AttentionOptions copy = base_options_;
  writer.section("attention", copy);
  std::string text = writer.text();
  for (const auto& [kind, options] : kind_options_)
    text += difference(std::string("attention.") + name_of(kind), option_values_of(base_options_),
                       option_values_of(options));
  for (const auto& [layer_key, options] : layer_options_)
    text += difference(std::string("attention.") + name_of(layer_key.first) + "." + std::to_string(layer_key.second),
                       option_values_of(kind_options_.at(layer_key.first)), option_values_of(options));
  return text;
}

std::string AttentionConfig::combiners_text() const {
  std::set<std::string> names;
  const auto add_names = [&](const AttentionOptions& options) {
    for (const std::string& name : options.combiner) names.insert(quoted_toml(name));
  };
  for (const auto& [layer_key, options] : layer_options_) add_names(options);
  if (names.empty()) add_names(base_options_);
  const std::string key = "attention.combiner = ";
  return found_value(key + join({names.begin(), names.end()}, ", "),
                     key + quoted_toml(AttentionOptions().combiner.front()));
}

std::vector<std::string> differing_keys(const AttentionOptions& a, const AttentionOptions& b) {
  std::vector<std::string> keys;
  const OptionValues b_values = option_values_of(b);
  for (const auto& [key, value] : option_values_of(a))
    if (const auto it = b_values.find(key); it != b_values.end() && it->second != value) keys.push_back(key);
  return keys;
}

std::string stage_assignment(const std::string& stage_type, const std::string& name) {
  const std::string value = quoted_toml(name);
  return str("attention.", stage_type, '=', stage_type == "transform" ? str('[', value, ']') : value);
}

namespace {

// Sets the groups of a layer. Throws Error(usage) if the numbers of query heads and key/value heads do not fit.
void set_groups(const AttentionOptions& o, LayerSpec& s) {
  const auto num_groups = static_cast<int64_t>(o.group_sizes.size());
  if (o.kv_heads == 0) {
    if (num_groups > 0)
      refuse_usage("attention.group_sizes", "[], since attention.key_value_heads is 0", count_of(num_groups, "number"),
                   "set attention.key_value_heads to the number of groups, or leave attention.group_sizes out");
    return;
  }
  if (num_groups > 0 &&
      (num_groups != o.kv_heads || std::accumulate(o.group_sizes.begin(), o.group_sizes.end(), int64_t{0}) != s.heads))
    refuse_usage("attention.group_sizes",
                 str(count_of(o.kv_heads, "number"), " (attention.key_value_heads) with the sum ", s.heads,
                     " (attention.heads)"),
                 str(count_of(num_groups, "number"), " with the sum ",
                     std::accumulate(o.group_sizes.begin(), o.group_sizes.end(), int64_t{0})),
                 "correct the numbers, or leave attention.group_sizes out");
  if (num_groups == 0 && s.heads % o.kv_heads != 0)
    refuse_usage("attention.key_value_heads", str("a divisor of attention.heads, ", s.heads), str(o.kv_heads),
                 "set attention.key_value_heads to a divisor of attention.heads, or to 0");
  if (s.heads == s.value_heads && o.kv_heads == s.heads) return;  // each query head has its own key/value head
  if (s.value_heads != s.heads)
    refuse_usage("attention.value_heads",
                 str("0 or ", s.heads, ", the number of attention heads, since attention.key_value_heads groups them"),
                 str(s.value_heads), "leave attention.value_heads or attention.key_value_heads out");
  s.kv_heads = o.kv_heads;
  for (int64_t group = 0; group < s.kv_heads; ++group)
    s.kv_head_of.insert(
        s.kv_head_of.end(),
        static_cast<size_t>(num_groups > 0 ? o.group_sizes[static_cast<size_t>(group)] : s.heads / s.kv_heads), group);
}

}  // namespace

LayerSpec make_layer_spec(const AttentionOptions& o, AttentionKind kind, int64_t layer, int64_t width,
                          const std::string& name) {
  if (o.heads == 0) {
    if (o.value_heads > 0)
      refuse_usage("attention.value_heads", "0, since attention.heads is 0", str(o.value_heads),
                   "leave attention.value_heads out");
    if (o.output_heads > 0)
      refuse_usage("attention.output_heads", "0, since attention.heads is 0", str(o.output_heads),
                   "leave attention.output_heads out");
  } else if (o.head_size == 0 && width % o.heads != 0) {
    refuse_usage("attention.heads", str("a divisor of the model width, ", width),
                 found_value(o.heads, AttentionOptions().heads),
                 "set attention.heads to a divisor, or set attention.head_size, which may have any value");
  }
  const int64_t value_heads = o.value_heads > 0 ? o.value_heads : o.heads;
  const int64_t output_heads = o.output_heads > 0 ? o.output_heads : value_heads;
  const int64_t key_size = o.head_size > 0 || o.heads == 0 ? o.head_size : width / o.heads;
  LayerSpec spec{kind,        layer,        width,    o.heads,
                 value_heads, output_heads, key_size, o.value_size > 0 ? o.value_size : key_size,
                 name};
  spec.logit_scale = o.scale;
  if (o.heads > 0) set_groups(o, spec);
  else if (o.kv_heads > 0)
    refuse_usage("attention.key_value_heads", "0, since attention.heads is 0", str(o.kv_heads),
                 "leave attention.key_value_heads out");
  return spec;
}

}  // namespace mh::attention
