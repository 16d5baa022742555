// Reads and writes vocabulary files, mh-vocab(5): five header lines, then one line per piece with its count. A
// vocabulary with merges has one more header line, and one line per merge after the pieces; a vocabulary of the type
// wordpiece has two more header lines; a vocabulary with added tokens has one more header line, and one line per added
// token at the end. A vocabulary of the type tokenizer-json or sentencepiece has the header lines begin and end, and a
// JSON text or a SentencePiece model instead of the lines of pieces.
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "text/json_tokenizer.h"
#include "text/marian_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/text_bytes.h"
#include "text/tokenizer.h"
#include "text/vocabulary_types.h"
#include "text/word_map.h"

namespace mh::text {

namespace {

constexpr std::string_view kMagic = "multihead-vocabulary 1\n";

void append_escaped(std::string& out, const std::string& piece) {
  for (char c : piece) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '\\') {
      out += "\\\\";
    } else if (byte <= 0x20 || byte == 0x7F) {
      out += escaped_byte(c);
    } else {
      out += c;
    }
  }
}

// Reverses append_escaped(). Returns false for an invalid escape sequence.
bool unescape(std::string_view text, std::string& out) {
  out.clear();
  if (text.find('\\') == text.npos) {
    out = text;
    return true;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == '\\') {
      out += '\\';
      ++i;
    } else if (i + 3 < text.size() && text[i + 1] == 'x') {
      unsigned value = 0;
      auto [end, error] = std::from_chars(text.data() + i + 2, text.data() + i + 4, value, 16);
      if (error != std::errc() || end != text.data() + i + 4) return false;
      out += static_cast<char>(value);
      i += 3;
    } else {
      return false;
    }
  }
  return true;
}

std::string hash_of(std::string_view body) { return hex64(XXH64(body.data(), body.size(), 0)); }

// Returns the value of a header line with a switch, which read_switch() reads.
const char* switch_value(bool value) { return value ? "yes" : "no"; }

}  // namespace

std::string escape_piece(const std::string& piece) {
  std::string out;
  append_escaped(out, piece);
  return out;
}

namespace {

// Throws Error(input) for pieces and merges that read_vocabulary() would reject.
void require_valid_pieces(const std::string& type, const std::vector<Piece>& pieces, const std::vector<Merge>* merges) {
  auto refuse = [&](const std::string& where, const std::string& expected, const std::string& found) {
    refuse_input(str("a vocabulary of the type ", type, ": ", where), expected, found,
                 "make the vocabulary from UTF-8 text or files with distinct entries");
  };
  auto is_valid = [](const std::string& text) { return !text.empty() && find_invalid_utf8(text) == text.npos; };
  WordMap<bool> known_pieces;
  known_pieces.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string& text = pieces[i].text;
    if (!is_valid(text)) refuse(str("entry ", i), "a piece of UTF-8 text", "'" + escape_piece(text) + "'");
    if (std::exchange(known_pieces[text], true))
      refuse(str("entry ", i), "distinct pieces", "'" + escape_piece(text) + "' twice");
  }
  for (size_t i = 0; merges != nullptr && i < merges->size(); ++i) {
    const Merge& m = (*merges)[i];
    if (!is_valid(m.left) || !is_valid(m.right))
      refuse(str("merge ", i), "two symbols of UTF-8 text",
             "'" + escape_piece(m.left) + "' and '" + escape_piece(m.right) + "'");
  }
}

}  // namespace

std::string serialize_vocabulary(const std::string& type, const std::vector<Piece>& pieces,
                                 const std::vector<Merge>* merges, const BertNormalisation* normalisation,
                                 const AddedTokens& added_tokens) {
  require_valid_pieces(type, pieces, merges);
  std::string body;
  body.reserve(16 * pieces.size());
  for (const Piece& piece : pieces) {
    append_escaped(body, piece.text);
    body += '\t';
    body += std::to_string(piece.count);
    body += '\n';
  }
  std::string header_lines = "\nentries " + std::to_string(pieces.size());
  if (merges != nullptr) {
    header_lines += "\nmerges " + std::to_string(merges->size());
    for (const Merge& merge : *merges) {
      append_escaped(body, merge.left);
      body += ' ';
      append_escaped(body, merge.right);
      body += '\n';
    }
  }
  if (normalisation != nullptr) {
    header_lines += str("\nlowercase ", switch_value(normalisation->lowercase), "\nstrip_accents ",
                        switch_value(normalisation->strip_accents));
  }
  if (!added_tokens.empty()) header_lines += str("\nadded_tokens ", added_tokens.size());
  append_added_tokens(added_tokens, body);
  return std::string(kMagic) + "type " + type + header_lines + "\nxxh64 " + hash_of(body) + "\n\n" + body;
}

