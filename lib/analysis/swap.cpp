// Checks and swaps pairs of heads.
#include "analysis/swap.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace mh::analysis {

namespace {

bool is_moved(const nn::Parameter& p, const SwapOptions& options) {
  if (p.traits().head_axes.empty()) return false;
  if (p.traits().head_axes[0].side == nn::HeadSide::key_value && options.group_size == 0) return false;
  switch (p.traits().role) {
    case nn::HeadRole::projection:
      return true;
    case nn::HeadRole::output:
      return options.moves_output;
    case nn::HeadRole::gate:
    case nn::HeadRole::mixing:
    case nn::HeadRole::stage:
      return options.moves_stages;
    case nn::HeadRole::none:
      return false;
  }
  return false;
}

// Returns the shape of the block of one head, or of one pair of heads, in a parameter.
std::vector<int64_t> block_shape(const nn::Parameter& p) {
  auto sizes = p.master().sizes().vec();
  for (const nn::HeadAxis& axis : p.traits().head_axes) sizes[static_cast<size_t>(axis.axis)] /= axis.block_count();
  return sizes;
}

bool have_same_axes(const nn::Parameter& a, const nn::Parameter& b) {
  const auto &a_axes = a.traits().head_axes, &b_axes = b.traits().head_axes;
  return std::equal(a_axes.begin(), a_axes.end(), b_axes.begin(), b_axes.end(),
                    [](const auto& x, const auto& y) { return x.axis == y.axis && x.side == y.side; });
}

// Throws Error(usage) unless each parameter that would move exists in both layers of a pair, with equal axes and equal
// blocks per head, and has as many heads as its layer has value heads. `head_counts`: number of value heads of each
// layer of the pair's kind.
void require_matching_layers(nn::ParameterList& parameters, const std::vector<int64_t>& head_counts,
                             const HeadPair& pair, const SwapOptions& options, const std::string& where) {
  const std::string prefix_a = prefix_of(pair.kind, pair.a.layer) + ".",
                    prefix_b = prefix_of(pair.kind, pair.b.layer) + ".";
  auto refuse = [&](const std::string& found) {
    refuse_usage(str(where, ", ", to_string(pair)), "layers whose heads have equal sizes and parameters", found,
                 "swap only heads of layers with equal sizes and parameters");
  };
  int64_t num_parameters_a = 0, num_parameters_b = 0;
  for (const nn::Parameter& p : parameters.all()) {
    if (!is_moved(p, options)) continue;
    if (p.name().rfind(prefix_b, 0) == 0) ++num_parameters_b;
    if (p.name().rfind(prefix_a, 0) != 0) continue;
    ++num_parameters_a;
    const std::string name_b = prefix_b + p.name().substr(prefix_a.size());
    const nn::Parameter* parameter_b = parameters.find(name_b);
    if (parameter_b == nullptr || !is_moved(*parameter_b, options)) return refuse("no " + name_b);
    if (!have_same_axes(p, *parameter_b) || block_shape(p) != block_shape(*parameter_b))
      refuse(p.name() + " and " + name_b + " of different sizes");
    for (const auto& [parameter, layer] : {std::pair(&p, pair.a.layer), std::pair(parameter_b, pair.b.layer)})
      for (const nn::HeadAxis& axis : parameter->traits().head_axes)
        if (const int64_t num_value_heads = head_counts[static_cast<size_t>(layer)];
            axis.side != nn::HeadSide::key_value && axis.heads != num_value_heads)
          refuse(
              str(parameter->name(), " of ", axis.heads, " heads, in a layer with ", num_value_heads, " value heads"));
  }
  if (num_parameters_a != num_parameters_b)
    refuse(str("parameters of layer ", pair.b.layer, " that layer ", pair.a.layer, " lacks"));
}

// The tensors of a parameter that a swap changes: the parameter and its extra tensors (`tensors`), and copies from
// before the swap (`copies`).
struct SwappedTensors {
  const nn::ParameterTraits* traits;
  LayerId layer;
  std::vector<at::Tensor> tensors, copies;
};

// Returns the number of units, heads or groups of heads, along the axis.
int64_t num_units(const nn::HeadAxis& axis, const SwapOptions& options) {
  return axis.side == nn::HeadSide::key_value ? axis.heads : axis.heads / options.unit_size();
}

// Returns the block of unit i (a head, or a group of heads) in tensor x, or the block of the pair of units (i, j) if x
// has two head axes.
at::Tensor unit_block(const nn::ParameterTraits& traits, const at::Tensor& x, int64_t i, int64_t j,
                      const SwapOptions& options) {
  auto block = [&](const at::Tensor& t, const nn::HeadAxis& axis, int64_t unit) {
    const int64_t unit_size = axis.side == nn::HeadSide::key_value ? 1 : options.unit_size(),
                  size = t.size(axis.axis) / axis.block_count();
    return t.narrow(axis.axis, axis.block_of(unit * unit_size) * size, unit_size * size);
  };
  const at::Tensor row = block(x, traits.head_axes[0], i);
  return traits.head_axes.size() > 1 ? block(row, traits.head_axes[1], j) : row;
}

}  // namespace

