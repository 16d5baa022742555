// Reads pairs of lines from a source file and a target file, or from one file with source and target separated by a tab
// in each line, as paste(1) writes.
#pragma once

#include "text/text_batches.h"

namespace mh::text {

// A batch of source lines and a batch of target lines with the same number of segments. Each segment is a whole line;
// segments i of both batches are a pair. target.input_bytes: bytes of the target file that were read for this batch; 0
// for a file of pairs.
struct PairBatch {
  TextBatch source, target;
};

// Reads batches of pairs. Throws Error(input), with file and line, if the two files have different numbers of lines, if
// a line of a file of pairs does not have exactly one tab, and for the errors of TextBatches, always after all previous
// pairs have been returned.
class PairBatches {
 public:
  // `files` are a source file and a target file, or one file of pairs. The caller checks the text with check_text().
  PairBatches(const std::vector<std::string>& files, LineEnds line_ends, ReadSizes sizes = {});
  bool next(PairBatch& batch);
  uint64_t expected_bytes() const;  // total size of the files; 0 if a file is a pipe
  uint64_t num_normalised_lines() const {
    return source_lines_.num_normalised_lines() + target_lines_.num_normalised_lines();
  }
  uint64_t num_byte_order_marks() const {
    return source_lines_.num_byte_order_marks() + target_lines_.num_byte_order_marks();
  }

 private:
  void split_at_tabs(PairBatch& batch);
  void add_targets(PairBatch& batch);
  void require_no_more_targets();
  // Returns whether the target file has another line; reads the next batch if all segments of `target_batch_` are used.
  bool has_target_line();
  [[noreturn]] void refuse_unequal_lengths(uint64_t num_common_lines, uint64_t num_first_lines,
                                           uint64_t num_second_lines);

  std::vector<std::string> files_;
  TextBatches source_lines_;             // source file, or file of pairs
  TextBatches target_lines_;             // target file; no file if `source_lines_` has pairs
  TextBatch target_batch_;               // current batch of the target file
  size_t target_index_ = 0;              // index in `target_batch_` of the next unused segment
  uint64_t uncounted_target_bytes_ = 0;  // bytes of the target file that no batch has counted yet
  uint64_t num_pairs_ = 0;               // number of pairs returned so far
  std::exception_ptr error_;             // pending error, thrown by the next call of next()
};

}  // namespace mh::text
