// Encodes text to a language-model shard, in parallel and in order.
#pragma once

#include <cstdint>

#include "io/shard.h"
#include "text/text_batches.h"
#include "text/tokenizer.h"

namespace mh::text {

struct EncodeSummary {
  uint64_t lines = 0;
  uint64_t tokens = 0;
  uint64_t unknown = 0;
  uint64_t bytes = 0;
  double seconds = 0;
};

// Writes every line as a record that ends in the end-of-line token (byte vocabularies: only if the line has its line
// end, so that no byte is added). Holds a few batches, whatever the length of the text.
EncodeSummary encode_lines(TextBatches& text, const Tokenizer& tokenizer, int threads, io::ShardWriter& writer);

}  // namespace mh::text
