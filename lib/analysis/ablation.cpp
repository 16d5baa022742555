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
#include "ceil_div.h"
#include "nn/aten.h"
#include "task/task.h"

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

// Returns the head scales of a layer (factors that multiply the tensors of its heads) for n groups of models: the
// layer's current scales, with 0 for masked heads on the sides that `side` selects. The shape is (n, heads of the
// side) for each head side that `side` selects or that is already scaled. `masked_heads_of_groups`: for each group, the
// indices of the heads that the group masks.
HeadScales masked_scales(const AttentionLayer& layer, SideSelection side,
                         const std::vector<std::set<int64_t>>& masked_heads_of_groups, at::Device device) {
  HeadScales scales = attention::head_scales(layer);
  if (scales.variants.count > 0)
    throw std::logic_error("masked_scales(): expected head scales without variants; found variants");
  const auto sides = sides_in(layer, side);
  for (HeadSide s : kSides) {
    at::Tensor& scale = scales.scales_of(s);
    const bool is_selected = std::find(sides.begin(), sides.end(), s) != sides.end();
    if (!is_selected && !scale.defined()) continue;
    at::Tensor masks =
        at::ones({static_cast<int64_t>(masked_heads_of_groups.size()), layer.layer_spec().num_heads_of(s)}, at::kFloat);
    for (size_t g = 0; is_selected && g < masked_heads_of_groups.size(); ++g)
      for (int64_t head : masked_heads_of_groups[g]) masks[static_cast<int64_t>(g)][head] = 0;
    masks = masks.to(device);
    scale = scale.defined() ? masks * scale : masks;
  }
  return scales;
}

// The plan of a forward pass that scores several ablated models. A group is a set of models that have masked the same
// heads in all layers so far; each group has one copy of the batch rows. A layer in which the models of a group mask
// different heads splits the group.
struct GroupPlan {
  std::vector<HeadScales> scales;  // per layer: scales of its heads, unchanged if no model masks a head of the layer
  std::vector<size_t> group_of;    // per model: index of its group after the last layer
  int64_t num_groups = 1;          // number of groups after the last layer
};

GroupPlan plan_groups(model::LanguageModel& model, SideSelection side, const std::vector<HeadSet>& masked_sets) {
  GroupPlan plan;
  std::vector<std::vector<size_t>> groups(1,
                                          std::vector<size_t>(masked_sets.size()));  // per group: indices of its models
  std::iota(groups[0].begin(), groups[0].end(), 0);
  for (const AttentionLayer* layer : model.attention_layers()) {
    std::vector<std::vector<size_t>> next_groups(groups.size());
    std::vector<int64_t> parent_groups(groups.size());
    std::iota(parent_groups.begin(), parent_groups.end(), 0);
    std::vector<std::set<int64_t>> masked_heads_of_groups(groups.size());
    bool masks_any = false;
    for (size_t g = 0; g < groups.size(); ++g) {
      std::map<std::set<int64_t>, size_t> group_by_heads;  // group index, by the heads masked in this layer
      for (size_t model_index : groups[g]) {
        const auto masked_heads = heads_of_layer(masked_sets[model_index], *layer);
        masks_any = masks_any || !masked_heads.empty();
        // The models with the first set of masked heads stay in group g, and every other set starts a new group after
        // the last group, because attention::Variants requires that existing groups keep their indices.
        const auto [group_entry, is_new] =
            group_by_heads.try_emplace(masked_heads, group_by_heads.empty() ? g : next_groups.size());
        if (is_new && group_entry->second == next_groups.size()) {
          next_groups.emplace_back();
          parent_groups.push_back(static_cast<int64_t>(g));
          masked_heads_of_groups.emplace_back();
        }
        masked_heads_of_groups[group_entry->second] = masked_heads;
        next_groups[group_entry->second].push_back(model_index);
      }
    }
    groups = std::move(next_groups);
    plan.scales.push_back(attention::head_scales(*layer));
    if (!masks_any) continue;
    plan.scales.back() = masked_scales(*layer, side, masked_heads_of_groups, model.parameters().device());
    plan.scales.back().variants = {static_cast<int64_t>(groups.size()), std::move(parent_groups)};
  }
  plan.num_groups = static_cast<int64_t>(groups.size());
  plan.group_of.resize(masked_sets.size());
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t model_index : groups[g]) plan.group_of[model_index] = g;
  return plan;
}

