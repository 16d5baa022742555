// Decoders of tokenizer.json, which convert the pieces of tokens to text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/json_node.h"

namespace mh::text {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Rewrites the list of pieces; the text is their concatenation.
  virtual void apply(std::vector<std::string>& pieces) const = 0;
};

using Decoders = std::vector<std::unique_ptr<Decoder>>;

// Returns the decoders of the entry `decoder` in order. Without an entry, decoding puts spaces between pieces. Throws
// Error(input) for a type or a setting that is not supported.
Decoders parse_decoders(const JsonNode& node);

}  // namespace mh::text
