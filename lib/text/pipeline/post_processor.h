// The tokens that the post-processor of tokenizer.json puts around a text, and between two texts.
#pragma once

#include <cstdint>
#include <vector>

#include "text/json_node.h"

namespace mh::text {

struct SurroundingTokens {
  std::vector<int32_t> begin, end;  // around a single text
  std::vector<int32_t> between;     // between the two texts of a pair; empty if the post-processor states none
};

// Returns the tokens of the entry `post_processor`. Throws Error(input) for a type that is not supported, for a
// template without exactly one text, and for ids outside [0, num_tokens).
SurroundingTokens parse_post_processor(const JsonNode& node, int64_t num_tokens);

}  // namespace mh::text
