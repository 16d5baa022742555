#include "text/merges.h"

#include <algorithm>
#include <optional>

#include "base/empty_input.h"
#include "base/error.h"
#include "base/text.h"
#include "base/unicode.h"
#include "text/text_bytes.h"
#include "text/tokenizer.h"

namespace mh::text {

namespace {

constexpr std::string_view kCodesHeader = "#version: 0.2";

// Parses a line of a codes file as subword-nmt does; returns std::nullopt if the line is not a merge.
std::optional<Merge> parse_merge(std::string_view line) {
  constexpr std::string_view trimmed_characters = " \r";
  const size_t begin = line.find_first_not_of(trimmed_characters);
  if (begin == line.npos) return {};
  line = line.substr(begin, line.find_last_not_of(trimmed_characters) + 1 - begin);
  const size_t space = line.find(' ');
  if (space == line.npos || line.find(' ', space + 1) != line.npos) return {};
  return Merge{std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

}  // namespace

std::string serialize_codes(const std::vector<Merge>& merges, const std::string& name) {
  std::string text = std::string(kCodesHeader) + "\n";
  for (size_t i = 0; i < merges.size(); ++i) {
    const Merge& m = merges[i];
    const std::string line = m.left + " " + m.right;
    if (parse_merge(line) != m || line.find('\n') != line.npos || find_invalid_byte(line) != line.npos)
      refuse_input(str(name, ": merge ", i + 1), "symbols that codes of subword-nmt can represent",
                   str("'", escape_piece(m.left), "' and '", escape_piece(m.right),
                       "', which readers of this format would change or refuse"),
                   "give the vocabulary itself to --codes, or learn merges from text without carriage returns");
    text += line + "\n";
  }
  return text;
}

std::vector<Merge> read_codes(const std::string& bytes, const std::string& name) {
  if (is_vocabulary_file(bytes)) {
    VocabularyFile file = read_vocabulary(bytes, name);
    if (file.type != "subword-nmt")
      refuse_input(name, "codes of subword-nmt, or a vocabulary of the type subword-nmt",
                   "a vocabulary of the type " + file.type,
                   "make a vocabulary with mh-prep vocab --type subword-nmt --merges 10000");
    return std::move(file.merges);
  }
  std::vector<Merge> merges;
  std::string_view remaining_text = validate_text(bytes, name);
  if (remaining_text.empty())
    throw empty_input_error(name, "codes of subword-nmt learn-bpe",
                            "learn codes with subword-nmt learn-bpe, or copy the file again");
  for (size_t line_number = 1; !remaining_text.empty(); ++line_number) {
    const size_t end = std::min(remaining_text.find('\n'), remaining_text.size());
    std::string_view text = remaining_text.substr(0, end);
    remaining_text.remove_prefix(std::min(end + 1, remaining_text.size()));
    const std::string where = str(name, ":", line_number);
    if (line_number == 1) {
      while (text.ends_with('\r') || text.ends_with(' ')) text.remove_suffix(1);
      if (text != kCodesHeader)
        refuse_input(where, "codes of subword-nmt, which begin with '" + std::string(kCodesHeader) + "'",
                     quote_start(text),
                     "learn codes with subword-nmt learn-bpe, or with mh-prep vocab --type subword-nmt --merges 10000");
      continue;
    }
    auto merge = parse_merge(text);
    if (!merge)
      refuse_input(where, "two symbols separated by a space", quote_start(text),
                   "the file is damaged; learn the codes again, or copy the file again");
    merges.push_back(std::move(*merge));
  }
  return merges;
}

Segmenter::Segmenter(const std::vector<Merge>& merges) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& m = merges[rank];
    MergeTable::Entry& entry =
        merge_table_.find_or_insert(find_or_insert_symbol(m.left), find_or_insert_symbol(m.right));
    if (entry.rank > rank)
      entry = {rank, find_or_insert_symbol(m.left + m.right)};  // the first rank of a repeated merge applies
  }
}

int32_t Segmenter::find_or_insert_symbol(const std::string& text) {
  const auto new_id = static_cast<int32_t>(symbol_ids_.size());
  int32_t& id = symbol_ids_[std::string_view(text)];
  if (symbol_ids_.size() > static_cast<size_t>(new_id)) id = new_id;
  return id;
}

std::vector<size_t> Segmenter::piece_lengths(std::string_view word) const {
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < word.size();) {
    size_t n = 1;
    while (i + n < word.size() && is_continuation_byte(word[i + n])) ++n;
    std::string text(word.substr(i, n));
    if (i + n == word.size()) text += kEndOfWord;
    const int32_t* id = symbol_ids_.find(WordKey(text));
    symbols.push_back({id != nullptr ? *id : -1, n});
    i += n;
  }
  merge_table_.apply(symbols, MergeOrder::rounds);
  std::vector<size_t> lengths;
  lengths.reserve(symbols.size());
  for (const Symbol& s : symbols) lengths.push_back(s.num_bytes);
  return lengths;
}

}  // namespace mh::text
