// Checks and swaps pairs of heads.
#include "analysis/swap.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "base/error.h"

namespace mh::analysis {

namespace {

bool moves(const nn::Parameter& p, const SwapOptions& options) {
  if (p.traits().head_axes.empty()) return false;
  switch (p.traits().role) {
    case nn::HeadRole::projection:
      return true;
    case nn::HeadRole::output:
      return options.output;
    case nn::HeadRole::gate:
    case nn::HeadRole::mixing:
    case nn::HeadRole::stage:
      return options.stages;
    case nn::HeadRole::none:
      return false;
  }
  return false;
}

// Returns the shape of the block of one head, or of one pair of heads, in a parameter.
std::vector<int64_t> block_of(const nn::Parameter& p) {
  auto sizes = p.master().sizes().vec();
  for (const nn::HeadAxis& axis : p.traits().head_axes) sizes[static_cast<size_t>(axis.axis)] /= axis.blocks();
  return sizes;
}

bool same_axes(const nn::Parameter& a, const nn::Parameter& b) {
  const auto &one = a.traits().head_axes, &other = b.traits().head_axes;
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const auto& x, const auto& y) { return x.axis == y.axis && x.side == y.side; });
}

// Throws Error(usage) unless the two layers of a pair agree in the parameters that would move. `heads`: number of value
// heads of each layer of the pair's kind.
void require_matching_layers(nn::ParameterList& parameters, const std::vector<int64_t>& heads, const HeadPair& pair,
                             const SwapOptions& options, const std::string& where) {
  const std::string from = prefix_of(pair.kind, pair.a.layer) + ".", to = prefix_of(pair.kind, pair.b.layer) + ".";
  auto refuse = [&](const std::string& found) {
    throw Error(Exit::usage,
                Problem{str(where, ", ", to_string(pair)), "layers whose heads have equal sizes and parameters", found,
                        "choose layers of equal structure"});
  };
  int64_t parts = 0, others = 0;
  for (const nn::Parameter& p : parameters.all()) {
    if (!moves(p, options)) continue;
    if (p.name().rfind(to, 0) == 0) ++others;
    if (p.name().rfind(from, 0) != 0) continue;
    ++parts;
    const std::string name = to + p.name().substr(from.size());
    const nn::Parameter* other = parameters.find(name);
    if (other == nullptr || !moves(*other, options)) return refuse("no " + name);
    if (!same_axes(p, *other) || block_of(p) != block_of(*other))
      refuse(p.name() + " and " + name + " of different sizes");
    for (const auto& [part, layer] : {std::pair(&p, pair.a.layer), std::pair(other, pair.b.layer)})
      for (const nn::HeadAxis& axis : part->traits().head_axes)
        if (const int64_t values = heads[static_cast<size_t>(layer)]; axis.heads != values)
          refuse(str(part->name(), " of ", axis.heads, " heads, in a layer with ", values, " value heads"));
  }
  if (parts != others) refuse(str("parameters of layer ", pair.b.layer, " that the other layer lacks"));
}

// The tensors of a parameter that a swap changes: the parameter and its extra tensors (`now`), and copies from before
// the swap (`before`).
struct SwappedTensors {
  const nn::Traits* traits;
  LayerName layer;
  std::vector<at::Tensor> now, before;
};

// Returns the block of head i in tensor x, or the block of the pair of heads (i, j) if both axes of x are heads.
at::Tensor head_block(const nn::Traits& traits, const at::Tensor& x, int64_t i, int64_t j) {
  auto block = [](const at::Tensor& t, const nn::HeadAxis& axis, int64_t head) {
    const int64_t size = t.size(axis.axis) / axis.blocks();
    return t.narrow(axis.axis, axis.block_of(head) * size, size);
  };
  const at::Tensor row = block(x, traits.head_axes[0], i);
  return traits.head_axes.size() > 1 ? block(row, traits.head_axes[1], j) : row;
}

}  // namespace

std::string to_string(const HeadPair& pair) {
  return str(name_of(pair.kind), ":", pair.a.layer, ".", pair.a.head, "-", pair.b.layer, ".", pair.b.head);
}

std::vector<std::string> to_strings(const std::vector<HeadPair>& pairs) {
  std::vector<std::string> texts;
  texts.reserve(pairs.size());
  for (const HeadPair& pair : pairs) texts.push_back(to_string(pair));
  return texts;
}

