#include "text/pipeline/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/unicode.h"
#include "io/checkpoint.h"
#include "text/bert_text.h"
#include "text/byte_bpe.h"
#include "text/pipeline/normalization.h"

namespace mh::text {

namespace {

using Json = nlohmann::json;

class UnicodeNormalizer : public Normalizer {
 public:
  explicit UnicodeNormalizer(NormalizationForm form) : form_(form) {}
  bool apply(std::string_view text, std::string& out) const override { return normalize_unicode(text, form_, out); }

 private:
  NormalizationForm form_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  bool apply(std::string_view text, std::string& out) const override {
    out.clear();
    for (size_t i = 0; i < text.size();) {
      const DecodedCharacter character = decode_utf8(text.data() + i);
      i += character.num_bytes;
      append_lower_case(character.c, out);
    }
    return true;
  }
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool strips_left, bool strips_right) : strips_left_(strips_left), strips_right_(strips_right) {}
  bool apply(std::string_view text, std::string& out) const override {
    size_t begin = 0, end = text.size();
    while (strips_left_ && begin < end) {
      const DecodedCharacter character = decode_utf8(text.data() + begin);
      if (!white_space_characters().contains(character.c)) break;
      begin += character.num_bytes;
    }
    while (strips_right_ && end > begin) {
      size_t last = end - 1;
      while (is_continuation_byte(text[last])) --last;
      if (!white_space_characters().contains(decode_utf8(text.data() + last).c)) break;
      end = last;
    }
    out = text.substr(begin, end - begin);
    return end - begin < text.size();
  }

 private:
  bool strips_left_, strips_right_;
};

class StripAccentsNormalizer : public Normalizer {
 public:
  bool apply(std::string_view text, std::string& out) const override {
    out.clear();
    for (size_t i = 0; i < text.size();) {
      const DecodedCharacter character = decode_utf8(text.data() + i);
      if (!is_stripped_accent(character.c)) out += text.substr(i, character.num_bytes);
      i += character.num_bytes;
    }
    return out.size() < text.size();
  }
};

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(Regex regex, std::string replacement)
      : regex_(std::move(regex)), replacement_(std::move(replacement)) {}
  bool apply(std::string_view text, std::string& out) const override {
    return replace_matches(regex_, text, replacement_, out);
  }

 private:
  Regex regex_;
  std::string replacement_;
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  bool apply(std::string_view text, std::string& out) const override {
    if (text.empty()) return false;
    out = prefix_;
    out += text;
    return true;
  }

 private:
  std::string prefix_;
};

class ByteLevelNormalizer : public Normalizer {
 public:
  bool apply(std::string_view text, std::string& out) const override {
    out.clear();
    append_byte_characters(text, out);
    return true;
  }
};

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const BertNormalisation& options) : options_(options) {}
  bool apply(std::string_view text, std::string& out) const override {
    out.clear();
    for (const BertCharacter& character : bert_characters(text, options_)) append_utf8(character.c, out);
    return true;
  }

 private:
  BertNormalisation options_;
};

// The normalisation table of SentencePiece ("charsmap"): a double-array trie (Darts) of the replaced texts, whose
// values are offsets of zero-terminated replacements. As in Hugging Face tokenizers, and unlike SentencePiece, a
// grapheme cluster of less than six bytes is replaced as a whole by the replacement of its shortest prefix in the
// table; in other clusters each character is looked up.
class PrecompiledNormalizer : public Normalizer {
 public:
  explicit PrecompiledNormalizer(const std::string& table, const JsonNode& node) {
    const auto refuse = [&](const std::string& found) {
      node.refuse("a normalisation table of SentencePiece in base64", found);
    };
    uint32_t num_trie_bytes = 0;
    if (table.size() < 4) refuse(str(table.size(), " bytes"));
    std::memcpy(&num_trie_bytes, table.data(), 4);
    if (num_trie_bytes % 4 != 0 || num_trie_bytes == 0 || num_trie_bytes > table.size() - 4)
      refuse(str("a trie of ", num_trie_bytes, " bytes in a table of ", table.size(), " bytes"));
    trie_.resize(num_trie_bytes / 4);
    std::memcpy(trie_.data(), table.data() + 4, num_trie_bytes);
    replacements_ = table.substr(4 + num_trie_bytes);
    if (find_invalid_utf8(replacements_) != replacements_.npos) refuse("replacements that are not UTF-8");
  }

