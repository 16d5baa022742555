// Exchanges heads of a model in place, by what parameters say of their heads (nn::Traits): no method is known by
// name.
//
// A head's rows of the query, key and value projections and of their biases go with it (the rotation of heads by Azov
// and Landau). W^O, biases of the output and norms stay, so a head works in another place; an optimiser's moments stay
// too. On request its columns of W^O go with it, and what the layer's stages hold for it: its rows of gates, alphas,
// mixing matrices, relative projections and the like. With all of these, exchanging two heads of one layer changes
// nothing but their order. What layers share belongs to no layer and stays (relative biases, where they are shared).
//
// In a layer that has other numbers of score, value and output heads no such head is whole, and none moves.
//
// An entry of a matrix between heads goes with its two heads where they stay in one layer, and stays where they part.
// All pairs change places at once, so their order says nothing, and doing it twice is doing nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/heads.h"

namespace mh::analysis {

struct HeadPair {
  Kind kind = Kind::decoder_self;
  Head a, b;
};
std::string to_string(const HeadPair& pair);  // "decoder.self:1.0-5.3": head 0 of layer 1, head 3 of layer 5
std::vector<std::string> to_strings(const std::vector<HeadPair>& pairs);
// The pair that to_string() writes. Error(usage), about the option `where`, for anything else.
HeadPair parse_pair(const std::string& text, const std::string& where);

struct SwapOptions {
  bool output = false;  // columns of W^O
  bool stages = false;  // what stages hold for a head
};

// Tensors laid out as a parameter that go where it goes, such as moments.
using Companions = std::function<std::vector<at::Tensor>(const nn::Parameter&)>;

// Error(usage), about the option `where`, for a head that is not there, a head in two pairs or against itself, and
// layers whose heads differ in size or in what belongs to them.
void check_swap(nn::ParameterList& parameters, const std::vector<HeadPair>& pairs, const SwapOptions& options,
                const std::string& where);

// Checked as above. The same pairs again undo it, bit for bit.
void swap_heads(nn::ParameterList& parameters, const std::vector<HeadPair>& pairs, const SwapOptions& options,
                const std::string& where, const Companions& companions = {});

}  // namespace mh::analysis