HeadPair parse_pair(const std::string& text, const std::string& where) {
  static const std::regex form(R"(([a-z.]+):(\d{1,9})\.(\d{1,9})-(\d{1,9})\.(\d{1,9}))");
  std::smatch part;
  if (!std::regex_match(text, part, form))
    throw Error(Exit::usage, Problem{where, "KIND:LAYER.HEAD-LAYER.HEAD, counted from 0", str("'", text, "'"),
                                     "such as decoder.self:1.0-5.3"});
  auto number = [&](size_t i) { return std::stoll(part[i]); };
  return {kind_named(part[1], where), {number(2), number(3)}, {number(4), number(5)}};
}

void check_swap(nn::ParameterList& parameters, const std::vector<HeadPair>& pairs, const SwapOptions& options,
                const std::string& where) {
  const auto kinds = heads_of(parameters);
  std::set<std::pair<AttentionKind, Head>> used;
  for (const HeadPair& pair : pairs) {
    auto refuse = [&](const std::string& expected, const std::string& found) {
      throw Error(Exit::usage, Problem{str(where, ", ", to_string(pair)), expected, found, ""});
    };
    const auto layers = kinds.find(pair.kind);
    if (layers == kinds.end()) refuse("a kind of attention that the model has: " + names_of(kinds), name_of(pair.kind));
    for (const Head& head : {pair.a, pair.b}) {
      const auto count = static_cast<int64_t>(layers->second.size());
      if (head.layer >= count) refuse(str("a layer from 0 to ", count - 1), str(head.layer));
      if (const int64_t heads = layers->second[static_cast<size_t>(head.layer)]; head.head >= heads)
        refuse(heads == 0 ? str("another layer, since all heads are pruned in layer ", head.layer)
                          : str("a head from 0 to ", heads - 1, " in layer ", head.layer),
               str(head.head));
      if (!used.insert({pair.kind, head}).second)
        refuse("each head once", str("head ", head.head, " of layer ", head.layer, " twice"));
    }
    require_matching_layers(parameters, layers->second, pair, options, where);
  }
}

void swap_heads(nn::ParameterList& parameters, const std::vector<HeadPair>& pairs, const SwapOptions& options,
                const std::string& where, const ExtraTensors& extra_tensors) {
  check_swap(parameters, pairs, options, where);
  c10::NoGradGuard no_gradient;
  std::map<AttentionKind, std::map<Head, Head>> partners;
  std::set<std::string> swapped_names;
  for (const HeadPair& pair : pairs) {
    partners[pair.kind][pair.a] = pair.b, partners[pair.kind][pair.b] = pair.a;
    for (const Head& head : {pair.a, pair.b}) swapped_names.insert(prefix_of(pair.kind, head.layer));
  }
  auto source = [&](AttentionKind kind, const Head& head) {
    const auto& of_kind = partners.at(kind);
    const auto it = of_kind.find(head);
    return it == of_kind.end() ? head : it->second;
  };

  std::map<std::string, SwappedTensors> held;
  for (nn::Parameter& p : parameters.all()) {
    const auto layer = layer_of(p.name());
    if (!layer || swapped_names.count(prefix_of(layer->kind, layer->layer)) == 0 || !moves(p, options)) continue;
    SwappedTensors h{&p.traits(), *layer, {p.master()}, {}};
    if (extra_tensors)
      for (const at::Tensor& x : extra_tensors(p)) h.now.push_back(x);
    for (const at::Tensor& x : h.now) h.before.push_back(x.clone());
    held.emplace(p.name(), h);
  }
  for (auto& [name, h] : held) {
    const auto [kind, layer] = h.layer;
    const std::string part = name.substr(prefix_of(kind, layer).size());
    const auto& axes = h.traits->head_axes;
    const bool square = axes.size() > 1;
    const int64_t heads = axes[0].heads, columns = square ? axes[1].heads : 1;
    for (int64_t i = 0; i < heads; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        const Head row = source(kind, {layer, i}), column = square ? source(kind, {layer, j}) : row;
        if (row.layer != column.layer) continue;  // heads i and j now come from different layers
        const SwappedTensors& other = held.at(prefix_of(kind, row.layer) + part);
        if (other.before.size() != h.now.size())
          throw Error(Exit::failed, name + " and its partner in layer " + str(row.layer) +
                                        " have different numbers of extra tensors");
        for (size_t t = 0; t < h.now.size(); ++t)
          head_block(*h.traits, h.now[t], i, j)
              .copy_(head_block(*other.traits, other.before[t], row.head, column.head));
      }
  }
  parameters.refresh_copies();
}

}  // namespace mh::analysis
