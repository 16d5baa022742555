// Parses and serialises the content of vocab.json and merges.txt of GPT-2, and serialises its tokenizer.json.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/json_types.h"
#include "base/text.h"
#include "text/byte_bpe.h"
#include "text/text_bytes.h"
#include "text/tokenizer_json.h"

namespace mh::text {

NumberedPieces read_numbered_pieces(const std::string& bytes, const std::string& name) {
  validate_text(bytes, name);
  return numbered_pieces(parse_json_object<nlohmann::json>(bytes, name, "copy the file again"), name);
}

namespace {

// Parses a line of merges.txt; returns std::nullopt if the line is not a merge.
std::optional<Merge> parse_merge(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const size_t space = line.find(' ');
  if (space == line.npos || space == 0 || space + 1 == line.size() || line.find(' ', space + 1) != line.npos ||
      find_invalid_byte(line) != line.npos)
    return {};
  return Merge{std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

[[noreturn]] void refuse_to_write(const std::string& where, const std::string& expected, const std::string& found) {
  refuse_input(where, expected, found, "use the vocabulary file of mh-prep without conversion");
}

}  // namespace

std::vector<Merge> read_byte_bpe_merges(const std::string& text, const std::string& name) {
  std::vector<Merge> merges;
  std::string_view remaining_text = validate_text(text, name);
  for (size_t line_number = 1; !remaining_text.empty(); ++line_number) {
    const size_t end = std::min(remaining_text.find('\n'), remaining_text.size());
    const std::string_view line_text = remaining_text.substr(0, end);
    remaining_text.remove_prefix(std::min(end + 1, remaining_text.size()));
    if ((line_number == 1 && line_text.starts_with("#version")) ||
        ((line_text.empty() || line_text == "\r") && remaining_text.empty()))
      continue;
    auto merge = parse_merge(line_text);
    if (!merge)
      refuse_input(str(name, ":", line_number), "two symbols separated by a space, as in GPT-2's merges.txt",
                   quote_start(line_text), "copy the file again");
    merges.push_back(std::move(*merge));
  }
  if (merges.empty()) refuse_input(name, "at least one merge", "none", "copy the file again");
  return merges;
}

std::string serialize_byte_bpe_pieces(const NumberedPieces& pieces) {
  std::string json;
  WordMap<bool> written_pieces;
  for (const auto& [id, piece] : pieces) {
    if (piece.empty() || find_invalid_utf8(piece) != piece.npos || std::exchange(written_pieces[piece], true))
      refuse_to_write(str("vocab.json: entry ", id), "distinct pieces of UTF-8 text",
                      "'" + escape_piece(piece) + "', which is empty, repeated or not UTF-8");
    json += str(json.empty() ? "{" : ",", nlohmann::json(piece).dump(), ":", id);
  }
  if (pieces.empty()) refuse_to_write("vocab.json", "at least one piece", "none");
  return json + "}";
}

std::string serialize_byte_bpe_merges(const std::vector<Merge>& merges) {
  std::string text = "#version: 0.2\n";
  for (size_t i = 0; i < merges.size(); ++i) {
    const Merge& m = merges[i];
    const std::string line = m.left + " " + m.right;
    if (line.find('\n') != line.npos || parse_merge(line) != m)
      refuse_to_write(str("merges.txt: merge ", i + 1), "symbols that a line of GPT-2's merges.txt can represent",
                      str("'", escape_piece(m.left), "' and '", escape_piece(m.right), "'"));
    text += line + "\n";
  }
  if (merges.empty()) refuse_to_write("merges.txt", "at least one merge", "none");
  return text;
}

std::string serialize_byte_bpe_json(const ByteBpeTokenizer& tokenizer) {
  using Json = nlohmann::json;
  Json vocabulary = Json::object(), merges = Json::array(), added_tokens = Json::array();
  for (size_t i = 0; i < tokenizer.pieces().size(); ++i) vocabulary[tokenizer.pieces()[i].text] = i;
  // tokenizers reads either strings or pairs, and needs pairs if a symbol has a space.
  const bool has_space = std::any_of(tokenizer.merges().begin(), tokenizer.merges().end(), [](const Merge& merge) {
    return (merge.left + merge.right).find(' ') != std::string::npos;
  });
  for (const Merge& merge : tokenizer.merges())
    merges.push_back(has_space ? Json::array({merge.left, merge.right}) : Json(merge.left + " " + merge.right));
  for (const auto& [id, attributes] : tokenizer.added_tokens()) {
    Json token = {{"id", id}, {"content", tokenizer.piece(static_cast<int32_t>(id))}};
    for (const char* flag : kTokenFlags) token[flag] = attributes.count(flag) > 0;
    added_tokens.push_back(std::move(token));
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false},
                {"vocab", std::move(vocabulary)},
                {"merges", std::move(merges)}};
  return Json({{"version", "1.0"},
               {"added_tokens", std::move(added_tokens)},
               {"normalizer", nullptr},
               {"pre_tokenizer", byte_level},
               {"post_processor", byte_level},
               {"decoder", byte_level},
               {"model", std::move(model)}})
      .dump();
}

}  // namespace mh::text