void check_swap(nn::ParameterList& parameters, const std::vector<HeadPair>& pairs, const SwapOptions& options,
                const std::string& where) {
  const auto head_counts = head_counts_of(parameters);
  std::set<std::pair<AttentionKind, Head>> swapped_heads;
  for (const HeadPair& pair : pairs) {
    auto refuse = [&](const std::string& expected, const std::string& found, const char* advice) {
      refuse_usage(str(where, ", ", to_string(pair)), expected, found, advice);
    };
    const auto layers = head_counts.find(pair.kind);
    if (layers == head_counts.end())
      refuse("a kind of attention that the model has: " + names_of(head_counts), name_of(pair.kind),
             "choose heads of such a kind");
    for (const Head& head : {pair.a, pair.b}) {
      const auto num_layers = static_cast<int64_t>(layers->second.size());
      if (head.layer >= num_layers)
        refuse(str("a layer from 0 to ", num_layers - 1), str(head.layer), "choose a layer in this range");
      if (const int64_t num_heads = layers->second[static_cast<size_t>(head.layer)] / options.unit_size();
          head.head >= num_heads)
        refuse(num_heads == 0 ? str("another layer, since all heads are pruned in layer ", head.layer)
                              : str("a head from 0 to ", num_heads - 1, " in layer ", head.layer),
               str(head.head), num_heads == 0 ? "choose heads of another layer" : "choose a head in this range");
      if (swapped_heads.insert({pair.kind, head}).second) continue;
      const bool has_one_head = pair.a.layer == pair.b.layer && pair.a.head == pair.b.head;
      refuse(has_one_head ? "two different heads in a pair" : "each head once",
             str("head ", head.head, " of layer ", head.layer, " twice"),
             has_one_head ? "replace one of the heads" : "leave one of the pairs out");
    }
    require_matching_layers(parameters, layers->second, pair, options, where);
  }
}

void swap_heads(nn::ParameterList& parameters, const std::vector<HeadPair>& pairs, const SwapOptions& options,
                const std::string& where, const ExtraTensors& extra_tensors) {
  check_swap(parameters, pairs, options, where);
  c10::NoGradGuard no_gradient;
  std::map<AttentionKind, std::map<Head, Head>> partners;
  std::set<std::string> swapped_prefixes;
  for (const HeadPair& pair : pairs) {
    partners[pair.kind][pair.a] = pair.b, partners[pair.kind][pair.b] = pair.a;
    for (const Head& head : {pair.a, pair.b}) swapped_prefixes.insert(prefix_of(pair.kind, head.layer));
  }
  auto source_of = [&](AttentionKind kind, const Head& head) {
    const auto& kind_partners = partners.at(kind);
    const auto it = kind_partners.find(head);
    return it == kind_partners.end() ? head : it->second;
  };

  std::map<std::string, SwappedTensors> swapped_tensors;
  for (nn::Parameter& p : parameters.all()) {
    const auto layer = layer_of(p.name());
    if (!layer || swapped_prefixes.count(prefix_of(layer->kind, layer->layer)) == 0 || !is_moved(p, options)) continue;
    SwappedTensors parameter_tensors{&p.traits(), *layer, {p.master()}, {}};
    if (extra_tensors)
      for (const at::Tensor& x : extra_tensors(p)) parameter_tensors.tensors.push_back(x);
    for (const at::Tensor& x : parameter_tensors.tensors) parameter_tensors.copies.push_back(x.clone());
    swapped_tensors.emplace(p.name(), parameter_tensors);
  }
  for (auto& [name, destination] : swapped_tensors) {
    const auto [kind, layer] = destination.layer;
    const std::string suffix = name.substr(prefix_of(kind, layer).size());
    const auto& axes = destination.traits->head_axes;
    const bool has_head_pairs = axes.size() > 1;
    const int64_t num_rows = num_units(axes[0], options),
                  num_columns = has_head_pairs ? num_units(axes[1], options) : 1;
    for (int64_t i = 0; i < num_rows; ++i)
      for (int64_t j = 0; j < num_columns; ++j) {
        const Head source_i = source_of(kind, {layer, i}),
                   source_j = has_head_pairs ? source_of(kind, {layer, j}) : source_i;
        if (source_i.layer != source_j.layer) continue;  // heads i and j come from different layers after the swap
        const SwappedTensors& source = swapped_tensors.at(prefix_of(kind, source_i.layer) + suffix);
        if (source.copies.size() != destination.tensors.size())
          throw Error(
              Exit::failed,
              Problem{name,
                      str(count_of(source.copies.size() - 1, "optimiser moment"),
                          ", as for the same parameter of layer ", source_i.layer),
                      str(destination.tensors.size() - 1),
                      "leave optimizer out of --with, or swap heads only between layers with the same update rule"});
        for (size_t t = 0; t < destination.tensors.size(); ++t)
          unit_block(*destination.traits, destination.tensors[t], i, j, options)
              .copy_(unit_block(*source.traits, source.copies[t], source_i.head, source_j.head, options));
      }
  }
  parameters.refresh_bf16_copies();
}

}  // namespace mh::analysis
