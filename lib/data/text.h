// A text as a corpus, and the ways of splitting it into rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/corpus.h"

namespace mh::data {

// The source of its tokens must outlive the text and all rows made of it.
class Text : public Corpus {
 public:
  using Read = std::function<void(int64_t first, std::span<int32_t> out)>;  // tokens [first, first + out.size())
  Text(int64_t count, int32_t end, Read from) : tokens(count), end_of_line(end), read(std::move(from)) {}

  int64_t targets() const override { return tokens; }
  ScoringOptions resolve(const ScoringOptions& options, model::LanguageModel& model) const override;
  MiniBatches mini_batches(const ScoringOptions& resolved) const override;
  std::unique_ptr<Batches> batches(const BatchOptions& options, int64_t seed) const override;

  int64_t tokens;
  int32_t end_of_line;
  Read read;
};

// Returns rows of `width` tokens, padded at their end, which a causal model does not see.
Batch load_rows(const Text& text, const std::vector<Row>& rows, int64_t width);

// A text split into contiguous streams in its own order, whose lengths differ by at most one (longer ones first), and
// each stream into segments of `block` tokens. Every token is in exactly one segment.
class Streams {
 public:
  Streams(int64_t tokens, int64_t count, int64_t block) : tokens_(tokens), count_(count), block_(block) {}
  int64_t count() const { return count_; }
  int64_t segments() const { return divided_up(divided_up(tokens_, count_), block_); }
  // Returns the tokens in the longest row of a segment: `block`, except in the last.
  int64_t width(int64_t segment) const { return row(0, segment).length; }
  // Returns a row, of length 0 if the stream has ended, one token before the others.
  Row row(int64_t stream, int64_t segment) const;

 private:
  int64_t tokens_, count_, block_;
};

// Splits `tokens` into chunks of block - context scored tokens, each with the `context` tokens before it (fewer at the
// start), so that every token is scored exactly once. Throws Error(usage) unless context < block.
std::vector<Row> make_chunks(int64_t tokens, int64_t block, int64_t context);

}  // namespace mh::data
