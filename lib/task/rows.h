// How a text becomes rows of tokens to predict, in training and in evaluation.
//
// Token i is predicted from the tokens before it in its row (and in the memory behind it) and token i - 1; the text's
// first from an end-of-line symbol.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace mh::io {
class ShardFile;
}

namespace mh::task {

// A text to read from; what it was made of must outlive it.
struct Text {
  int64_t tokens = 0;
  int32_t end_of_line = 0;
  std::function<void(int64_t first, std::span<int32_t> out)> read;  // tokens [first, first + out.size())
};
Text text_of(const io::ShardFile& shard, int32_t end_of_line);
Text text_of(const std::vector<int32_t>& tokens, int32_t end_of_line);

// Tokens [first, first + length) of a text as the targets of a row, of which those from `scored` on count.
struct Row {
  int64_t first = 0, length = 0, scored = 0;
};

struct Batch {
  at::Tensor inputs;   // (B, n) int64
  at::Tensor targets;  // (B, n) int64, -1 where a row is short and where it does not count
  at::Tensor lengths;  // (B) int64, positions of each row that are no filling; on the CPU, as the others
};

// Rows of at most `width` tokens, filled up behind their end, where a causal model does not look.
Batch load_rows(const Text& text, const std::vector<Row>& rows, int64_t width);

// a / b, rounded up.
inline int64_t divided_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

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

}  // namespace mh::task