  bool apply(std::string_view text, std::string& out) const override {
    out.clear();
    bool is_changed = false;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = cluster_end(text, begin);
      const std::string_view cluster = text.substr(begin, end - begin);
      begin = end;
      if (cluster.size() < 6)
        if (const auto replacement = replacement_of(cluster)) {
          out += *replacement;
          is_changed = true;
          continue;
        }
      for (size_t i = 0; i < cluster.size();) {
        const std::string_view character = cluster.substr(i, decode_utf8(cluster.data() + i).num_bytes);
        i += character.size();
        const auto replacement = replacement_of(character);
        is_changed |= replacement.has_value();
        out += replacement.value_or(character);
      }
    }
    return is_changed;
  }

 private:
  static size_t cluster_end(std::string_view text, size_t begin) {
    DecodedCharacter character = decode_utf8(text.data() + begin);
    utf8proc_int32_t state = 0;
    size_t end = begin + character.num_bytes;
    while (end < text.size()) {
      const DecodedCharacter next = decode_utf8(text.data() + end);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(character.c),
                                           static_cast<utf8proc_int32_t>(next.c), &state))
        break;
      character = next;
      end += next.num_bytes;
    }
    return end;
  }

  // Returns the replacement of the shortest prefix of `text` in the table.
  std::optional<std::string_view> replacement_of(std::string_view text) const {
    const auto offset_of = [](uint32_t unit) -> size_t { return (unit >> 10) << ((unit & (1U << 9)) >> 6); };
    size_t position = offset_of(trie_[0]);
    for (char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) break;
      position ^= byte;
      if (position >= trie_.size()) break;
      const uint32_t unit = trie_[position];
      if ((unit & (1U << 31 | 0xFF)) != byte) break;
      position ^= offset_of(unit);
      if ((unit >> 8 & 1) == 0) continue;
      if (position >= trie_.size()) break;
      const size_t begin = trie_[position] & ((1U << 31) - 1);
      // A damaged table may have an offset within a character or past the end; it gives no replacement.
      if (begin > replacements_.size() || (begin < replacements_.size() && is_continuation_byte(replacements_[begin])))
        break;
      return std::string_view(replacements_)
          .substr(begin, std::min(replacements_.find('\0', begin), replacements_.size()) - begin);
    }
    return std::nullopt;
  }

  std::vector<uint32_t> trie_;
  std::string replacements_;
};

std::unique_ptr<Normalizer> parse_bert_normalizer(const JsonNode& node, Json& canonical) {
  node.require("clean_text", {true, nullptr}, kUseSupportedType);
  node.require("handle_chinese_chars", {true, nullptr}, kUseSupportedType);
  BertNormalisation options;
  options.lowercase = node.flag("lowercase", true);
  options.strip_accents = node.flag("strip_accents", options.lowercase);
  canonical.update({{"clean_text", true},
                    {"handle_chinese_chars", true},
                    {"lowercase", options.lowercase},
                    {"strip_accents", options.strip_accents}});
  return std::make_unique<BertNormalizer>(options);
}

std::unique_ptr<Normalizer> parse_precompiled(const JsonNode& node, Json& canonical) {
  const std::string base64 = node.text("precompiled_charsmap", "");
  // The reader of Hugging Face tokenizers accepts no empty table.
  std::string table;
  try {
    table = io::from_base64(base64);
  } catch (const std::invalid_argument&) {
    node.at("precompiled_charsmap").refuse("base64", "other characters");
  }
  canonical["precompiled_charsmap"] = base64;
  return std::make_unique<PrecompiledNormalizer>(table, node.at("precompiled_charsmap"));
}

