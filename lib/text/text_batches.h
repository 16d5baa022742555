// Reads text from files and pipes in batches of lines, for the subcommands of mh-prep that read lines.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace mh::text {

// Handling of line ends CR LF and of a byte order mark at the start of a file. `refuse_crlf` drops the mark and throws
// Error(input) for CR LF; `refuse_crlf_in_prep` does the same, and the error names the option --crlf of mh-prep;
// `normalise_crlf` drops the mark and the CR; `as_text` treats the mark and the CR as text.
enum class LineEnds { refuse_crlf, refuse_crlf_in_prep, normalise_crlf, as_text };

// Buffer sizes in bytes; tests use smaller sizes than the defaults.
struct ReadSizes {
  // A batch ends when it has `batch_bytes` bytes of text or `batch_bytes` / 8 segments.
  size_t batch_bytes = 1 << 20;
  // Maximum size of a chunk; a longer line is read in several chunks. Must be larger than a byte order mark (3 bytes),
  // so that a file that contains only the mark is one complete line.
  size_t chunk_bytes = 1 << 20;
  // Maximum length of text without a split position; of a line, if `find_split` is empty.
  size_t max_line_bytes = 8 << 20;
};

// Lines of text, or segments of a very long line, without line ends.
struct TextBatch {
  struct Segment {
    size_t begin, end;     // byte range [begin, end) in `text`
    bool ends_line;        // the segment is the last of its line
    bool has_newline;      // a line end follows the segment: '\n', or "\r\n" with LineEnds::normalise_crlf
    uint64_t line_number;  // line number in the file, from 1
    uint64_t offset;       // offset in the file of the segment's first byte
  };
  std::string text;
  std::vector<Segment> segments;
  std::string file;
  bool begins_file = false;  // the first segment starts the file
  uint64_t input_bytes = 0;  // bytes read for this batch: line ends included, a dropped byte order mark excluded
};

// Reads the files in order ("-": standard input) in constant memory, in batches of about 1 MiB. A longer line than a
// batch is split into segments at positions chosen by `find_split` (Tokenizer::find_split). If `find_split` is empty,
// lines are returned whole. next() throws Error(input) for 8 MiB of a line without a split position, or, without
// `find_split`, for a line of more than 8 MiB. It throws an error only after it has returned all text that precedes the
// error, so the first error of a file is the same for all buffer sizes.
class TextBatches {
 public:
  using FindSplit = std::function<size_t(std::string_view)>;
  TextBatches(std::vector<std::string> files, LineEnds line_ends, FindSplit find_split, ReadSizes sizes = {});
  // Reads the next batch, whose segments are all of one file; returns false at the end of the last file.
  bool next(TextBatch& batch);
  // Returns the total size of the inputs in bytes, for progress displays; 0 if an input is not a regular file.
  uint64_t expected_bytes() const;
  // Returns the number of lines that ended in CR LF and were normalised.
  uint64_t num_normalised_lines() const { return num_normalised_lines_; }
  // Returns the number of files whose byte order mark was dropped.
  uint64_t num_byte_order_marks() const { return num_byte_order_marks_; }

 private:
  void read_segments(TextBatch& batch);
  void drop_byte_order_mark_of_file();
  void add_segment(TextBatch& batch, std::string_view text, bool ends_line);
  bool open_next_file();
  std::vector<std::string> files_;
  LineEnds line_ends_;
  FindSplit find_split_;
  ReadSizes sizes_;
  size_t next_file_ = 0;
  bool is_at_file_start_ = false;  // no segment of the current file has been returned
  std::unique_ptr<ByteSource> source_;
  std::unique_ptr<LineReader> lines_;
  LineReader::Chunk chunk_{{}, true, true, true, 0, 0};  // last chunk read
  std::string pending_text_;                             // text of a long line that next() has not yet returned
  uint64_t pending_offset_ = 0;                          // offset of `pending_text_` in the file
  uint64_t num_normalised_lines_ = 0, num_byte_order_marks_ = 0;
  std::exception_ptr error_;  // pending error, thrown by the next call of next()
};

// Throws Error(input) with file, line and byte for a segment that is not UTF-8 text or contains a NUL byte; a
// multi-byte character that the line end truncates is not UTF-8 text. If `advises_byte_vocabulary`, the message about a
// byte other than NUL suggests a vocabulary of the type byte.
void check_text(const TextBatch& batch, const TextBatch::Segment& segment, bool advises_byte_vocabulary);
// Calls check_text() for every segment of `batch`.
void check_text(const TextBatch& batch, bool advises_byte_vocabulary = true);

}  // namespace mh::text
