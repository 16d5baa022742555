// The steps of mh-swap before and after the swap itself (swap.h): choosing the pairs of heads, comparing the options of
// their layers, reading the optimiser's moments (whose heads can be swapped like the heads of the parameters), and
// writing the new checkpoint.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/measure.h"
#include "analysis/rotation.h"
#include "base/file.h"
#include "io/checkpoint.h"
#include "model/language_model.h"
#include "nn/parameter.h"

namespace mh::analysis {

// Returns the selection of this name in kPairSelections; PairSelection::random for any other name.
PairSelection pair_selection_named(const std::string& name);

// The rule that chooses the pairs of heads. rotation.h defines `k` and `t_max`, which head_counts_for_pairing() must
// have checked.
struct PairOptions {
  PairSelection selection = PairSelection::random;
  int64_t k = 3;
  int64_t t_max = 0;
  uint64_t seed = 1;  // seed of random pairs; each kind of attention has its own random stream
};

// Returns the pairs of heads to swap, for each kind of attention in `head_counts`.
// `head_counts`: the result of head_counts_for_pairing().
// `scores`: importance of the heads of each of these kinds; may be empty for random pairs.
std::vector<HeadPair> choose_pairs(const PairOptions& options,
                                   const std::map<AttentionKind, std::vector<int64_t>>& head_counts,
                                   const std::map<AttentionKind, LayerScores>& scores);

// Returns the layers of `pairs` whose attention options differ, with the keys of these options, as text for a warning:
// "layers 0 and 5, 1 and 4 of decoder.self in attention.window". A swap leaves these options with their layers
// (attention::AttentionLayer::differing_head_options()), so that the swapped heads compute other functions of their
// parameters. Returns "" if the options of all pairs are equal.
std::string differing_layers_text(model::LanguageModel& model, const std::vector<HeadPair>& pairs);

// The optimiser's moments of each parameter in a training state.
class OptimizerMoments {
 public:
  // Reads the moments to the CPU, fp32, with the shapes of their parameters. Throws Error(usage) that names the option
  // `where` if the checkpoint has no moments.
  OptimizerMoments(const io::Checkpoint& checkpoint, const nn::ParameterList& parameters, const std::string& where);
  // Returns the moments of a parameter, which share memory with all(); empty for a parameter without moments.
  std::vector<at::Tensor> moments_of(const nn::Parameter& parameter) const;
  const std::map<std::string, at::Tensor>& all() const { return tensors_; }  // by tensor name

 private:
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, std::vector<std::string>>
      names_by_parameter_;  // by parameter: names of its moments in tensors_
};

// Writes `checkpoint` to `sink`, with the values in `parameters` and in `moments` (by tensor name) in place of its
// parameters and moments. All other tensors, the order of the tensors and the metadata are unchanged. Closes the
// sink.
void rewrite_checkpoint(ByteSink& sink, const io::Checkpoint& checkpoint, nn::ParameterList& parameters,
                        const std::map<std::string, at::Tensor>& moments);

}  // namespace mh::analysis
