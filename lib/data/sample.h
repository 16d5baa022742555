// Some of a text's blocks, or of the rows of a corpus, drawn evenly without repeats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/scoring_options.h"

namespace mh::data {

// Returns `count` different numbers of 0 ... all - 1 in ascending order.
std::vector<int64_t> draw_sample(int64_t count, int64_t all, int64_t seed);

// Returns the number of blocks of a sample of `all` blocks. Throws Error(usage), of `what` with `next`, where the
// sample has more and must not be smaller.
int64_t sample_size(const Sample& sample, int64_t all, const std::string& what, const char* next);

}  // namespace mh::data