// Scores all models of `masked_sets` in the same forward passes over the text, and adds the score of model i to
// *model_scores[i].
void score_in_one_text_pass(const AnalysisInput& input, const std::vector<HeadSet>& masked_sets,
                            std::vector<task::NllSum*> model_scores, int64_t max_tokens_per_pass) {
  const GroupPlan plan = plan_groups(input.model, input.side, masked_sets);
  const auto layers = input.model.attention_layers();
  const InterceptorGuard interceptor_guard(input.model);
  for (size_t i = 0; i < layers.size(); ++i) set_head_scales(*layers[i], plan.scales[i]);
  data::ScoringOptions scoring_options = input.scoring_options;
  scoring_options.batch = std::clamp<int64_t>(max_tokens_per_pass / (plan.num_groups * scoring_options.sequence_length),
                                              1, scoring_options.batch);
  data::BatchVisitor visitor;
  visitor.on_progress = input.progress;
  visitor.group = input.group;
  visitor.compute = [&](const data::ForwardedBatch& pass) -> distributed::OrderedWork::Results {
    const at::Tensor& targets = pass.batch.targets;
    if (pass.hidden.size(0) != plan.num_groups * targets.size(0))
      throw std::logic_error(str("score_in_one_text_pass(): expected ", plan.num_groups * targets.size(0),
                                 " batch rows of hidden states; found ", pass.hidden.size(0)));
    const at::Tensor log_p = input.model.target_log_probabilities(pass.hidden, targets.repeat({plan.num_groups, 1}));
    return {log_p.to(at::kCPU).reshape({plan.num_groups, -1}).sum(1, false, at::kDouble)};
  };
  visitor.add = [&](const data::MiniBatch& mini_batch, const distributed::OrderedWork::Results& results) {
    const at::Tensor& sums = results[0];
    const int64_t num_tokens = mini_batch.batch.targets.ge(0).sum().item<int64_t>();
    for (size_t i = 0; i < model_scores.size(); ++i) {
      model_scores[i]->nll -= sums[static_cast<int64_t>(plan.group_of[i])].item<double>();
      model_scores[i]->num_tokens += num_tokens;
    }
  };
  data::for_each_batch(input.model, input.corpus, scoring_options, visitor);
}

}  // namespace

int64_t num_heads_of(const AttentionLayer& layer, SideSelection side) {
  const attention::LayerSpec& layer_spec = layer.layer_spec();
  if (layer_spec.heads == 0) return 0;
  const auto sides = sides_in(layer, side);
  if (sides.empty())
    refuse_usage("--side", str("layers that have ", name_of(side), " heads separate from their value heads"),
                 str(layer_spec.name, ", which does not mix heads"), "use --side whole or value");
  const int64_t num_heads = layer_spec.num_heads_of(sides[0]);
  for (HeadSide s : sides)
    if (layer_spec.num_heads_of(s) != num_heads)
      refuse_usage("--side",
                   str("score, value or output, since the numbers of score, value and output heads of ",
                       layer_spec.name, " differ"),
                   "the default, whole", "use --side score, value or output");
  return num_heads;
}

HeadSet all_heads(model::LanguageModel& model, SideSelection side, const Kinds& kinds) {
  HeadSet result;
  for (const AttentionLayer* layer : model.attention_layers())
    for (int64_t head = contains(kinds, layer->layer_spec().kind) ? num_heads_of(*layer, side) : 0; head-- > 0;)
      result[layer->layer_spec().kind].insert({layer->layer_spec().layer, head});
  return result;
}

void check_heads(model::LanguageModel& model, SideSelection side, const HeadSet& heads, const std::string& where) {
  std::map<AttentionKind, std::map<int64_t, int64_t>> num_heads_by_layer;  // heads on `side`, by kind and layer
  for (const AttentionLayer* layer : model.attention_layers())
    if (heads.count(layer->layer_spec().kind) > 0)
      num_heads_by_layer[layer->layer_spec().kind][layer->layer_spec().layer] = num_heads_of(*layer, side);
  const auto refuse = [&](const std::string& expected, AttentionKind kind, const Head& head, const char* advice) {
    refuse_usage(where, expected, str(name_of(kind), ", layer ", head.layer, ", head ", head.head), advice);
  };
  for (const auto& [kind, kind_heads] : heads) {
    const auto& layers = num_heads_by_layer[kind];
    for (const Head& head : kind_heads) {
      if (layers.empty()) refuse("a kind of attention that the model has", kind, head, "choose heads of such a kind");
      const auto layer = layers.find(head.layer);
      if (layer == layers.end())
        refuse(str("a layer from 0 to ", layers.rbegin()->first), kind, head, "choose a layer in this range");
      if (head.head < 0 || head.head >= layer->second)
        refuse(layer->second > 0 ? str("a head from 0 to ", layer->second - 1, " in layer ", head.layer)
                                 : "a layer whose heads are not all pruned",
               kind, head, layer->second > 0 ? "choose a head in this range" : "choose heads of another layer");
    }
  }
}

