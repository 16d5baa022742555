// Reads pairs of lines from two files, one per side, or from one file of tab-separated pairs as paste(1) writes them.
#pragma once

#include "text/text_batches.h"

namespace mh::text {

// Two batches with the same number of segments, each a whole line; segment i of both is a pair.
struct PairBatch {
  TextBatch source, target;
};

// Throws Error(input), with file and line, if one side has more lines than the other, if a line of pairs does not have
// exactly one tab, and for the errors of TextBatches, always after all previous pairs have been returned.
class PairBatches {
 public:
  // `files` are one file or two. The caller checks the text with check_text().
  PairBatches(const std::vector<std::string>& files, LineEnds ends, ReadSizes sizes = {});
  bool next(PairBatch& batch);
  uint64_t expected_bytes() const;  // sum over the files; 0 if one is a pipe
  uint64_t normalised() const { return first_.normalised() + second_.normalised(); }
  uint64_t byte_order_marks() const { return first_.byte_order_marks() + second_.byte_order_marks(); }

 private:
  void divide_at_tabs(PairBatch& batch);
  void add_targets(PairBatch& batch);
  void refuse_more_targets();
  bool has_second();
  [[noreturn]] void part(uint64_t common, uint64_t first_lines, uint64_t second_lines);

  std::vector<std::string> files_;
  TextBatches first_, second_;
  TextBatch held_;  // batch of the second file; at_ is the index of its next segment
  size_t at_ = 0;
  uint64_t lines_ = 0;        // number of pairs so far
  std::exception_ptr error_;  // pending error, thrown by the next call of next()
};

}  // namespace mh::text
