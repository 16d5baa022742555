// Encodes text to a language-model shard with several threads, in the order of the lines or documents.
#pragma once

#include <cstdint>

#include "io/shard.h"
#include "text/records/language_modelling/document_batches.h"
#include "text/text_batches.h"
#include "text/tokenizer.h"

namespace mh::text {

struct LineSummary {
  uint64_t num_lines = 0;  // number of lines, or of documents
  uint64_t num_tokens = 0;
  uint64_t num_unknown = 0;  // number of unknown tokens among `num_tokens`
  uint64_t num_bytes = 0;    // bytes read
  double seconds = 0;
};

// Writes every line as a record that ends in the end-of-line token (byte vocabularies: only if the line ends in a line
// feed, so that no byte is added). Memory use is a few batches per thread, independent of the length of the text.
LineSummary encode_lines(TextBatches& text, const Tokenizer& tokenizer, int num_threads, io::ShardWriter& writer);
// Writes every document as a record that ends in the end-of-line token. Requires tokenizer.encodes_line_feeds(). Memory
// use is as for encode_lines().
LineSummary encode_lm_documents(DocumentBatches& documents, const Tokenizer& tokenizer, int num_threads,
                                io::ShardWriter& writer);

// Returns whether the records of a language-model shard are documents rather than lines. Shards of earlier versions do
// not state the unit and have lines.
bool has_documents(const io::ShardHeader& header);

}  // namespace mh::text
