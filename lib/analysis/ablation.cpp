// Scores several ablated models in one forward pass: models share their batch rows up to the first layer in which they
// mask different heads.
#include "analysis/ablation.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "analysis/importance.h"
#include "attention/head_scales.h"
#include "base/signals.h"
#include "nn/aten.h"

namespace mh::analysis {

using attention::AttentionLayer;
using attention::HeadScales;
using attention::HeadSide;

namespace {

constexpr HeadSide kSides[] = {HeadSide::score, HeadSide::value, HeadSide::output};

std::set<int64_t> heads_of_layer(const HeadSet& set, const AttentionLayer& layer) {
  std::set<int64_t> heads;
  if (const auto kind = set.find(layer.layer_spec().kind); kind != set.end())
    for (const Head& head : kind->second)
      if (head.layer == layer.layer_spec().layer) heads.insert(head.head);
  return heads;
}

// Returns the head scales (n, h) of a layer for n groups of models: the layer's current scales (h), with 0 for the
// heads that a group masks. `blocks`: the masked heads of each group.
HeadScales masked_scales(const AttentionLayer& layer, Side side, const std::vector<std::set<int64_t>>& blocks,
                         at::Device device) {
  HeadScales scales = attention::head_scales(layer);
  if (scales.variants.count > 0) throw std::logic_error("the layer already has head scales with variants");
  const auto sides = sides_in(layer, side);
  for (HeadSide s : kSides) {
    at::Tensor& scale = scales.of(s);
    const bool is_addressed = std::find(sides.begin(), sides.end(), s) != sides.end();
    if (!is_addressed && !scale.defined()) continue;
    at::Tensor all = at::ones({static_cast<int64_t>(blocks.size()), layer.layer_spec().heads_of(s)}, at::kFloat);
    for (size_t b = 0; is_addressed && b < blocks.size(); ++b)
      for (int64_t head : blocks[b]) all[static_cast<int64_t>(b)][head] = 0;
    all = all.to(device);
    scale = scale.defined() ? all * scale : all;
  }
  return scales;
}

// The plan of a forward pass that scores several ablated models. A group is a set of models that have masked the same
// heads in all layers so far; each group has one copy of the batch rows. A layer in which the models of a group mask
// different heads splits the group.
struct GroupPlan {
  std::vector<HeadScales> scales;  // per layer; the current scales of the layer if no model masks its heads
  std::vector<size_t> block_of;    // per model: index of its group after the last layer
  int64_t blocks = 1;              // number of groups after the last layer
};

GroupPlan split(model::LanguageModel& model, Side side, const std::vector<HeadSet>& without) {
  GroupPlan result;
  std::vector<std::vector<size_t>> blocks(1, std::vector<size_t>(without.size()));  // per group: indices of its models
  std::iota(blocks[0].begin(), blocks[0].end(), 0);
  for (const AttentionLayer* layer : model.attention_layers()) {
    std::vector<std::vector<size_t>> now(blocks.size());
    std::vector<int64_t> from(blocks.size());
    std::iota(from.begin(), from.end(), 0);
    std::vector<std::set<int64_t>> heads(blocks.size());
    bool any = false;
    for (size_t b = 0; b < blocks.size(); ++b) {
      std::map<std::set<int64_t>, size_t> at;  // group of the models that mask these heads
      for (size_t model_index : blocks[b]) {
        const auto masked = heads_of_layer(without[model_index], *layer);
        any = any || !masked.empty();
        // The first set of masked heads keeps group index b, since attention::Variants requires that the groups before
        // the layer come first, in order.
        const auto [place, fresh] = at.try_emplace(masked, at.empty() ? b : now.size());
        if (fresh && place->second == now.size()) {
          now.emplace_back();
          from.push_back(static_cast<int64_t>(b));
          heads.emplace_back();
        }
        heads[place->second] = masked;
        now[place->second].push_back(model_index);
      }
    }
    blocks = std::move(now);
    result.scales.push_back(attention::head_scales(*layer));
    if (!any) continue;
    result.scales.back() = masked_scales(*layer, side, heads, model.parameters().device());
    result.scales.back().variants = {static_cast<int64_t>(blocks.size()), std::move(from)};
  }
  result.blocks = static_cast<int64_t>(blocks.size());
  result.block_of.resize(without.size());
  for (size_t b = 0; b < blocks.size(); ++b)
    for (size_t model_index : blocks[b]) result.block_of[model_index] = b;
  return result;
}

void score_together(const AnalysisInput& input, const std::vector<HeadSet>& without, std::vector<task::Score*> into,
                    int64_t tokens_at_once) {
  const GroupPlan plan = split(input.model, input.side, without);
  const auto layers = input.model.attention_layers();
  const InterceptorGuard kept(input.model);
  for (size_t i = 0; i < layers.size(); ++i) set_head_scales(*layers[i], plan.scales[i]);
  data::ScoringOptions how = input.how;
  how.batch = std::clamp<int64_t>(tokens_at_once / (plan.blocks * how.block), 1, how.batch);
  data::BatchVisitor visitor;
  visitor.progress = input.progress;
  visitor.visit = [&](const data::VisitedBatch& pass) {
    const at::Tensor& targets = pass.batch.targets;
    if (pass.hidden.size(0) != plan.blocks * targets.size(0))
      throw std::logic_error("the hidden states of an ablation have an unexpected number of batch rows");
    const at::Tensor log_p = input.model.target_log_probabilities(pass.hidden, targets.repeat({plan.blocks, 1}));
    const at::Tensor sums = log_p.to(at::kCPU).reshape({plan.blocks, -1}).sum(1, false, at::kDouble);
    const int64_t tokens = targets.ge(0).sum().item<int64_t>();
    for (size_t i = 0; i < into.size(); ++i) {
      into[i]->nll -= sums[static_cast<int64_t>(plan.block_of[i])].item<double>();
      into[i]->tokens += tokens;
    }
  };
  data::for_each_batch(input.model, input.text, how, visitor);
}

}  // namespace

int64_t num_heads_of(const AttentionLayer& layer, Side side) {
  const attention::LayerSpec& layer_spec = layer.layer_spec();
  if (layer_spec.heads == 0) return 0;
  const auto sides = sides_in(layer, side);
  if (sides.empty())
    throw Error(Exit::usage,
                Problem{"--side", str("layers that have ", name_of(side), " heads separate from their value heads"),
                        str(layer_spec.name, ", which does not mix heads"), "use --side whole or value"});
  const int64_t heads = layer_spec.heads_of(sides[0]);
  for (HeadSide s : sides)
    if (layer_spec.heads_of(s) != heads)
      throw Error(
          Exit::usage,
          Problem{"--side", "score, value or output",
                  str("whole, but ", layer_spec.name, " has different numbers of score, value and output heads"), ""});
  return heads;
}

HeadSet all_heads(model::LanguageModel& model, Side side, const Kinds& kinds) {
  HeadSet all;
  for (const AttentionLayer* layer : model.attention_layers())
    for (int64_t head = contains(kinds, layer->layer_spec().kind) ? num_heads_of(*layer, side) : 0; head-- > 0;)
      all[layer->layer_spec().kind].insert({layer->layer_spec().layer, head});
  return all;
}

void check_heads(model::LanguageModel& model, Side side, const HeadSet& heads, const std::string& where) {
  std::map<AttentionKind, std::map<int64_t, int64_t>> heads_by_layer;  // number of heads by kind and layer
  for (const AttentionLayer* layer : model.attention_layers())
    if (heads.count(layer->layer_spec().kind) > 0)
      heads_by_layer[layer->layer_spec().kind][layer->layer_spec().layer] = num_heads_of(*layer, side);
  const auto refuse = [&](const std::string& expected, AttentionKind kind, const Head& head) {
    throw Error(Exit::usage,
                Problem{where, expected, str(name_of(kind), ", layer ", head.layer, ", head ", head.head), ""});
  };
  for (const auto& [kind, model_targets] : heads) {
    const auto& layers = heads_by_layer[kind];
    for (const Head& head : model_targets) {
      if (layers.empty()) refuse("a kind of attention that the model has", kind, head);
      const auto layer = layers.find(head.layer);
      if (layer == layers.end()) refuse(str("layers 0 to ", layers.rbegin()->first), kind, head);
      if (head.head < 0 || head.head >= layer->second)
        refuse(layer->second > 0 ? str("heads 0 to ", layer->second - 1, " in layer ", head.layer)
                                 : "a layer whose heads are not all pruned",
               kind, head);
    }
  }
}

InterceptorGuard::InterceptorGuard(model::LanguageModel& model) : layers_(model.attention_layers()) {
  for (const AttentionLayer* layer : layers_) saved_interceptors_.push_back(layer->interceptor());
}

InterceptorGuard::~InterceptorGuard() {
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i]->set_interceptor(saved_interceptors_[i]);
}

