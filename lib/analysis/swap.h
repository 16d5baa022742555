// Swaps heads of a model in place. The code depends only on the traits of parameters (nn::ParameterTraits) and not on
// particular stages.
//
// A swap exchanges the rows of two heads in the query, key and value projections and in their biases (head rotation by
// Azov & Landau). W^O, the output bias and layer norms do not move, so that the output of each head now goes through
// the other head's block of W^O. Options also move the head's columns of W^O, and the head's rows or columns in the
// parameters of stages: gates, alphas, mixing matrices, relative projections and so on. Parameters that layers share
// (such as shared relative biases) belong to no layer and do not move. With both options (SwapOptions) and without
// shared parameters, swapping two heads of one layer changes nothing but their order. The optimiser's moments move only
// if the caller passes them as extra tensors.
//
// The options of a layer do not move, such as its window, soft cap, scale, sink, rotary positions, position bias, mixer
// and combiners: a head that comes from another layer then has the values of its new layer
// (attention::AttentionLayer::differing_head_options(), about which mh-swap warns), and with ALiBi also a head that
// moves within a layer has the slope of its new index.
//
// In a grouped layer (grouped-query attention), the keys and values of a group do not move: the query rows of a head
// then attend to the keys and values of the group of their new head. SwapOptions::group_size swaps whole groups
// instead.
//
// check_swap() refuses a layer in which a parameter that would move has a number of heads other than the number of
// value heads.
//
// Entry (i, j) of a matrix between heads moves with the heads i and j if both heads come from the same layer; otherwise
// the entry stays. All pairs are swapped at once, so that their order does not matter and a second swap undoes the
// first.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/heads.h"

namespace mh::analysis {

struct SwapOptions {
  bool moves_output = false;  // whether a swap moves the heads' columns of W^O
  bool moves_stages = false;  // whether a swap moves the heads' parts of the parameters of stages
  // Number of consecutive heads that swap together with their key/value head; a pair then consists of two groups, with
  // their indices in place of heads. 0: heads swap, and key/value heads of groups do not move.
  int64_t group_size = 0;
  int64_t unit_size() const { return group_size > 0 ? group_size : 1; }  // number of heads that swap together
};

// Returns tensors that move together with a parameter and have its shape, such as the optimiser's moments of the
// parameter.
using ExtraTensors = std::function<std::vector<at::Tensor>(const nn::Parameter&)>;

// Throws Error(usage) that names the option `where` if the model lacks a head, if a head occurs twice, or if the two
// layers of a pair differ in the size of their heads or in the parameters that would move.
void check_swap(nn::ParameterList& parameters, const std::vector<HeadPair>& pairs, const SwapOptions& options,
                const std::string& where);

// Swaps the pairs. Throws like check_swap(). A second call with the same pairs restores all values bit for bit.
void swap_heads(nn::ParameterList& parameters, const std::vector<HeadPair>& pairs, const SwapOptions& options,
                const std::string& where, const ExtraTensors& extra_tensors = {});

}  // namespace mh::analysis
