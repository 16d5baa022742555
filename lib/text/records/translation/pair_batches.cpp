#include "text/records/translation/pair_batches.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace mh::text {

namespace {

uint64_t count_remaining_lines(TextBatches& text) {
  uint64_t num_lines = 0;
  for (TextBatch batch; text.next(batch);) num_lines += batch.segments.size();
  return num_lines;
}

}  // namespace

PairBatches::PairBatches(const std::vector<std::string>& files, LineEnds line_ends, ReadSizes sizes)
    : files_(files),
      source_lines_({files.front()}, line_ends, nullptr, sizes),
      target_lines_(std::vector<std::string>(files.begin() + 1, files.end()), line_ends, nullptr, sizes) {}

uint64_t PairBatches::expected_bytes() const {
  const uint64_t source_bytes = source_lines_.expected_bytes(), target_bytes = target_lines_.expected_bytes();
  return files_.size() == 1 ? source_bytes : source_bytes == 0 || target_bytes == 0 ? 0 : source_bytes + target_bytes;
}

bool PairBatches::next(PairBatch& batch) {
  batch.target = TextBatch();
  if (error_ != nullptr) std::rethrow_exception(error_);
  if (!source_lines_.next(batch.source)) {
    if (files_.size() > 1) require_no_more_targets();
    return false;
  }
  try {
    if (files_.size() == 1) split_at_tabs(batch);
    else add_targets(batch);
  } catch (...) {
    error_ = std::current_exception();
    if (batch.target.segments.empty()) throw;
    batch.source.segments.resize(batch.target.segments.size());
  }
  num_pairs_ += batch.source.segments.size();
  return true;
}

void PairBatches::split_at_tabs(PairBatch& batch) {
  batch.target.text = batch.source.text;
  batch.target.file = batch.source.file;
  for (TextBatch::Segment& source : batch.source.segments) {
    const std::string_view line = std::string_view(batch.source.text).substr(source.begin, source.end - source.begin);
    const auto num_tabs = std::count(line.begin(), line.end(), '\t');
    if (num_tabs != 1) {
      check_text(batch.source, source, false);  // an error about an invalid byte of the line has precedence
      refuse_input(str(batch.source.file, ":", source.line_number), "a source, one tab and a target",
                   num_tabs == 0 ? std::string("no tab") : str(num_tabs, " tabs"),
                   "join the lines of source and target with paste(1), or name a source file and a target file");
    }
    const size_t tab = line.find('\t');
    TextBatch::Segment target = source;
    source.end = source.begin + tab;
    target.begin += tab + 1;
    target.offset += tab + 1;
    batch.target.segments.push_back(target);
  }
}

bool PairBatches::has_target_line() {
  if (target_index_ < target_batch_.segments.size()) return true;
  target_index_ = 0;
  if (!target_lines_.next(target_batch_)) return false;
  uncounted_target_bytes_ += target_batch_.input_bytes;
  return true;
}

void PairBatches::require_no_more_targets() {
  if (has_target_line())
    refuse_unequal_lengths(
        num_pairs_, num_pairs_,
        num_pairs_ + target_batch_.segments.size() - target_index_ + count_remaining_lines(target_lines_));
}

void PairBatches::add_targets(PairBatch& batch) {
  TextBatch& target = batch.target;
  for (size_t i = 0; i < batch.source.segments.size(); ++i) {
    if (!has_target_line())
      refuse_unequal_lengths(num_pairs_ + i,
                             num_pairs_ + batch.source.segments.size() + count_remaining_lines(source_lines_),
                             num_pairs_ + i);
    TextBatch::Segment s = target_batch_.segments[target_index_++];
    target.file = target_batch_.file;
    const size_t begin = target.text.size(), size = s.end - s.begin;
    target.text.append(target_batch_.text, s.begin, size);
    s.begin = begin;
    s.end = begin + size;
    target.segments.push_back(s);
  }
  target.input_bytes = std::exchange(uncounted_target_bytes_, 0);
}

void PairBatches::refuse_unequal_lengths(uint64_t num_common_lines, uint64_t num_first_lines,
                                         uint64_t num_second_lines) {
  const std::string first = input_name(files_[0]), second = input_name(files_[1]);
  const std::string& longer = num_first_lines > num_second_lines ? first : second;
  refuse_input(first + ", " + second, "the same number of lines in both files",
               str(num_first_lines, " and ", count_of(num_second_lines, "line")),
               str("align the files; the first line without a partner is ", longer, ":", num_common_lines + 1));
}

}  // namespace mh::text
