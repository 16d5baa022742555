// Encodes documents to a shard of sentences with several threads, in the order of the lines.
#pragma once

#include <cstdint>

#include "io/shard.h"
#include "text/text_batches.h"
#include "text/tokenizer.h"

namespace mh::text {

struct DocumentSummary {
  uint64_t num_documents = 0;
  uint64_t num_sentences = 0;
  uint64_t num_tokens = 0;
  uint64_t num_unknown = 0;  // number of unknown tokens among `num_tokens`
  // Number of skipped lines that have text but no token, such as lines of control characters.
  uint64_t num_lines_without_tokens = 0;
  uint64_t num_bytes = 0;  // size of the text
  double seconds = 0;
};

// Encodes each line as a sentence; a line of white space or the end of a file ends a document. `text` must return whole
// lines (TextBatches without `find_split`). Throws Error(input) for text that is not UTF-8 or contains a NUL byte.
DocumentSummary encode_documents(TextBatches& text, const Tokenizer& tokenizer, int num_threads,
                                 io::ShardWriter& writer);

}  // namespace mh::text
