#include "text/pipeline/decoder.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/unicode.h"
#include "text/byte_bpe.h"
#include "text/pipeline/normalizer.h"

namespace mh::text {

namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t i = text.find(from); i != text.npos; i = text.find(from, i + to.size())) text.replace(i, from.size(), to);
}

void join_into_one(std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  pieces.assign(1, std::move(text));
}

// Puts spaces between pieces, as decoding does without a decoder.
class SpaceDecoder : public Decoder {
 public:
  void apply(std::vector<std::string>& pieces) const override {
    for (size_t i = 1; i < pieces.size(); ++i) pieces[i].insert(0, 1, ' ');
  }
};

class ByteLevelDecoder : public Decoder {
 public:
  void apply(std::vector<std::string>& pieces) const override {
    for (std::string& piece : pieces) piece = bytes_of_piece(piece);
    join_into_one(pieces);
  }
};

class ByteFallbackDecoder : public Decoder {
 public:
  void apply(std::vector<std::string>& pieces) const override {
    std::vector<std::string> result;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (find_invalid_utf8(bytes) == bytes.npos) result.push_back(bytes);
      else result.insert(result.end(), bytes.size(), "\uFFFD");
      bytes.clear();
    };
    for (std::string& piece : pieces) {
      if (const int byte = byte_of(piece); byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      result.push_back(std::move(piece));
    }
    flush();
    pieces = std::move(result);
  }

 private:
  // Returns the byte of a piece such as <0x0A>; -1 for other pieces.
  static int byte_of(const std::string& piece) {
    int byte = 0;
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
    const auto result = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
    return result.ec == std::errc() && result.ptr == piece.data() + 5 && byte >= 0 ? byte : -1;
  }
};

class FuseDecoder : public Decoder {
 public:
  void apply(std::vector<std::string>& pieces) const override { join_into_one(pieces); }
};

// Removes up to `start` copies of a character at the start of each piece, and up to `stop` at the end.
class StripDecoder : public Decoder {
 public:
  StripDecoder(std::string character, int64_t start, int64_t stop)
      : character_(std::move(character)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& pieces) const override {
    for (std::string& piece : pieces) {
      std::string_view text = piece;
      for (int64_t i = 0; i < start_ && text.starts_with(character_); ++i) text.remove_prefix(character_.size());
      for (int64_t i = 0; i < stop_ && text.ends_with(character_); ++i) text.remove_suffix(character_.size());
      piece = std::string(text);
    }
  }

 private:
  std::string character_;
  int64_t start_, stop_;
};

class ReplaceDecoder : public Decoder {
 public:
  ReplaceDecoder(Regex regex, std::string replacement)
      : regex_(std::move(regex)), replacement_(std::move(replacement)) {}
  void apply(std::vector<std::string>& pieces) const override {
    std::string out;
    for (std::string& piece : pieces)
      // Byte-level decoding can give text that is not UTF-8, in which nothing is replaced.
      if (find_invalid_utf8(piece) == piece.npos && replace_matches(regex_, piece, replacement_, out)) piece.swap(out);
  }

 private:
  Regex regex_;
  std::string replacement_;
};

class MetaspaceDecoder : public Decoder {
 public:
  MetaspaceDecoder(std::string mark, bool drops_first) : mark_(std::move(mark)), drops_first_(drops_first) {}
  void apply(std::vector<std::string>& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i) replace_all(pieces[i], mark_, i == 0 && drops_first_ ? "" : " ");
  }

 private:
  std::string mark_;
  bool drops_first_;
};

class WordPieceDecoder : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleans_up) : prefix_(std::move(prefix)), cleans_up_(cleans_up) {}
  void apply(std::vector<std::string>& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i) {
      std::string& piece = pieces[i];
      if (i > 0) {
        if (!prefix_.empty() && piece.starts_with(prefix_)) piece.erase(0, prefix_.size());
        else piece.insert(0, 1, ' ');
      }
      if (!cleans_up_) continue;
      static constexpr std::pair<std::string_view, std::string_view> replacements[] = {
          {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
          {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
      for (const auto& [from, to] : replacements) replace_all(piece, from, to);
    }
  }

 private:
  std::string prefix_;
  bool cleans_up_;
};

class BpeDecoder : public Decoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i)
      if (!suffix_.empty()) replace_all(pieces[i], suffix_, i + 1 == pieces.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

std::unique_ptr<Decoder> parse_decoder(const JsonNode& node) {
  const std::string type = node.type();
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  if (type == "Strip") {
    const std::string content = node.text("content", " ");
    if (code_points(content).size() != 1) node.at("content").refuse("one character", "'" + content + "'");
    return std::make_unique<StripDecoder>(content, node.count("start", 0), node.count("stop", 0));
  }
  if (type == "Replace")
    return std::make_unique<ReplaceDecoder>(parse_pattern(node.at("pattern")), node.text("content", ""));
  if (type == "Metaspace") {
    const std::string mark = node.text("replacement", "\u2581");
    if (code_points(mark).size() != 1) node.at("replacement").refuse("one character", "'" + mark + "'");
    const bool drops_first = node.text("prepend_scheme", "always") != "never" && node.flag("add_prefix_space", true);
    return std::make_unique<MetaspaceDecoder>(mark, drops_first);
  }
  if (type == "WordPiece")
    return std::make_unique<WordPieceDecoder>(node.text("prefix", "##"), node.flag("cleanup", true));
  if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(node.text("suffix", "</w>"));
  node.refuse(
      "a decoder of the type Sequence, ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, WordPiece or "
      "BPEDecoder",
      type.empty() ? abbreviate(*node.value) : type, kUseSupportedType);
}

}  // namespace

Decoders parse_decoders(const JsonNode& node) {
  Decoders decoders;
  for (const JsonNode& stage : node.stages("decoders")) decoders.push_back(parse_decoder(stage));
  if (node.empty()) decoders.push_back(std::make_unique<SpaceDecoder>());
  return decoders;
}

}  // namespace mh::text