std::string serialize_embedded_file(const std::string& type, int64_t num_entries, int32_t begin_id, int32_t end_id,
                                    const std::string& embedded_file) {
  std::string text = str(kMagic, "type ", type, "\nentries ", num_entries, "\nbegin ", begin_id, "\nend ", end_id,
                         "\nxxh64 ", hash_of(embedded_file), "\n\n");
  text.reserve(text.size() + embedded_file.size());
  return text += embedded_file;
}

bool is_vocabulary_file(std::string_view bytes) {
  return bytes.substr(bytes.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0).starts_with(kMagic);
}

namespace {

// Parses the lines of a vocabulary in order; throws Error(input) at the first invalid line.
class VocabularyReader {
 public:
  VocabularyReader(const std::string& bytes, const std::string& name)
      : name_(name), remaining_lines_(drop_byte_order_mark(bytes, name).substr(kMagic.size())) {}

  VocabularyFile read() {
    VocabularyFile file;
    file.type = read_entry("type");
    if (file.type == JsonTokenizer::kType || file.type == SentencePieceTokenizer::kType ||
        file.type == MarianTokenizer::kType) {
      file.num_entries = read_integer("entries");
      file.begin_id = read_integer("begin");
      file.end_id = read_integer("end");
      verify_checksum();
      file.embedded_file = remaining_lines_;
      return file;
    }
    const uint64_t num_pieces = read_count("entries");
    const VocabularyType* type = vocabulary_type(file.type);
    const uint64_t num_merges = type != nullptr && type->has_merges ? read_count("merges") : 0;
    if (file.type == "wordpiece") {
      file.normalisation.lowercase = read_switch("lowercase");
      file.normalisation.strip_accents = read_switch("strip_accents");
    }
    const bool may_have_added_tokens = type != nullptr && type->has_added_tokens;
    const uint64_t num_added_tokens =
        may_have_added_tokens && remaining_lines_.starts_with("added_tokens ") ? read_count("added_tokens") : 0;
    verify_checksum();
    read_pieces(num_pieces, file.pieces);
    read_merges(num_merges, file.merges);
    std::string_view text;
    while (file.added_tokens.size() < num_added_tokens && read_line(text))
      if (!parse_added_token(text, num_pieces, file.added_tokens))
        refuse("the id of an entry, in increasing order, and the attributes of the added token", quote_start(text));
    if (!remaining_lines_.empty() || file.pieces.size() != num_pieces || file.merges.size() != num_merges ||
        file.added_tokens.size() != num_added_tokens)
      refuse(
          str(count_of(num_pieces, "entry"), ", ", count_of(num_merges, "merge"), " and ",
              count_of(num_added_tokens, "added token"), ", then the end of the file"),
          str(count_of(file.pieces.size(), "entry"), ", ", count_of(file.merges.size(), "merge"), " and ",
              count_of(file.added_tokens.size(), "added token"), remaining_lines_.empty() ? "" : ", and more lines"));
    return file;
  }

 private:
  [[noreturn]] void refuse(const std::string& expected, const std::string& found) const {
    refuse_input(str(name_, ":", line_number_), expected, found,
                 "the vocabulary is damaged; make the vocabulary again with mh-prep vocab, or copy the file again");
  }

  // Reads the next line into `text`; returns false if no line that ends in a line feed is left.
  bool read_line(std::string_view& text) {
    const size_t end = remaining_lines_.find('\n');
    if (end == remaining_lines_.npos) return false;
    text = remaining_lines_.substr(0, end);
    remaining_lines_.remove_prefix(end + 1);
    ++line_number_;
    return true;
  }

