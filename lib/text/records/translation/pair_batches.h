// Pairs of lines from two files, one for each side, or from one file of tab-separated pairs, as paste(1) writes them.
#pragma once

#include "text/text_batches.h"

namespace mh::text {

// Two batches with equally many segments: segment i of both are a pair, and each is a whole line.
struct PairBatch {
  TextBatch source, target;
};

// Reads pairs. Throws Error(input), with the file and the line, for sides of different length, a line of pairs without
// exactly one tab, and the errors of TextBatches, after the pairs before it are returned.
class PairBatches {
 public:
  // One file or two; the caller checks the text with check_text().
  PairBatches(const std::vector<std::string>& files, LineEnds ends, ReadSizes sizes = {});
  bool next(PairBatch& batch);
  uint64_t expected_bytes() const;  // as TextBatches
  uint64_t normalised() const { return first_.normalised() + second_.normalised(); }
  uint64_t byte_order_marks() const { return first_.byte_order_marks() + second_.byte_order_marks(); }

 private:
  void divide_at_tabs(PairBatch& batch);
  void add_targets(PairBatch& batch);
  void refuse_more_targets();
  bool have_second();
  [[noreturn]] void part(uint64_t common, uint64_t of_first, uint64_t of_second);

  std::vector<std::string> files_;
  TextBatches first_, second_;
  TextBatch held_;  // batch of the second file; `at_` is its next segment
  size_t at_ = 0;
  uint64_t lines_ = 0;        // pairs so far
  std::exception_ptr error_;  // found after the pairs of the last batch
};

}  // namespace mh::text
