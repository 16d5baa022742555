// Samples of the blocks of a text, or of the rows of a corpus, uniform without replacement.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/scoring_options.h"

namespace mh::data {

// Returns `count` different numbers of 0 … all - 1, in ascending order.
std::vector<int64_t> draw_sample(int64_t count, int64_t all, int64_t seed);

// Returns the number of blocks of a sample of `all` blocks. Throws Error(usage) about `what`, with the advice `next`,
// if the sample is larger and must not be reduced.
int64_t sample_size(const Sample& sample, int64_t all, const std::string& what, const char* next);

}  // namespace mh::data
