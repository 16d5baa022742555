#include "io/text_batches.h"

#include <sys/stat.h>

#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace mh::io {

namespace {

constexpr size_t kBatchBytes = 1 << 20;
constexpr size_t kLongestPiece = 1 << 20;
constexpr size_t kLongestCarry = 8 << 20;

}  // namespace

TextBatches::TextBatches(std::vector<std::string> files, LineEnds ends, Cut cut)
    : files_(std::move(files)), ends_(ends), cut_(std::move(cut)) {}

uint64_t TextBatches::expected_bytes() const {
  uint64_t sum = 0;
  for (const std::string& file : files_) {
    struct stat status {};
    if (!MappedFile::possible(file) || stat(file.c_str(), &status) != 0) return 0;
    sum += static_cast<uint64_t>(status.st_size);
  }
  return sum;
}

bool TextBatches::open_next() {
  if (file_ == files_.size()) return false;
  lines_.reset();
  source_ = open_source(files_[file_++]);
  lines_ = std::make_unique<LineReader>(*source_, kLongestPiece);
  return true;
}

void TextBatches::add(TextBatch& batch, std::string_view text, bool ends_line) {
  bool newline = ends_line && piece_.has_newline;
  if (ends_line && !text.empty() && text.back() == '\r' && newline && ends_ != LineEnds::keep) {
    if (ends_ == LineEnds::refuse_crlf)
      throw Error(Exit::input, Problem{str(source_->name(), ":", piece_.line), "lines that end in LF", "CR LF",
                                       "drop the CR; mh-prep does it with --crlf normalise"});
    text.remove_suffix(1);
    ++normalised_;
  }
  size_t begin = batch.text.size();
  batch.text += text;
  batch.segments.push_back(
      {begin, batch.text.size(), ends_line, newline, piece_.line, carry_.empty() ? piece_.offset : carry_offset_});
}

bool TextBatches::next(TextBatch& batch) {
  batch.text.clear();
  batch.segments.clear();
  batch.source_bytes = 0;
  while (batch.text.size() < kBatchBytes && batch.segments.size() < kBatchBytes / 8) {
    if (lines_ == nullptr && !open_next()) break;
    batch.file = source_->name();
    if (!lines_->next(piece_)) {
      lines_.reset();
      // A last line that filled the reader's pieces exactly ends only here.
      if (!piece_.ends_line) {
        add(batch, carry_, true);
        carry_.clear();
        piece_.ends_line = true;
      }
      // A batch names one file in its messages.
      if (!batch.segments.empty()) break;
      continue;
    }
    batch.source_bytes += piece_.text.size() + (piece_.has_newline ? 1 : 0);
    if (piece_.starts_line && piece_.ends_line) {
      add(batch, piece_.text, true);
      continue;
    }
    if (piece_.starts_line) carry_offset_ = piece_.offset;
    carry_ += piece_.text;
    if (cut_ == nullptr && carry_.size() > kLongestCarry)
      throw Error(Exit::input,
                  Problem{str(source_->name(), ":", piece_.line), str("lines of at most ", human_bytes(kLongestCarry)),
                          "a longer one", "break the line up"});
    size_t n = piece_.ends_line ? carry_.size() : cut_ == nullptr ? std::string_view::npos : cut_(carry_);
    if (n == std::string_view::npos) {
      if (carry_.size() > kLongestCarry)
        throw Error(Exit::input, Problem{str(source_->name(), ":", piece_.line),
                                         str("a place to cut a long line at least every ", human_bytes(kLongestCarry)),
                                         "none", "break the line up, or use --type byte"});
      continue;
    }
    add(batch, std::string_view(carry_).substr(0, n), piece_.ends_line);
    carry_offset_ += n;
    carry_.erase(0, n);
  }
  return !batch.segments.empty();
}

void check_text(const TextBatch& batch, bool bytes_would_do) {
  std::string_view all = batch.text;
  if (std::memchr(all.data(), '\0', all.size()) == nullptr && find_invalid_utf8(all) == all.npos) return;
  for (const auto& s : batch.segments) {
    std::string_view text = all.substr(s.begin, s.end - s.begin);
    size_t nul = text.find('\0'), invalid = find_invalid_utf8(text);
    if (nul == text.npos && invalid == text.npos) continue;
    size_t at = std::min(nul, invalid);
    char byte[8];
    std::snprintf(byte, sizeof byte, "0x%02X", static_cast<unsigned char>(text[at]));
    throw Error(Exit::input, Problem{str(batch.file, ":", s.line, ": byte ", s.offset + at, " of the file"),
                                     "UTF-8 text", nul < invalid ? "a NUL byte" : str("the byte ", byte),
                                     bytes_would_do ? "convert the file, or use --type byte, which takes anything"
                                                    : "convert the file"});
  }
}

}  // namespace mh::io
