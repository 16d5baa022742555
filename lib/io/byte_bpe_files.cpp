// vocab.json and merges.txt of GPT-2.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "io/byte_bpe.h"

namespace mh::io {

using nlohmann::ordered_json;

std::vector<Piece> read_byte_bpe_pieces(const std::string& json, const std::string& name) {
  auto refuse = [&](const std::string& expected, const std::string& found) {
    throw Error(Exit::input, Problem{name, expected, found, "copy it again"});
  };
  require_sound_json(json, name, "copy it again");
  const auto all = nlohmann::json::parse(json, nullptr, false);
  if (!all.is_object() || all.empty()) refuse("JSON from pieces to numbers, GPT-2's vocab.json", "something else");
  std::vector<Piece> pieces(all.size());
  for (const auto& [piece, number] : all.items()) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() >= pieces.size())
      refuse(str("a number below ", pieces.size(), ", that of the pieces, for '", piece, "'"), number.dump());
    std::string& text = pieces[number.get<uint64_t>()].text;
    if (piece.empty()) refuse("pieces", "an empty one");
    if (!text.empty()) refuse("a number of its own for each piece", str("one for '", text, "' and '", piece, "'"));
    text = piece;
  }
  return pieces;
}

std::vector<Merge> read_byte_bpe_merges(const std::string& text, const std::string& name) {
  std::vector<Merge> merges;
  std::string_view rest = text;
  for (size_t line = 1; !rest.empty(); ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view now = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (now.ends_with('\r')) now.remove_suffix(1);
    if ((line == 1 && now.starts_with("#version")) || (now.empty() && rest.empty())) continue;
    const size_t space = now.find(' ');
    if (space == now.npos || space == 0 || space + 1 == now.size() || now.find(' ', space + 1) != now.npos ||
        find_invalid_utf8(now) != now.npos)
      throw Error(Exit::input, Problem{str(name, ":", line), "two symbols, a space between: GPT-2's merges.txt",
                                       "'" + escaped(std::string(now.substr(0, 40))) + "'", "copy it again"});
    merges.push_back({std::string(now.substr(0, space)), std::string(now.substr(space + 1))});
  }
  if (merges.empty()) throw Error(Exit::input, Problem{name, "merges", "none", "copy it again"});
  return merges;
}

std::unique_ptr<ByteBpeTokenizer> load_byte_bpe_tokenizer(const std::string& folder) {
  const std::string vocabulary = folder + "/vocab.json", merges = folder + "/merges.txt";
  std::vector<Piece> pieces = read_byte_bpe_pieces(read_text_file(vocabulary), vocabulary);
  return make_byte_bpe_tokenizer(std::move(pieces), read_byte_bpe_merges(read_text_file(merges), merges), folder);
}

std::string write_byte_bpe_pieces(const std::vector<Piece>& pieces) {
  ordered_json all = ordered_json::object();
  for (size_t i = 0; i < pieces.size(); ++i) all[pieces[i].text] = i;
  return all.dump();
}

std::string write_byte_bpe_merges(const std::vector<Merge>& merges) {
  std::string text = "#version: 0.2\n";
  for (const Merge& m : merges) text += m.left + " " + m.right + "\n";
  return text;
}

}  // namespace mh::io