InterceptorGuard::InterceptorGuard(model::LanguageModel& model) : layers_(model.attention_layers()) {
  for (const AttentionLayer* layer : layers_) saved_interceptors_.push_back(layer->interceptor());
}

InterceptorGuard::~InterceptorGuard() {
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i]->set_interceptor(saved_interceptors_[i]);
}

HeadMaskGuard::HeadMaskGuard(model::LanguageModel& model, SideSelection side, const HeadSet& heads)
    : interceptor_guard_(model) {
  check_heads(model, side, heads, "--heads");
  for (AttentionLayer* layer : model.attention_layers()) {
    const auto masked_heads = heads_of_layer(heads, *layer);
    if (masked_heads.empty()) continue;
    HeadScales scales = masked_scales(*layer, side, {masked_heads}, model.parameters().device());
    for (HeadSide s : kSides)
      if (at::Tensor& scale = scales.scales_of(s); scale.defined()) scale = scale[0];
    set_head_scales(*layer, scales);
  }
}

std::vector<task::NllSum> score_ablations(const AnalysisInput& input, const std::vector<HeadSet>& masked_sets,
                                          int64_t max_tokens_per_pass) {
  c10::NoGradGuard no_gradient;
  all_heads(input.model, input.side, input.kinds);  // throws if a layer has no separate heads on input.side
  for (const HeadSet& heads : masked_sets) check_heads(input.model, input.side, heads, "--heads");
  // Models are sorted by the first layer in which they mask heads, so that the models of one forward pass have many
  // unmasked layers in common, which are computed once.
  const auto layers = input.model.attention_layers();
  const auto first_masked_layer = [&](size_t i) {
    size_t layer = 0;
    while (layer < layers.size() && heads_of_layer(masked_sets[i], *layers[layer]).empty()) ++layer;
    return layer;
  };
  std::vector<size_t> order(masked_sets.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return first_masked_layer(a) < first_masked_layer(b); });
  const auto num_models = static_cast<int64_t>(order.size());
  AnalysisInput text_pass_input = input;
  text_pass_input.scoring_options = input.corpus.resolve(input.scoring_options, input.model);
  const int64_t max_models =
      std::max<int64_t>(1, max_tokens_per_pass / text_pass_input.scoring_options.sequence_length);
  const int64_t num_text_passes = std::max<int64_t>(1, ceil_div(num_models, max_models));
  std::vector<task::NllSum> sums(masked_sets.size());
  for (int64_t text_pass = 0; text_pass < num_text_passes && stop_signal() == 0; ++text_pass) {
    std::vector<HeadSet> text_pass_sets;
    std::vector<task::NllSum*> text_pass_sums;
    for (int64_t i = text_pass * num_models / num_text_passes; i < (text_pass + 1) * num_models / num_text_passes;
         ++i) {
      text_pass_sets.push_back(masked_sets[order[static_cast<size_t>(i)]]);
      text_pass_sums.push_back(&sums[order[static_cast<size_t>(i)]]);
    }
    if (text_pass_sets.empty()) break;
    if (input.progress)
      text_pass_input.progress = [&input, text_pass, num_text_passes](int64_t num_completed, int64_t total) {
        input.progress(text_pass * total + num_completed, num_text_passes * total);
      };
    score_in_one_text_pass(text_pass_input, text_pass_sets, text_pass_sums, max_tokens_per_pass);
  }
  return sums;
}

double nll_per_token(const task::NllSum& sum) {
  return sum.nll / static_cast<double>(std::max<int64_t>(1, sum.num_tokens));
}

LossValue loss_value_of(const task::Task& task) {
  return task.traits().has_perplexity ? LossValue::perplexity : LossValue::mean_loss;
}

const char* name_of(LossValue loss_value) { return loss_value == LossValue::perplexity ? "perplexity" : "loss"; }

double value_of(LossValue loss_value, const task::NllSum& score) {
  const double mean_loss = nll_per_token(score);
  return loss_value == LossValue::perplexity ? std::exp(mean_loss) : mean_loss;
}

double sample_deviation(const std::vector<double>& values) {
  if (values.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / (n - 1));
}

}  // namespace mh::analysis
