// A checkpoint whose heads change places: which pairs, the moments that go with them, and the new file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/measure.h"
#include "analysis/rotation.h"
#include "base/file.h"
#include "io/checkpoint.h"
#include "nn/parameter.h"

namespace mh::analysis {

// "hard", "soft", "released" or "random"; random for any other word.
Selection selection_named(const std::string& name);

// How pairs are chosen (rotation.h). `k` and `t_max`: as heads_to_pair() has checked them.
struct PairOptions {
  Selection selection = Selection::random;
  int64_t k = 3;
  int64_t t_max = 0;
  uint64_t seed = 1;  // of random pairs: each kind of attention draws from a stream of its own
};

// Pairs of each kind of `heads`, which heads_to_pair() gives. `scores`: of each of these kinds; random needs none.
std::vector<HeadPair> choose_pairs(const PairOptions& options, const std::map<Kind, std::vector<int64_t>>& heads,
                                   const std::map<Kind, LayerScores>& scores);

// The moments that the optimiser of a training state keeps of each parameter.
class OptimizerMoments {
 public:
  // Reads them to the CPU as fp32, in the shape of their parameter. Error(usage), about the option `where`, for a
  // checkpoint without any.
  OptimizerMoments(const io::Checkpoint& checkpoint, const nn::ParameterList& parameters, const std::string& where);
  // The tensors of one parameter, which share memory with all().
  std::vector<at::Tensor> of(const nn::Parameter& parameter) const;
  const std::map<std::string, at::Tensor>& all() const { return tensors_; }  // by name

 private:
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, std::vector<std::string>> names_;  // by parameter
};

// Writes the checkpoint with the values of `parameters` and `moments` (by name) in place of its own; all other bytes,
// the order of tensors and the metadata stay. Closes the sink.
void write_again(ByteSink& sink, const io::Checkpoint& checkpoint, nn::ParameterList& parameters,
                 const std::map<std::string, at::Tensor>& moments);

}  // namespace mh::analysis
