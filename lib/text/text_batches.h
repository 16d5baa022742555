// Text from files and pipes in checked batches: the front half of everything that mh-prep does.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace mh::text {

// keep: every byte is text, the CR of a line end and a byte order mark too.
enum class LineEnds { refuse_crlf, normalise_crlf, keep };

// How much is read at once, in bytes; tests make it small.
struct ReadSizes {
  size_t batch = 1 << 20;  // a batch ends after the line that reaches this
  size_t piece = 1 << 20;  // a longer line is read in pieces; at least 4
  size_t line = 8 << 20;   // the longest line without a place to cut
};

// Some lines of text, or parts of a very long one, without their line ends.
struct TextBatch {
  struct Segment {
    size_t begin, end;  // in `text`
    bool ends_line;     // the next segment starts a new line
    bool has_newline;   // false for a last line that lacks its '\n'
    uint64_t line;      // in the file, from 1
    uint64_t offset;    // of the first byte, in the file
  };
  std::string text;
  std::vector<Segment> segments;
  std::string file;
  uint64_t source_bytes = 0;  // of the input, line ends included
};

// Reads the files in order ("-": standard input), about 1 MiB a batch, in constant memory. A line longer than that
// comes in segments that `cut` divides (Tokenizer::cut); where it cannot, Error(input). Without a `cut` every line
// comes whole, and one above 8 MiB is refused. Drops a byte order mark at the start of each file. An error is thrown
// after the text in front of it is returned, so the first error of a file is the same however it is read.
class TextBatches {
 public:
  using Cut = std::function<size_t(std::string_view)>;
  TextBatches(std::vector<std::string> files, LineEnds ends, Cut cut, ReadSizes sizes = {});
  bool next(TextBatch& batch);
  // Bytes of the inputs that are regular files, for progress; 0 where one is a pipe.
  uint64_t expected_bytes() const;
  // Lines that ended in CR LF and were normalised.
  uint64_t normalised() const { return normalised_; }
  // Files whose byte order mark was dropped.
  uint64_t byte_order_marks() const { return byte_order_marks_; }

 private:
  void fill(TextBatch& batch);
  void drop_mark();
  void add(TextBatch& batch, std::string_view text, bool ends_line);
  bool open_next();
  std::vector<std::string> files_;
  LineEnds ends_;
  Cut cut_;
  ReadSizes sizes_;
  size_t file_ = 0;
  std::unique_ptr<ByteSource> source_;
  std::unique_ptr<LineReader> lines_;
  LineReader::Chunk piece_{{}, true, true, true, 0, 0};  // the last one read
  std::string carry_;                                    // the part of a long line that waits for a place to be cut
  uint64_t carry_offset_ = 0;
  uint64_t normalised_ = 0, byte_order_marks_ = 0;
  std::exception_ptr error_;  // met after the lines of the last batch
};

// Throws Error(input) with file, line and byte for a segment that is not UTF-8 text or holds a NUL byte, so for a
// character that a line feed divides too. The message names the vocabulary of bytes as a way out where it is one.
void check_text(const TextBatch& batch, const TextBatch::Segment& segment, bool bytes_would_do);
// The same for all segments.
void check_text(const TextBatch& batch, bool bytes_would_do = true);

}  // namespace mh::text
