// Head ablation: scores a model while some heads are masked, that is, multiplied by 0, without rescaling the other
// heads and without further training (Michel et al. 2019; the tables of the Skip Cross-Head paper). The side of a head
// says which of its tensors are masked:
//
//   whole   the head output Z_i before the combiner; also the head's input to the mixer, if the layer has a mixer, and
//           its block of the output projection's input, if the combiner mixes heads
//   score, value, output   only the tensor of this side (attention::HeadSide)
//
// Several ablated models are scored in one pass over the text. Rows are repeated in the first layer where two models
// differ, so that earlier layers run once for all of them; models that differ in the same layer also share the
// attention of that layer (attention::Variants). A Transformer-XL memory needs no extra handling, since a layer has the
// same rows in every segment.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "analysis/analysis_input.h"
#include "analysis/heads.h"
#include "attention/layer.h"

namespace mh::analysis {

// Returns the number of heads of a layer on this side; 0 if all heads of the layer were pruned. Throws Error(usage)
// about --side if the layer has no heads of its own on this side, or if `side` is whole and the head counts of the
// layer's sides differ.
int64_t heads_in(const attention::AttentionLayer& layer, Side side);
// Returns all heads of the layers of `kinds`, or of all layers if `kinds` is empty. Throws like heads_in(), for these
// layers only.
HeadSet all_heads(model::LanguageModel& model, Side side, const Kinds& kinds = {});
// Throws Error(usage) about the option `where` if the model lacks one of the heads.
void check_heads(model::LanguageModel& model, Side side, const HeadSet& heads, const std::string& where);

// Saves the interceptors of all layers; the destructor restores them.
class ScalesKept {
 public:
  explicit ScalesKept(model::LanguageModel& model);
  ~ScalesKept();
  ScalesKept(const ScalesKept&) = delete;
  ScalesKept& operator=(const ScalesKept&) = delete;

 private:
  std::vector<attention::AttentionLayer*> layers_;
  std::vector<std::shared_ptr<attention::Interceptor>> before_;
};

// Masks heads, in addition to the heads that are masked already, until it is destroyed.
class Masked {
 public:
  Masked(model::LanguageModel& model, Side side, const HeadSet& heads);

 private:
  ScalesKept kept_;
};

// Tokens per forward pass, counted in the last layers, where rows are repeated for all models. With 8 layers of width
// 256 and blocks of 256 tokens, 8192 and 16384 take the same time and 4096 takes 10% longer; the activations of 16384
// tokens take about 0.3 GB.
constexpr int64_t kTokensAtOnce = 16384;

// Returns the score of the model without each of these sets of heads, which are masked in addition to the heads that
// are masked already. The scores equal those of separate runs except for rounding. Throws Error(usage) like heads_in()
// and check_heads(). If a signal asks the process to stop, returns early; the remaining scores are zeros.
std::vector<task::Score> score_without(const AnalysisInput& input, const std::vector<HeadSet>& without,
                                       int64_t tokens_at_once = kTokensAtOnce);

// Returns the cross-entropy per scored token, nats; 0 if no token was scored.
double nll_per_token(const task::Score& score);

// Returns the sample standard deviation (ddof 1); NaN for fewer than two values.
double deviation(const std::vector<double>& values);

}  // namespace mh::analysis
