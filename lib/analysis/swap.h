// Swaps heads of a model in place. The code depends only on the traits of parameters (nn::Traits) and not on particular
// stages.
//
// A swap moves the head's rows of the query, key and value projections and of their biases (head rotation by Azov &
// Landau). W^O, the output bias and layer norms do not move, so that the head acts in another place. Options also move
// the head's columns of W^O, and its part of the parameters of stages: rows of gates, alphas, mixing matrices, relative
// projections and the like. With both options, swapping two heads of one layer changes nothing but their order.
// Parameters that layers share (such as shared relative biases) belong to no layer and do not move. The optimiser's
// moments move only if the caller passes them as extra tensors.
//
// check_swap() refuses layers where a parameter that would move has another number of heads than there are value heads.
//
// Entry (i, j) of a matrix between heads moves with its two heads if both come from the same layer; otherwise the entry
// stays. All pairs are swapped at once, so that their order does not matter and a second swap undoes the first.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/heads.h"

namespace mh::analysis {

struct HeadPair {
  AttentionKind kind = AttentionKind::decoder_self;
  Head a, b;
};
std::string to_string(const HeadPair& pair);  // "decoder.self:1.0-5.3": head 0 of layer 1, head 3 of layer 5
std::vector<std::string> to_strings(const std::vector<HeadPair>& pairs);
// Parses the format of to_string(). Throws Error(usage) about the option `where` for other texts.
HeadPair parse_pair(const std::string& text, const std::string& where);

struct SwapOptions {
  bool output = false;  // moves the columns of W^O
  bool stages = false;  // moves the parameters of stages
};

// Returns tensors with the shape of a parameter that move with it, such as the optimiser's moments.
using ExtraTensors = std::function<std::vector<at::Tensor>(const nn::Parameter&)>;

// Throws Error(usage) about the option `where` if the model lacks a head, if a head occurs twice, and if the two layers
// of a pair differ in the size of their heads or in the parameters that would move.
void check_swap(nn::ParameterList& parameters, const std::vector<HeadPair>& pairs, const SwapOptions& options,
                const std::string& where);

// Swaps the pairs. Throws like check_swap(). A second call with the same pairs restores all values bit for bit.
void swap_heads(nn::ParameterList& parameters, const std::vector<HeadPair>& pairs, const SwapOptions& options,
                const std::string& where, const ExtraTensors& extra_tensors = {});

}  // namespace mh::analysis
