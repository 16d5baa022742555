// A corpus that consists of one text, and the functions that split a text into rows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ceil_div.h"
#include "data/corpus.h"

namespace mh::data {

// The file or memory that `read_tokens` reads from must outlive the text, its copies and their mini-batches.
class Text : public Corpus {
 public:
  // Reads tokens [first, first + out.size()) of the text.
  using TokenReader = std::function<void(int64_t first, std::span<int32_t> out)>;
  // `token_count`: number of tokens; `end_id`: id of the end-of-line token.
  Text(int64_t token_count, int32_t end_id, TokenReader reader)
      : num_tokens(token_count), end_of_line_id(end_id), read_tokens(std::move(reader)) {}

  int64_t num_targets() const override { return num_tokens; }
  ScoringOptions resolve(const ScoringOptions& options, model::LanguageModel& model) const override;
  MiniBatches mini_batches(const ScoringOptions& resolved) const override;
  std::unique_ptr<Batches> batches(const BatchOptions& options, int64_t seed) const override;
  const Text* as_text() const override { return this; }

  int64_t num_tokens;
  int32_t end_of_line_id;  // end-of-line token, the input before the first token of the text
  TokenReader read_tokens;
  int32_t begin_id = -1;  // begin token of the vocabulary (text::Tokenizer::begin_id()); -1: none
  // Number of tokens up to the end of each document, which ends with an end-of-line token; null: the text is one
  // document.
  std::shared_ptr<const std::vector<int64_t>> document_ends;
};

// Reads the first input of a row into tokens[0], and the tokens of the row after it. The first input is the begin token
// if the row starts with it, otherwise the token before the row, or the end-of-line token at the start of the text.
// `tokens` has room for row.length + 1 tokens.
void read_row(const Text& text, const Row& row, std::span<int32_t> tokens);

// Returns a batch with inputs and targets (number of rows, width), and the lengths of the rows. The targets of context
// tokens, of padding and of the token `unscored_id` (-1: none) are -1. Each row is padded at its end with end-of-line
// tokens, which a causal model ignores.
Batch load_rows(const Text& text, const std::vector<Row>& rows, int64_t width, int32_t unscored_id = -1);

// The split of a text into `num_streams` consecutive streams, and of each stream into segments of `sequence_length`
// tokens. Lengths of streams differ by at most one token, the longer streams first. Every token is in exactly one
// segment.
class Streams {
 public:
  Streams(int64_t num_tokens, int64_t num_streams, int64_t sequence_length)
      : num_tokens_(num_tokens), num_streams_(num_streams), sequence_length_(sequence_length) {}
  int64_t num_segments() const { return ceil_div(ceil_div(num_tokens_, num_streams_), sequence_length_); }
  // Returns the number of tokens of segment `segment` in the longest stream: `sequence_length`, or less in the last
  // segment.
  int64_t width(int64_t segment) const { return row(0, segment).length; }
  // Returns segment `segment` of a stream. The last segment of a stream that is one token shorter than the longest
  // stream may have length 0.
  Row row(int64_t stream, int64_t segment) const;

 private:
  int64_t num_tokens_, num_streams_, sequence_length_;
};

// Returns the first token of each row of the sentences of a text, and then the number of tokens of the text. A sentence
// ends with an end-of-line token, or with the text; a sentence of more than `sequence_length` tokens is cut into rows
// of `sequence_length` tokens. Reads the whole text.
std::vector<int64_t> sentence_row_begins(const Text& text, int64_t sequence_length);

// Splits a text of `num_tokens` tokens into rows. A row scores `sequence_length` - `context` tokens (the last row may
// score fewer) and starts with the `context` tokens before them (fewer at the start of the text), so every token is
// scored exactly once. Throws Error(usage) unless `context` is less than `sequence_length`.
std::vector<Row> make_chunks(int64_t num_tokens, int64_t sequence_length, int64_t context);

}  // namespace mh::data
