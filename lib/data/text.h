// A text as a corpus, and the ways of cutting it into rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/corpus.h"

namespace mh::data {

// What it reads from must outlive it and what is made of it.
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

// Returns rows of at most `width` tokens, padded after their end, where a causal model does not look.
Batch load_rows(const Text& text, const std::vector<Row>& rows, int64_t width);

// A text cut into contiguous streams in its own order, of lengths that differ by at most one (the longer ones first),
// and each stream into segments of `block` tokens. Every token is in exactly one segment.
class Streams {
 public:
  Streams(int64_t tokens, int64_t count, int64_t block) : tokens_(tokens), count_(count), block_(block) {}
  int64_t count() const { return count_; }
  int64_t segments() const { return divided_up(divided_up(tokens_, count_), block_); }
  // Tokens in the longest row of a segment: `block`, but for the last.
  int64_t width(int64_t segment) const { return row(0, segment).length; }
  // Of length 0 where the stream has ended, one token before the others.
  Row row(int64_t stream, int64_t segment) const;

 private:
  int64_t tokens_, count_, block_;
};

// Cuts `tokens` so that every one is scored exactly once: chunks of block - context scored tokens, each with the
// `context` tokens before it (fewer at the start). Error(usage) unless context < block.
std::vector<Row> make_chunks(int64_t tokens, int64_t block, int64_t context);

}  // namespace mh::data
