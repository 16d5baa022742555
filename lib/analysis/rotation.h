// Which heads the rotation of heads (Azov & Landau) exchanges, and when: pure functions, for training and for tools.
//
//   hard    all heads of a kind in one ranking: the most important with the least, the second with the second last, …
//   soft    layer i with layer L - 1 - i, for i = 0 … t_max - 1: the k least important heads of each, rank by rank.
//           t_max is at most ⌊L/2⌋; t_max = 0 means ⌊L/2⌋. The middle layer of an odd number has no partner
//   random  disjoint pairs, drawn evenly
//
// `released` is soft as the published code does it: of k pairs of layers, the 4 heads that are least important in the
// first of the two, each with the head of the same number in the other. The paper's pseudocode pairs L_i with L_(N-i)
// counted from 1, an index that is off by one, and bounds k by ⌊N_layers/2⌋, which is the bound of t_max.
#pragma once

#include <functional>

#include "analysis/measure.h"
#include "analysis/swap.h"
#include "base/random.h"

namespace mh::analysis {

enum class Selection { hard, soft, released, random };
inline bool ranks(Selection selection) { return selection != Selection::random; }

// The largest k for layers of so many heads; 0 where none does.
int64_t most_pairs(Selection selection, const std::vector<int64_t>& heads);

// Of equal scores the lower layer, then the lower head, is the less important one. k as most_pairs() says.
std::vector<HeadPair> pair_hard(Kind kind, const LayerScores& scores, int64_t k);
std::vector<HeadPair> pair_soft(Kind kind, const LayerScores& scores, int64_t k, int64_t t_max);
std::vector<HeadPair> pair_released(Kind kind, const LayerScores& scores, int64_t k);
std::vector<HeadPair> pair_random(Kind kind, const std::vector<int64_t>& heads, int64_t k, RandomSequence& random);

// hard, soft (with t_max) or released.
std::vector<HeadPair> pair_ranked(Selection selection, Kind kind, const LayerScores& scores, int64_t k, int64_t t_max);

// Heads by layer of the kinds that take part; none named: of all that the model has. Error(usage), about the options
// key("kind"), key("k") and key("t_max"), for a kind that the model lacks, more pairs than it can have and a t_max of
// another selection than soft, and where layers differ in what would change places.
std::map<Kind, std::vector<int64_t>> heads_to_pair(nn::ParameterList& parameters, Selection selection, int64_t k,
                                                   int64_t t_max, const std::vector<std::string>& kinds,
                                                   const SwapOptions& options,
                                                   const std::function<std::string(const char*)>& key);

// Epochs are counted from 1. Heads are exchanged before epoch `start`, put back before epoch `start + frequency`, and
// after `rest` epochs in their own places others are exchanged, up to before epoch `end`; then what is exchanged is put
// back.
struct RotationSchedule {
  int64_t start = 2, frequency = 4, rest = 1, end = 20;
  enum class Act { none, swap, undo };
  // Before an epoch. `swapped_at`: the epoch before which heads were last exchanged, 0: none yet. `active`: they still
  // are.
  Act before(int64_t epoch, int64_t swapped_at, bool active) const;
};

}  // namespace mh::analysis
