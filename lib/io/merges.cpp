#include "io/merges.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "io/tokenizer.h"

namespace mh::io {

namespace {

constexpr std::string_view kCodesHead = "#version: 0.2";

struct PairKey {
  int32_t symbols[2];
  operator std::string_view() const { return {reinterpret_cast<const char*>(symbols), sizeof symbols}; }
};

}  // namespace

std::string write_codes(const std::vector<Merge>& merges) {
  std::string text = std::string(kCodesHead) + "\n";
  for (const Merge& m : merges) text += m.left + " " + m.right + "\n";
  return text;
}

std::vector<Merge> read_codes(const std::string& bytes, const std::string& name) {
  if (is_vocabulary_file(bytes)) {
    VocabularyFile file = read_vocabulary(bytes, name);
    if (file.type != "subword-nmt")
      throw Error(Exit::input, Problem{name, "codes of subword-nmt, or a vocabulary of that type",
                                       "a vocabulary of the type " + file.type,
                                       "make one with mh-prep vocab --type subword-nmt --merges"});
    return std::move(file.merges);
  }
  std::vector<Merge> merges;
  std::string_view rest = bytes;
  for (size_t line = 1; !rest.empty(); ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
    const std::string where = str(name, ":", line);
    if (find_invalid_utf8(text) != text.npos)
      throw Error(Exit::input, Problem{where, "codes of subword-nmt", "bytes that are not UTF-8", ""});
    if (line == 1) {
      if (text != kCodesHead)
        throw Error(Exit::input,
                    Problem{where, "codes of subword-nmt, which begin with '" + std::string(kCodesHead) + "'",
                            "'" + escaped(std::string(text.substr(0, 40))) + "'",
                            "learn them with subword-nmt learn-bpe, or give --merges"});
      continue;
    }
    const size_t space = text.find(' ');
    if (space == text.npos || space == 0 || text.find(' ', space + 1) != text.npos)
      throw Error(Exit::input,
                  Problem{where, "two symbols, a space between", "'" + std::string(text.substr(0, 40)) + "'",
                          "the codes are damaged; learn or copy them again"});
    merges.push_back({std::string(text.substr(0, space)), std::string(text.substr(space + 1))});
  }
  if (bytes.empty()) throw Error(Exit::input, Problem{name, "codes of subword-nmt", "an empty file", ""});
  return merges;
}

Segmenter::Segmenter(const std::vector<Merge>& merges) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& m = merges[rank];
    Join& j = joins_[PairKey{{symbol_of(m.left), symbol_of(m.right)}}];
    if (j.rank > rank) j = {rank, symbol_of(m.left + m.right)};  // of a merge that is listed twice the first one counts
  }
}

int32_t Segmenter::symbol_of(const std::string& text) {
  const auto next = static_cast<int32_t>(symbols_.size());
  int32_t& symbol = symbols_[std::string_view(text)];
  if (symbols_.size() > static_cast<size_t>(next)) symbol = next;
  return symbol;
}

const Segmenter::Join* Segmenter::join(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return nullptr;
  return joins_.find(WordKey(PairKey{{left, right}}));
}

std::vector<size_t> Segmenter::divide(std::string_view word) const {
  struct Symbol {
    int32_t number;
    size_t bytes;  // 0: joined to the one before
    int64_t before, after;
  };
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < word.size();) {
    size_t n = 1;
    while (i + n < word.size() && (static_cast<unsigned char>(word[i + n]) & 0xC0) == 0x80) ++n;
    std::string text(word.substr(i, n));
    if (i + n == word.size()) text += kEndOfWord;
    const int32_t* number = symbols_.find(WordKey(text));
    const auto at = static_cast<int64_t>(symbols.size());
    symbols.push_back({number != nullptr ? *number : -1, n, at - 1, at + 1});
    i += n;
  }
  const auto count = static_cast<int64_t>(symbols.size());

  // Pairs that can be joined: rank and place, with the symbols that stood there.
  using Place = std::tuple<size_t, int64_t, int32_t, int32_t>;
  std::priority_queue<Place, std::vector<Place>, std::greater<>> places;
  auto look_at = [&](int64_t left) {
    if (left < 0 || symbols[static_cast<size_t>(left)].after >= count) return;
    const Symbol& l = symbols[static_cast<size_t>(left)];
    const Symbol& r = symbols[static_cast<size_t>(l.after)];
    if (const Join* j = join(l.number, r.number)) places.emplace(j->rank, left, l.number, r.number);
  };
  for (int64_t i = 0; i + 1 < count; ++i) look_at(i);
  std::vector<int64_t> joined;
  while (!places.empty()) {
    // A round: all places of this rank, before any pair that arises from them, whatever its rank.
    const size_t rank = std::get<0>(places.top());
    joined.clear();
    while (!places.empty() && std::get<0>(places.top()) == rank) {
      const auto [r, at, left, right] = places.top();
      places.pop();
      Symbol& l = symbols[static_cast<size_t>(at)];
      if (l.bytes == 0 || l.after >= count || l.number != left) continue;
      Symbol& gone = symbols[static_cast<size_t>(l.after)];
      if (gone.number != right) continue;
      l.number = join(left, right)->symbol;
      l.bytes += gone.bytes;
      gone.bytes = 0;
      l.after = gone.after;
      if (l.after < count) symbols[static_cast<size_t>(l.after)].before = at;
      joined.push_back(at);
    }
    for (int64_t at : joined) {
      look_at(symbols[static_cast<size_t>(at)].before);
      look_at(at);
    }
  }
  std::vector<size_t> pieces;
  for (const Symbol& s : symbols)
    if (s.bytes > 0) pieces.push_back(s.bytes);
  return pieces;
}

}  // namespace mh::io