  // Reads a header line "KEY VALUE" with the given key and returns VALUE.
  std::string read_entry(const std::string& key) {
    std::string_view text;
    const bool has_line = read_line(text);
    if (!has_line || text.substr(0, key.size() + 1) != key + " ")
      refuse("a line that begins with '" + key + " '", has_line ? quote_start(text) : "the end of the file");
    return std::string(text.substr(key.size() + 1));
  }

  uint64_t read_count(const std::string& key) {
    const std::string text = read_entry(key);
    uint64_t count = 0;
    const auto parse_result = std::from_chars(text.data(), text.data() + text.size(), count);
    if (parse_result.ec != std::errc() || parse_result.ptr != text.data() + text.size() ||
        count > remaining_lines_.size())
      refuse(str("a count of ", key, " that the file can hold"), text);
    return count;
  }

  // Reads an integer of at least -1.
  int32_t read_integer(const std::string& key) {
    const std::string text = read_entry(key);
    int32_t value = -1;
    const auto parse_result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parse_result.ec != std::errc() || parse_result.ptr != text.data() + text.size() || value < -1)
      refuse("an integer of at least -1", text);
    return value;
  }

  bool read_switch(const std::string& key) {
    const std::string text = read_entry(key);
    if (text != switch_value(true) && text != switch_value(false))
      refuse(str("'", key, " yes' or '", key, " no'"), str("'", key, " ", text, "'"));
    return text == switch_value(true);
  }

  void verify_checksum() {
    const std::string checksum = read_entry("xxh64");
    std::string_view separator_line;
    if (!read_line(separator_line) || !separator_line.empty())
      refuse("an empty line", "'" + std::string(separator_line) + "'");
    if (hash_of(remaining_lines_) != checksum)
      refuse("content with the checksum " + checksum, "the checksum " + hash_of(remaining_lines_));
  }

  void read_pieces(uint64_t num_pieces, std::vector<Piece>& pieces) {
    WordMap<bool> known_pieces;
    // Limits the reserved memory if `num_pieces` is damaged: an entry takes at least four bytes (a piece of one byte, a
    // tab, a digit, a line feed).
    known_pieces.reserve(std::min<uint64_t>(num_pieces, remaining_lines_.size() / 4));
    pieces.reserve(std::min<uint64_t>(num_pieces, remaining_lines_.size() / 4));
    std::string_view text;
    while (pieces.size() < num_pieces && read_line(text)) {
      Piece piece;
      const size_t tab = text.rfind('\t');
      if (tab == text.npos || !unescape(text.substr(0, tab), piece.text))
        refuse("a piece, a tab and its count", quote_start(text));
      const auto parse_result = std::from_chars(text.data() + tab + 1, text.data() + text.size(), piece.count);
      if (parse_result.ec != std::errc() || parse_result.ptr != text.data() + text.size())
        refuse("a piece, a tab and its count", quote_start(text));
      if (piece.text.empty()) refuse("a non-empty piece", "an empty piece");
      if (find_invalid_utf8(piece.text) != std::string::npos) refuse("a piece of UTF-8 text", "other bytes");
      if (std::exchange(known_pieces[piece.text], true)) refuse("distinct pieces", "'" + piece.text + "' twice");
      pieces.push_back(std::move(piece));
    }
  }

  void read_merges(uint64_t num_merges, std::vector<Merge>& merges) {
    std::string_view text;
    while (merges.size() < num_merges && read_line(text)) {
      Merge merge;
      const size_t space = text.find(' ');
      if (space == text.npos || !unescape(text.substr(0, space), merge.left) ||
          !unescape(text.substr(space + 1), merge.right) || merge.left.empty() || merge.right.empty() ||
          find_invalid_utf8(text) != text.npos)
        refuse("two symbols separated by a space", quote_start(text));
      merges.push_back(std::move(merge));
    }
  }

  const std::string& name_;
  std::string_view remaining_lines_;  // the lines after line `line_number_`
  size_t line_number_ = 1;            // number of the last line read
};

}  // namespace

VocabularyFile read_vocabulary(const std::string& bytes, const std::string& name) {
  return VocabularyReader(bytes, name).read();
}

}  // namespace mh::text