HeadMaskGuard::HeadMaskGuard(model::LanguageModel& model, Side side, const HeadSet& heads) : interceptor_guard_(model) {
  check_heads(model, side, heads, "--heads");
  for (AttentionLayer* layer : model.attention_layers()) {
    const auto masked = heads_of_layer(heads, *layer);
    if (masked.empty()) continue;
    HeadScales scales = masked_scales(*layer, side, {masked}, model.parameters().device());
    for (HeadSide s : kSides)
      if (at::Tensor& scale = scales.of(s); scale.defined()) scale = scale[0];
    set_head_scales(*layer, scales);
  }
}

std::vector<task::Score> score_without(const AnalysisInput& input, const std::vector<HeadSet>& without,
                                       int64_t tokens_at_once) {
  c10::NoGradGuard no_gradient;
  all_heads(input.model, input.side, input.kinds);  // throws if a layer has no heads on this side
  for (const HeadSet& heads : without) check_heads(input.model, input.side, heads, "--heads");
  // Models are sorted by the first layer in which they mask heads, so that models of one forward pass share many
  // layers.
  const auto layers = input.model.attention_layers();
  const auto first_layer = [&](size_t i) {
    size_t layer = 0;
    while (layer < layers.size() && heads_of_layer(without[i], *layers[layer]).empty()) ++layer;
    return layer;
  };
  std::vector<size_t> order(without.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return first_layer(a) < first_layer(b); });
  const auto count = static_cast<int64_t>(order.size());
  AnalysisInput part = input;
  part.how = input.text.resolve(input.how, input.model);
  const int64_t most = std::max<int64_t>(1, tokens_at_once / part.how.block);
  const int64_t groups = std::max<int64_t>(1, data::ceil_div(count, most));
  std::vector<task::Score> scores(without.size());
  for (int64_t g = 0; g < groups && stop_signal() == 0; ++g) {
    std::vector<HeadSet> group;
    std::vector<task::Score*> into;
    for (int64_t i = g * count / groups; i < (g + 1) * count / groups; ++i) {
      group.push_back(without[order[static_cast<size_t>(i)]]);
      into.push_back(&scores[order[static_cast<size_t>(i)]]);
    }
    if (group.empty()) break;
    if (input.progress)
      part.progress = [&input, g, groups](int64_t done, int64_t all) { input.progress(g * all + done, groups * all); };
    score_together(part, group, into, tokens_at_once);
  }
  return scores;
}

double nll_per_token(const task::Score& score) {
  return score.nll / static_cast<double>(std::max<int64_t>(1, score.tokens));
}

double deviation(const std::vector<double>& values) {
  if (values.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / (n - 1));
}

}  // namespace mh::analysis
