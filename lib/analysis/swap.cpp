#include "analysis/swap.h"

#include <c10/core/GradMode.h>

#include <regex>
#include <set>

#include "base/error.h"

namespace mh::analysis {

namespace {

bool moves(const model::Parameter& p, const SwapOptions& options) {
  if (!p.traits().head_axis) return false;
  switch (p.traits().role) {
    case model::HeadRole::projection:
      return true;
    case model::HeadRole::output:
      return options.output;
    case model::HeadRole::stage:
      return options.stages;
  }
  return false;
}

// What belongs to the two layers' heads, parameter against parameter.
struct Match {
  model::Parameter *a, *b;
};

std::vector<Match> matches_of(model::ParameterList& parameters, const HeadPair& pair, const SwapOptions& options,
                              const std::string& where) {
  const std::string from = prefix_of(pair.kind, pair.a.layer) + ".", to = prefix_of(pair.kind, pair.b.layer) + ".";
  auto refuse = [&](const std::string& found) {
    throw Error(Exit::usage,
                Problem{str(where, ", ", to_string(pair)), "layers whose heads have the same size and parts", found,
                        "choose layers that are alike"});
  };
  std::vector<Match> found;
  size_t others = 0;
  for (model::Parameter& p : parameters.all()) {
    if (!moves(p, options)) continue;
    if (p.name().rfind(to, 0) == 0) ++others;
    if (p.name().rfind(from, 0) != 0) continue;
    model::Parameter* other = parameters.find(to + p.name().substr(from.size()));
    if (other == nullptr || !moves(*other, options)) refuse("no " + to + p.name().substr(from.size()));
    const model::Traits &x = p.traits(), &y = other->traits();
    auto sizes = [](const model::Parameter& of) {
      auto all = of.master().sizes().vec();
      all[static_cast<size_t>(*of.traits().head_axis)] /= of.traits().heads;
      return all;
    };
    const bool square = x.second_head_axis.has_value();
    if (x.head_axis != y.head_axis || x.second_head_axis != y.second_head_axis || sizes(p) != sizes(*other) ||
        (square && x.heads != y.heads))
      refuse(p.name() + " and " + other->name() + " of other sizes");
    found.push_back({&p, other});
  }
  if (found.size() != others) refuse("parts of layer " + std::to_string(pair.b.layer) + " that the other lacks");
  return found;
}

void exchange(at::Tensor x, at::Tensor y) {
  const at::Tensor kept = x.clone();
  x.copy_(y);
  y.copy_(kept);
}

// Of tensors laid out as two parameters of these traits; `same`: they are one tensor.
void exchange_heads(const model::Traits& of_x, at::Tensor x, int64_t a, const model::Traits& of_y, at::Tensor y,
                    int64_t b, bool same) {
  const int64_t axis = *of_x.head_axis;
  auto block = [](const at::Tensor& t, int64_t along, int64_t heads, int64_t head) {
    const int64_t size = t.size(along) / heads;
    return t.narrow(along, head * size, size);
  };
  const at::Tensor row = block(x, axis, of_x.heads, a), other_row = block(y, axis, of_y.heads, b);
  if (!of_x.second_head_axis) return exchange(row, other_row);
  const int64_t second = *of_x.second_head_axis, heads = of_x.heads;
  for (int64_t j = 0; j < heads; ++j) {
    const int64_t k = j == a ? b : j == b ? a : j;  // π(j)
    exchange(block(row, second, heads, j), block(other_row, second, heads, k));
    // The row has had [a, a]; within one matrix it has had [b, a] with [a, b] too.
    if (j == a || (same && j == b)) continue;
    exchange(block(block(x, axis, heads, j), second, heads, a), block(block(y, axis, heads, k), second, heads, b));
  }
}

}  // namespace

std::string to_string(const HeadPair& pair) {
  return str(name_of(pair.kind), ":", pair.a.layer, ".", pair.a.head, "-", pair.b.layer, ".", pair.b.head);
}

std::vector<std::string> to_strings(const std::vector<HeadPair>& pairs) {
  std::vector<std::string> texts;
  for (const HeadPair& pair : pairs) texts.push_back(to_string(pair));
  return texts;
}

HeadPair parse_pair(const std::string& text, const std::string& where) {
  static const std::regex form(R"(([a-z.]+):(\d{1,9})\.(\d{1,9})-(\d{1,9})\.(\d{1,9}))");
  std::smatch part;
  if (!std::regex_match(text, part, form))
    throw Error(Exit::usage, Problem{where, "KIND:LAYER.HEAD-LAYER.HEAD, from 0", str("'", text, "'"),
                                     "such as decoder.self:1.0-5.3"});
  auto number = [&](size_t i) { return std::stoll(part[i]); };
  return {kind_named(part[1], where), {number(2), number(3)}, {number(4), number(5)}};
}

void check_swap(model::ParameterList& parameters, const std::vector<HeadPair>& pairs, const SwapOptions& options,
                const std::string& where) {
  const auto kinds = heads_of(parameters);
  std::set<std::pair<Kind, Head>> used;
  for (const HeadPair& pair : pairs) {
    auto refuse = [&](const std::string& expected, const std::string& found) {
      throw Error(Exit::usage, Problem{str(where, ", ", to_string(pair)), expected, found, ""});
    };
    const auto layers = kinds.find(pair.kind);
    if (layers == kinds.end()) refuse("a kind of attention that the model has", name_of(pair.kind));
    for (const Head& head : {pair.a, pair.b}) {
      const auto count = static_cast<int64_t>(layers->second.size());
      if (head.layer >= count) refuse(str("a layer from 0 to ", count - 1), str(head.layer));
      if (const int64_t heads = layers->second[static_cast<size_t>(head.layer)]; head.head >= heads)
        refuse(str("a head from 0 to ", heads - 1, " in layer ", head.layer), str(head.head));
      if (!used.insert({pair.kind, head}).second)
        refuse("each head once", str("head ", head.head, " of layer ", head.layer, " twice"));
    }
    matches_of(parameters, pair, options, where);
  }
}

void swap_heads(model::ParameterList& parameters, const std::vector<HeadPair>& pairs, const SwapOptions& options,
                const std::string& where, const Companions& companions) {
  check_swap(parameters, pairs, options, where);
  c10::NoGradGuard no_gradient;
  for (const HeadPair& pair : pairs)
    for (const Match& m : matches_of(parameters, pair, options, where)) {
      const bool same = m.a == m.b;
      auto swap = [&](const at::Tensor& x, const at::Tensor& y) {
        exchange_heads(m.a->traits(), x, pair.a.head, m.b->traits(), y, pair.b.head, same);
      };
      swap(m.a->master(), m.b->master());
      m.a->refresh_copy(), m.b->refresh_copy();
      if (!companions) continue;
      const auto first = companions(*m.a), second = companions(*m.b);
      for (size_t i = 0; i < first.size() && i < second.size(); ++i) swap(first[i], second[i]);
    }
}

}  // namespace mh::analysis