std::unique_ptr<Normalizer> parse_normalizer(const JsonNode& node, Json& canonical) {
  const std::string type = node.type();
  canonical["type"] = type;
  if (type == "NFC") return std::make_unique<UnicodeNormalizer>(NormalizationForm::nfc);
  if (type == "NFD") return std::make_unique<UnicodeNormalizer>(NormalizationForm::nfd);
  if (type == "NFKC") return std::make_unique<UnicodeNormalizer>(NormalizationForm::nfkc);
  if (type == "NFKD") return std::make_unique<UnicodeNormalizer>(NormalizationForm::nfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Strip") {
    const bool strips_left = node.flag("strip_left", true), strips_right = node.flag("strip_right", true);
    canonical.update({{"strip_left", strips_left}, {"strip_right", strips_right}});
    return std::make_unique<StripNormalizer>(strips_left, strips_right);
  }
  if (type == "Replace") {
    const std::string content = node.text("content", "");
    canonical.update({{"content", content}, {"pattern", *node.at("pattern").value}});
    return std::make_unique<ReplaceNormalizer>(parse_pattern(node.at("pattern")), content);
  }
  if (type == "Prepend") {
    const std::string prefix = node.text("prepend", "");
    canonical["prepend"] = prefix;
    return std::make_unique<PrependNormalizer>(prefix);
  }
  if (type == "BertNormalizer") return parse_bert_normalizer(node, canonical);
  if (type == "Precompiled") return parse_precompiled(node, canonical);
  node.refuse(
      "a normalizer of the type Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, "
      "ByteLevel, BertNormalizer or Precompiled",
      type.empty() ? abbreviate(*node.value) : type, kUseSupportedType);
}

}  // namespace

Normalizers parse_normalizers(const JsonNode& node, Json& canonical) {
  Normalizers normalizers;
  for (const JsonNode& stage : node.stages("normalizers")) {
    Json settings = Json::object();
    normalizers.push_back(parse_normalizer(stage, settings));
    canonical.push_back(std::move(settings));
  }
  return normalizers;
}

std::string_view normalize(const Normalizers& normalizers, std::string_view text, std::string (&buffers)[2]) {
  int buffer = 0;
  for (const auto& normalizer : normalizers) {
    if (!normalizer->apply(text, buffers[buffer])) continue;
    text = buffers[buffer];
    buffer = 1 - buffer;
  }
  return text;
}

bool replace_matches(const Regex& regex, std::string_view text, std::string_view replacement, std::string& out) {
  Regex::Workspace workspace;
  Regex::Searcher searcher(regex, workspace);
  searcher.begin(text);
  out.clear();
  size_t copied_end = 0;
  bool is_changed = false;
  for (Regex::Match match{}; searcher.next(match); copied_end = match.end) {
    out += text.substr(copied_end, match.begin - copied_end);
    out += replacement;
    is_changed = true;
  }
  out += text.substr(copied_end);
  return is_changed;
}

Regex parse_pattern(const JsonNode& node) {
  const auto& object = *node.value;
  const bool is_literal = object.is_object() && object.contains("String");
  const JsonNode pattern = node.at(is_literal ? "String" : "Regex");
  if (!object.is_object() || object.size() != 1 || !pattern.value->is_string())
    node.refuse("an object with the entry String or Regex", abbreviate(object));
  const auto& text = pattern.value->get_ref<const std::string&>();
  if (!is_literal) return Regex(text, pattern.path);
  if (text.empty()) pattern.refuse("a text that is not empty", "an empty text", kUseSupportedType);
  return Regex::of_literal(text, pattern.path);
}

void append_byte_characters(std::string_view text, std::string& out) {
  static const auto characters = [] {
    std::array<std::string, 256> result;
    for (size_t byte = 0; byte < result.size(); ++byte)
      append_utf8(character_of_byte(static_cast<uint8_t>(byte)), result[byte]);
    return result;
  }();
  for (char byte : text) out += characters[static_cast<unsigned char>(byte)];
}

}  // namespace mh::text
