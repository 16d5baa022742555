// Text from files and pipes in checked batches: the front half of everything that mh-prep does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace mh::io {

enum class LineEnds { refuse_crlf, normalise_crlf, keep };

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
// comes whole, and one above 8 MiB is refused.
class TextBatches {
 public:
  using Cut = std::function<size_t(std::string_view)>;
  TextBatches(std::vector<std::string> files, LineEnds ends, Cut cut);
  bool next(TextBatch& batch);
  // Bytes of the inputs that are regular files, for progress; 0 where one is a pipe.
  uint64_t expected_bytes() const;
  // Lines that ended in CR LF and were normalised.
  uint64_t normalised() const { return normalised_; }

 private:
  void add(TextBatch& batch, std::string_view text, bool ends_line);
  bool open_next();
  std::vector<std::string> files_;
  LineEnds ends_;
  Cut cut_;
  size_t file_ = 0;
  std::unique_ptr<ByteSource> source_;
  std::unique_ptr<LineReader> lines_;
  LineReader::Piece piece_{{}, true, true, true, 0, 0};  // the last one read
  std::string carry_;                                    // the part of a long line that waits for a place to be cut
  uint64_t carry_offset_ = 0;
  uint64_t normalised_ = 0;
};

// Throws Error(input) with file, line and byte for text that is not valid UTF-8 or holds a NUL byte. The message names
// the vocabulary of bytes as a way out where it is one.
void check_text(const TextBatch& batch, bool bytes_would_do = true);

}  // namespace mh::io
