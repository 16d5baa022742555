// Head rotation (Azov & Landau): chooses the pairs of heads to swap, and the epochs of the swaps. The functions have no
// side effects; training and mh-swap use them.
//
//   hard      ranks all heads of a kind of attention together and pairs the most important head with the least
//             important head, the second most important with the second least important, …, k pairs in total
//   soft      pairs layer i with layer L - 1 - i, for i = 0 … t_max - 1, and swaps the k least important heads of one
//             layer with the k least important heads of the other layer, rank by rank. t_max is at most ⌊L/2⌋;
//             t_max = 0 means ⌊L/2⌋. With an odd number of layers the middle layer has no partner
//   in-layer  ranks the heads of each layer and pairs them within the layer as `hard` does, k pairs in each layer. The
//             paper's example swaps the first heads of a layer with its last heads, whatever their importance; in
//             training, the mode manual does this
//   random    k disjoint pairs, drawn uniformly
//
// `released` is the variant of `soft` in the published code: in each of the k outermost pairs of layers, the 4 least
// important heads of the first layer are swapped with the heads of the same indices in the second layer. The paper's
// pseudocode of `soft` differs: it pairs layer i, counted from 1, with layer L - i instead of L + 1 - i, and limits k
// instead of t_max to ⌊L/2⌋.
#pragma once

#include <array>
#include <functional>

#include "analysis/measure.h"
#include "analysis/swap.h"
#include "base/random.h"

namespace mh::analysis {

enum class PairSelection { hard, soft, released, in_layer, random };
struct PairSelectionName {
  PairSelection selection;
  const char* name;
  const char* summary;  // for the help of mh-swap --mode
  const char* meaning;  // for `mh-train --list selections` and mh-swap(1)
};
inline constexpr std::array kPairSelections{
    PairSelectionName{PairSelection::hard, "hard", "the k most important heads with the k least important heads",
                      "One ranking of all heads of a kind: the most important head with the least important one, the "
                      "second with the second to last, and so on, k pairs."},
    PairSelectionName{
        PairSelection::soft, "soft",
        "in each pair of opposite layers, such as the first and the last, the k least important heads of both",
        "Layer i with layer L - 1 - i, for i from 0 to t_max - 1: the k least important heads of each layer, "
        "rank by rank."},
    PairSelectionName{PairSelection::released, "released",
                      "in the k outermost pairs of opposite layers, the 4 least important heads of the first layer "
                      "with the heads of the same numbers in the second, as in the released code of the method",
                      "The variant of soft in the code that its authors released: in each of the k outermost pairs of "
                      "opposite layers, the 4 least important heads of the first layer, each with the head of the same "
                      "number in the other layer."},
    PairSelectionName{PairSelection::in_layer, "in-layer",
                      "in each layer, the k most important heads with the k least important heads",
                      "As hard, with a ranking and k pairs for each layer, so that heads stay in their layer."},
    PairSelectionName{PairSelection::random, "random", "k random pairs",
                      "Disjoint pairs of heads, k in number, drawn uniformly."}};
inline bool uses_importance(PairSelection selection) { return selection != PairSelection::random; }

constexpr int64_t kDefaultK = 3;  // default of k in mh-swap and in the procedure head-rotation

// Returns the largest valid k for layers with these head counts; 0 if no k is valid.
int64_t largest_k(PairSelection selection, const std::vector<int64_t>& head_counts);

// Returns the pairs of heads that the selection in the function's name swaps. Of heads with equal scores, the head in
// the lower layer, then the head with the lower index, is the less important one. k must be at most largest_k().
std::vector<HeadPair> pair_hard(AttentionKind kind, const LayerScores& scores, int64_t k);
std::vector<HeadPair> pair_soft(AttentionKind kind, const LayerScores& scores, int64_t k, int64_t t_max);
std::vector<HeadPair> pair_as_in_released_code(AttentionKind kind, const LayerScores& scores, int64_t k);
std::vector<HeadPair> pair_in_layer(AttentionKind kind, const LayerScores& scores, int64_t k);
std::vector<HeadPair> pair_random(AttentionKind kind, const std::vector<int64_t>& head_counts, int64_t k,
                                  RandomSequence& random);

// Calls pair_hard(), pair_soft(), pair_as_in_released_code() or pair_in_layer(); only pair_soft() uses `t_max`.
std::vector<HeadPair> pair_ranked(PairSelection selection, AttentionKind kind, const LayerScores& scores, int64_t k,
                                  int64_t t_max);

// Returns the number of value heads of each layer, for each kind of attention in `kinds`, or for all kinds if `kinds`
// is empty. `key`: returns the user's name of the option "kind", "mode", "k" or "t_max". Throws Error(usage) that names
// this option if the model lacks a kind, if a kind has too few layers or heads for the selection, if `k` or `t_max` is
// too large, if `t_max` is set for a selection other than `soft`, or if layers differ in the parameters that a swap
// would move.
std::map<AttentionKind, std::vector<int64_t>> head_counts_for_pairing(
    nn::ParameterList& parameters, PairSelection selection, int64_t k, int64_t t_max,
    const std::vector<std::string>& kinds, const SwapOptions& options,
    const std::function<std::string(const char*)>& key);

// The schedule of swaps in training; epochs are counted from 1. Heads are swapped before epoch `start_epoch` and
// swapped back `num_swapped_epochs` epochs later. After `num_rest_epochs` epochs without swapped heads, new pairs are
// swapped, and so on. No heads are swapped after epoch `end_epoch` has begun; heads that are still swapped in epoch
// `end_epoch` are swapped back before the next epoch.
struct RotationSchedule {
  int64_t start_epoch = 2, num_swapped_epochs = 4, num_rest_epochs = 1, end_epoch = 20;
  enum class Action { none, swap, undo };
  // Returns the action before `epoch`. `swap_epoch`: the epoch before which heads were last swapped; 0: never.
  // `is_swapped`: whether these heads are still swapped.
  Action action_before(int64_t epoch, int64_t swap_epoch, bool is_swapped) const;
};

}  // namespace mh::analysis
