// Models without some of their heads: a head that is left out gives nothing, and all else stays as it is, without
// rescaling or further training (Michel et al. 2019; the tables of the Skip Cross-Head paper).
//
//   whole   Z_i, before the combiner; where a mixer stands before, also what the head gives to it, and where a combiner
//           mixes, also the block of the output projection that it would have made
//   score, value, output   only that (attention::HeadSide)
//
// Several models without heads are scored in one pass over the text. Rows are copied in the first layer where two of
// them differ, so that what lies below is computed once; those that differ in one layer share its attention too
// (attention::Variants). A memory follows by itself, since a layer's rows stay the same from segment to segment.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "analysis/heads.h"
#include "analysis/subject.h"
#include "attention/layer.h"

namespace mh::analysis {

// Heads of this side in a layer. Error(usage), about --side, where the layer has no such side, or where its whole heads
// have different numbers of sides. 0 where it has lost all heads.
int64_t heads_in(const attention::AttentionLayer& layer, Side side);
// All of a model's, or those of some kinds; of other kinds, sides do not matter.
HeadSet all_heads(model::LanguageModel& model, Side side, const Kinds& kinds = {});
// Error(usage), about the option `where`, for a head that the model has not.
void check_heads(model::LanguageModel& model, Side side, const HeadSet& heads, const std::string& where);

// Gives layers back the interceptors that they have now.
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

// Heads that give nothing as long as this lives, nor do those that gave nothing before.
class Masked {
 public:
  Masked(model::LanguageModel& model, Side side, const HeadSet& heads);

 private:
  ScalesKept kept_;
};

// Tokens in all rows of the upper layers at once. Of 8 layers of width 256 with blocks of 256 tokens, 8192 and 16384
// take the same time and 4096 a tenth more; activations of 16384 tokens take about 0.3 GB there.
constexpr int64_t kTokensAtOnce = 16384;

// The model's scores without each of these sets of heads (besides those that are masked): the same as of one after the
// other, but for rounding. Error(usage) as heads_in() and check_heads(). Ends early, with what it has, where a signal
// asks the process to stop.
std::vector<task::Score> score_without(const Subject& subject, const std::vector<HeadSet>& without,
                                       int64_t tokens_at_once = kTokensAtOnce);

// Cross-entropy per scored token, nats; 0 where nothing was scored.
double nll_per_token(const task::Score& score);

// Sample standard deviation (ddof 1); NaN of fewer than two numbers.
double deviation(const std::vector<double>& values);

}  // namespace mh::analysis
