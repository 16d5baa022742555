#include "text/text_batches.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "text/text_bytes.h"

namespace mh::text {

TextBatches::TextBatches(std::vector<std::string> files, LineEnds line_ends, FindSplit find_split, ReadSizes sizes)
    : files_(std::move(files)), line_ends_(line_ends), find_split_(std::move(find_split)), sizes_(sizes) {}

uint64_t TextBatches::expected_bytes() const {
  uint64_t num_bytes = 0;
  for (const std::string& file : files_) {
    struct stat status {};
    if (!MappedFile::is_mappable(file) || stat(file.c_str(), &status) != 0) return 0;
    num_bytes += static_cast<uint64_t>(status.st_size);
  }
  return num_bytes;
}

bool TextBatches::open_next_file() {
  if (next_file_ == files_.size()) return false;
  lines_.reset();
  source_ = open_source(files_[next_file_++]);
  lines_ = std::make_unique<LineReader>(*source_, sizes_.chunk_bytes);
  is_at_file_start_ = true;
  return true;
}

void TextBatches::add_segment(TextBatch& batch, std::string_view text, bool ends_line) {
  const bool has_newline = ends_line && chunk_.has_newline;
  if (ends_line && !text.empty() && text.back() == '\r' && has_newline && line_ends_ != LineEnds::as_text) {
    text.remove_suffix(1);
    if (line_ends_ == LineEnds::normalise_crlf) {
      ++num_normalised_lines_;
    } else {
      error_ = std::make_exception_ptr(Error(
          Exit::input,
          Problem{str(source_->name(), ":", chunk_.line_number), "lines that end in LF", "CR LF",
                  line_ends_ == LineEnds::refuse_crlf_in_prep ? "convert the line ends to LF, or pass --crlf normalise"
                                                              : "convert the line ends to LF"}));
    }
  }
  if (batch.segments.empty()) batch.begins_file = std::exchange(is_at_file_start_, false);
  size_t begin = batch.text.size();
  batch.text += text;
  batch.segments.push_back({begin, batch.text.size(), ends_line, has_newline, chunk_.line_number,
                            pending_text_.empty() ? chunk_.offset : pending_offset_});
}

// Drops a byte order mark from `chunk_`, the first chunk of a file, and counts the mark.
void TextBatches::drop_byte_order_mark_of_file() {
  const std::string_view text = drop_byte_order_mark(chunk_.text, source_->name());
  if (text.size() == chunk_.text.size()) return;
  ++num_byte_order_marks_;
  chunk_.text = text;
  chunk_.offset = kByteOrderMark.size();
}

bool TextBatches::next(TextBatch& batch) {
  batch.text.clear();
  batch.segments.clear();
  batch.begins_file = false;
  batch.input_bytes = 0;
  if (error_ != nullptr) std::rethrow_exception(error_);
  try {
    read_segments(batch);
  } catch (...) {
    error_ = std::current_exception();
    if (batch.segments.empty()) throw;
  }
  return !batch.segments.empty();
}

void TextBatches::read_segments(TextBatch& batch) {
  // The second limit bounds the memory for segments, since empty lines add segments but no text.
  while (error_ == nullptr && batch.text.size() < sizes_.batch_bytes &&
         batch.segments.size() < std::max<size_t>(1, sizes_.batch_bytes / 8)) {
    if (lines_ == nullptr && !open_next_file()) break;
    batch.file = source_->name();
    if (!lines_->next(chunk_)) {
      lines_.reset();
      // If the last line lacks a line feed and fills its last chunk, LineReader does not set `ends_line`.
      if (!chunk_.ends_line) {
        add_segment(batch, pending_text_, true);
        pending_text_.clear();
        chunk_.ends_line = true;
      }
      // A batch has the text of one file, since messages name batch.file.
      if (!batch.segments.empty()) break;
      continue;
    }
    if (chunk_.offset == 0 && line_ends_ != LineEnds::as_text) {
      drop_byte_order_mark_of_file();
      // A file that contains only a byte order mark has no lines.
      if (chunk_.text.empty() && chunk_.offset > 0 && chunk_.ends_line && !chunk_.has_newline) continue;
    }
    batch.input_bytes += chunk_.text.size() + (chunk_.has_newline ? 1 : 0);
    if (chunk_.starts_line && chunk_.ends_line) {
      add_segment(batch, chunk_.text, true);
      continue;
    }
    if (chunk_.starts_line) pending_offset_ = chunk_.offset;
    pending_text_ += chunk_.text;
    if (find_split_ == nullptr && pending_text_.size() > sizes_.max_line_bytes)
      refuse_input(str(source_->name(), ":", chunk_.line_number),
                   str("lines of at most ", human_bytes(sizes_.max_line_bytes)), "a longer line", "split the line");
    const size_t segment_bytes = chunk_.ends_line         ? pending_text_.size()
                                 : find_split_ == nullptr ? std::string_view::npos
                                                          : find_split_(pending_text_);
    if (segment_bytes == std::string_view::npos) {
      if (pending_text_.size() > sizes_.max_line_bytes)
        refuse_input(
            str(source_->name(), ":", chunk_.line_number),
            str("a position to split the line, such as a space, at least every ", human_bytes(sizes_.max_line_bytes)),
            "none", "break the line up, or use a vocabulary of the type byte");
      continue;
    }
    add_segment(batch, std::string_view(pending_text_).substr(0, segment_bytes), chunk_.ends_line);
    pending_offset_ += segment_bytes;
    pending_text_.erase(0, segment_bytes);
  }
}

void check_text(const TextBatch& batch, const TextBatch::Segment& s, bool advises_byte_vocabulary) {
  const std::string_view text = std::string_view(batch.text).substr(s.begin, s.end - s.begin);
  if (const size_t invalid_offset = find_invalid_byte(text); invalid_offset != text.npos)
    refuse_invalid_byte(batch.file, s.line_number, s.offset, text, invalid_offset,
                        advises_byte_vocabulary
                            ? "convert the file to UTF-8, or use a vocabulary of the type byte, which accepts any bytes"
                            : "convert the file to UTF-8");
}

void check_text(const TextBatch& batch, bool advises_byte_vocabulary) {
  for (const TextBatch::Segment& s : batch.segments) check_text(batch, s, advises_byte_vocabulary);
}

}  // namespace mh::text
