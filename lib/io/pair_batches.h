// Pairs of lines from two files of a side each, or from one of tab-separated pairs, as paste(1) writes them.
#pragma once

#include "io/text_batches.h"

namespace mh::io {

// As many segments in either: segment i of both are a pair, and each is a whole line.
struct PairBatch {
  TextBatch source, target;
};

// Error(input), with the file and the line, for sides of different length, a line of pairs that has not one tab, and
// what TextBatches refuses.
class PairBatches {
 public:
  // One file or two; the text is checked by check_text, as always.
  PairBatches(const std::vector<std::string>& files, LineEnds ends);
  bool next(PairBatch& batch);
  uint64_t expected_bytes() const;  // as TextBatches
  uint64_t normalised() const { return first_.normalised() + second_.normalised(); }

 private:
  bool divide_at_tabs(PairBatch& batch);
  bool next_of_both(PairBatch& batch);
  bool have_second();
  [[noreturn]] void part(uint64_t common, uint64_t of_first, uint64_t of_second);

  std::vector<std::string> files_;
  TextBatches first_, second_;
  TextBatch held_;  // of the second file; `at_` is the next segment of it
  size_t at_ = 0;
  uint64_t lines_ = 0;  // pairs so far
};

}  // namespace mh::io
