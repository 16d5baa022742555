// Head ablation: scores a model with some heads masked, that is, multiplied by 0, without rescaling the other heads and
// without further training (Michel et al. 2019; the tables of the Skip Cross-Head paper). `SideSelection` selects the
// tensors of a masked head that are multiplied by 0:
//
//   whole   the head output Z_i before the combiner; also the head's input to the mixer, if the layer has a mixer, and
//           its block of the output projection's input, if the combiner mixes heads
//   score, value, output   only the tensor of this head side (attention::HeadSide)
//
// Several ablated models are scored in one pass over the text. The batch rows are repeated in the first layer in which
// two models mask different heads. Earlier layers are computed once for all models, and so is the part of that layer
// before the first masked tensor (attention::Variants). A Transformer-XL memory needs no extra handling, since the
// batch rows of a layer belong to the same models in every segment.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "analysis/analysis_input.h"
#include "analysis/heads.h"
#include "attention/layer.h"

namespace mh::task {
class Task;
}

namespace mh::analysis {

// Returns the number of heads of a layer on this side; 0 if all heads of the layer were pruned. Throws Error(usage)
// that names the option --side if the layer has no separate heads on this side, or if `side` is `whole` and the layer
// has different numbers of score, value and output heads.
int64_t num_heads_of(const attention::AttentionLayer& layer, SideSelection side);
// Returns all heads of the layers whose kind of attention is in `kinds`, or of all layers if `kinds` is empty. Throws
// like num_heads_of(), for the selected layers only.
HeadSet all_heads(model::LanguageModel& model, SideSelection side, const Kinds& kinds = {});
// Throws Error(usage) that names the option `where` if the model lacks one of the heads. Throws like num_heads_of() for
// the layers of the kinds in `heads`.
void check_heads(model::LanguageModel& model, SideSelection side, const HeadSet& heads, const std::string& where);

// Saves the interceptors of all attention layers in the constructor, and restores them in the destructor.
class InterceptorGuard {
 public:
  explicit InterceptorGuard(model::LanguageModel& model);
  ~InterceptorGuard();
  InterceptorGuard(const InterceptorGuard&) = delete;
  InterceptorGuard& operator=(const InterceptorGuard&) = delete;

 private:
  std::vector<attention::AttentionLayer*> layers_;
  std::vector<std::shared_ptr<attention::Interceptor>> saved_interceptors_;
};

// Masks `heads` until the destructor runs; heads that were masked before stay masked. Throws like check_heads().
class HeadMaskGuard {
 public:
  HeadMaskGuard(model::LanguageModel& model, SideSelection side, const HeadSet& heads);

 private:
  InterceptorGuard interceptor_guard_;
};

// Default limit on the tokens of a forward pass, counted in the last layer, where the batch rows are repeated for all
// models. With 8 layers of width 256 and blocks of 256 tokens, limits of 8192 and 16384 take the same time and 4096
// takes 10% longer; the activations of 16384 tokens take about 0.3 GB.
constexpr int64_t kMaxTokensPerPass = 16384;

// Returns, for each set of heads in `masked_sets`, the score of the model with this set masked in addition to the heads
// that are already masked. Each score equals the score of a separate evaluation except for rounding. Throws
// Error(usage) like num_heads_of() and check_heads(). If a signal asks the process to stop, returns early; the score of
// a model then covers only the text that was evaluated, and is zero for a model without any evaluated text.
std::vector<task::NllSum> score_ablations(const AnalysisInput& input, const std::vector<HeadSet>& masked_sets,
                                          int64_t max_tokens_per_pass = kMaxTokensPerPass);

// Returns the cross-entropy per scored token, nats; 0 if no token was scored.
double nll_per_token(const task::NllSum& score);

// The value of a model's loss that analyses compare: the perplexity, or, for a task without a perplexity
// (task::TaskTraits::has_perplexity), the mean loss per scored target.
enum class LossValue { perplexity, mean_loss };
// Returns the value that analyses of a task compare.
LossValue loss_value_of(const task::Task& task);
// Returns the name of this value, and of its column in tables: "perplexity" or "loss".
const char* name_of(LossValue loss_value);
// Returns this value of `score`.
double value_of(LossValue loss_value, const task::NllSum& score);

// Returns the sample standard deviation (ddof 1); NaN for fewer than two values.
double sample_deviation(const std::vector<double>& values);

}  // namespace mh::analysis
