// Tests of the subword-nmt tokenizer: learning and applying merges, compared with naive references, and files of codes.
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/text.h"
#include "fixtures/status.h"
#include "text/merges.h"

using namespace mh;
using namespace mh::text;

namespace {

using Symbols = std::vector<std::string>;

Symbols symbols_of(const std::string& word) {
  Symbols out;
  for (char c : word) {
    if ((static_cast<unsigned char>(c) & 0xC0) == 0x80) out.back() += c;
    else out.emplace_back(1, c);
  }
  out.back() += "</w>";
  return out;
}

// Applies a merge to all occurrences of its pair, from left to right.
Symbols apply_merge(const Symbols& symbols, const Merge& m) {
  Symbols out;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const bool matches = i + 1 < symbols.size() && symbols[i] == m.left && symbols[i + 1] == m.right;
    out.push_back(matches ? m.left + m.right : symbols[i]);
    if (matches) ++i;
  }
  return out;
}

// Learns merges by recounting all pairs for each merge. Sets `recreates_symbol` to true if a merge creates a symbol
// that already existed.
std::vector<Merge> naive_learn(const std::map<std::string, int64_t>& words, size_t num_merges, bool* recreates_symbol) {
  std::vector<std::pair<Symbols, int64_t>> text;
  std::set<std::string> existing_symbols;
  for (const auto& [word, count] : words) {
    text.emplace_back(symbols_of(word), count);
    existing_symbols.insert(text.back().first.begin(), text.back().first.end());
  }
  std::vector<Merge> result;
  while (result.size() < num_merges) {
    std::map<std::pair<std::string, std::string>, int64_t> counts;
    for (const auto& [symbols, count] : text)
      for (size_t i = 0; i + 1 < symbols.size(); ++i) counts[{symbols[i], symbols[i + 1]}] += count;
    int64_t max_count = 0;
    Merge merge;
    for (const auto& [pair, count] : counts)  // in ascending order, so the greatest of equally frequent pairs wins
      if (count >= max_count) max_count = count, merge = {pair.first, pair.second};
    if (max_count < 2) break;
    result.push_back(merge);
    *recreates_symbol = *recreates_symbol || !existing_symbols.insert(merge.left + merge.right).second;
    for (auto& [symbols, count] : text) symbols = apply_merge(symbols, merge);
  }
  return result;
}

Symbols naive_divide(const std::string& word, const std::vector<Merge>& merges) {
  Symbols symbols = symbols_of(word);
  for (;;) {
    size_t best_rank = merges.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      for (size_t m = 0; m < best_rank; ++m)
        if (merges[m] == Merge{symbols[i], symbols[i + 1]}) best_rank = m;
    if (best_rank == merges.size()) break;
    symbols = apply_merge(symbols, merges[best_rank]);
  }
  symbols.back().resize(symbols.back().size() - 4);
  return symbols;
}

Symbols divide(const std::string& word, const std::vector<Merge>& merges) {
  Symbols out;
  size_t at = 0;
  for (size_t size : Segmenter(merges).piece_lengths(word)) {
    out.push_back(word.substr(at, size));
    at += size;
  }
  return out;
}

std::vector<Merge> learn(const std::map<std::string, int64_t>& words, int64_t num_merges) {
  WordMap<uint64_t> counts;
  for (const auto& [word, count] : words) counts[std::string_view(word)] = static_cast<uint64_t>(count);
  return learn_merges(counts, num_merges);
}

rc::Gen<std::string> any_word() {
  return rc::gen::map(
      rc::gen::nonEmpty(rc::gen::container<Symbols>(rc::gen::element<std::string>("a", "b", "ä", "</w>"))),
      [](const Symbols& parts) {
        std::string word;
        for (const std::string& p : parts) word += p;
        return word;
      });
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> out;
  tokenizer.encoder()->encode(text, out);
  return out;
}

}  // namespace

TEST_CASE("learn_merges() equals a naive reference that recounts all pairs for each merge", "[subword]") {
  CHECK(rc::check([] {
    const auto letter = rc::gen::element<std::string>("a", "b", "c", "d", "e", "f", "g", "ä");
    const auto list = *rc::gen::nonEmpty(
        rc::gen::container<std::vector<Symbols>>(rc::gen::nonEmpty(rc::gen::container<Symbols>(letter))));
    std::map<std::string, int64_t> words;
    for (const Symbols& word : list) words[join(word, "")] += *rc::gen::inRange(1, 30);
    bool recreates_symbol = false;
    const std::vector<Merge> expected = naive_learn(words, 30, &recreates_symbol);
    // If several merges create the same symbol, subword-nmt's learn-bpe counts some pairs with this symbol twice.
    // learn_merges() reproduces these counts; naive_learn() does not.
    RC_PRE(!recreates_symbol);
    RC_ASSERT(learn(words, 30) == expected);
  }));
  CHECK(learn({{"a</w>a", 1}, {"a</w>aa", 1}}, 9).size() == 5);
}

TEST_CASE("of equally frequent pairs, the lexicographically greater is merged first", "[subword]") {
  CHECK(learn({{"ab", 3}, {"cd", 3}, {"ca", 3}}, 2) == (std::vector<Merge>{{"c", "d</w>"}, {"c", "a</w>"}}));
  CHECK(learn({{"ab", 1}, {"cd", 1}}, 5).empty());  // no pair occurs twice
  CHECK(learn({{"a", 9}}, 5).empty());              // one letter has no pair
  // Pairs are merged from left to right, and of overlapping occurrences only the first is merged.
  CHECK(learn({{"aaaaa", 2}}, 3) == (std::vector<Merge>{{"a", "a"}, {"aa", "aa"}, {"aaaa", "a</w>"}}));
}

TEST_CASE("Segmenter divides words as a naive reference does, for any merges", "[subword]") {
  CHECK(rc::check([] {
    const auto symbol =
        rc::gen::element<std::string>("a", "b", "ä", "aa", "ab", "ba", "b</w>", "a</w>", "ab</w>", "aab");
    std::vector<Merge> merges;
    for (const auto& [left, right] :
         *rc::gen::container<std::vector<std::pair<std::string, std::string>>>(rc::gen::pair(symbol, symbol)))
      merges.push_back({left, right});
    const std::string word = *any_word();
    RC_ASSERT(divide(word, merges) == naive_divide(word, merges));
  }));
  // A duplicate merge has the rank of its first occurrence.
  const std::vector<Merge> duplicates{{"a", "b"}, {"b", "c</w>"}, {"b", "c</w>"}, {"a", "b"}};
  CHECK(divide("abc", duplicates) == Symbols{"ab", "c"});
  // A word of 2^20 letters, which would take too long in quadratic time.
  CHECK(divide(std::string(1 << 20, 'a'), {{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}).size() == (1 << 17) + 3);
}

TEST_CASE("a file of codes reads back equal, and invalid codes are refused", "[subword]") {
  const std::vector<Merge> merges{{"a", "b"}, {"ab", "ä</w>"}};
  CHECK(serialize_codes(merges, "codes") == "#version: 0.2\na b\nab ä</w>\n");
  CHECK(read_codes(serialize_codes(merges, "codes"), "codes") == merges);
  CHECK(read_codes("#version: 0.2\r\na b\r\n", "codes") == std::vector<Merge>{{"a", "b"}});
  CHECK(read_codes("#version: 0.2", "codes").empty());
  for (const char* invalid : {"", "a b\n", "#version: 0.1\na b\n", "#version: 0.2\nab\n", "#version: 0.2\na b c\n",
                              "#version: 0.2\n a\n", "#version: 0.2\n\n", "#version: 0.2\na \xff\n"})
    CHECK(status_of([&] { read_codes(invalid, "codes"); }) == 3);
  CHECK(status_of([&] { read_codes(serialize_vocabulary("byte", {}), "v"); }) == 3);
}

TEST_CASE("pieces inside a word end in @@, and decode joins them to the next piece", "[subword]") {
  const std::vector<Merge> merges{{"l", "o"}, {"lo", "w</w>"}, {"e", "r</w>"}};
  const auto tokenizer = make_subword_tokenizer(
      {{"<eos>", 1}, {"<unk>", 0}, {"low", 5}, {"lo@@", 3}, {"w@@", 2}, {"er", 2}, {"t", 1}, {"\t@@", 1}}, merges);
  CHECK(tokenizer->type() == "subword-nmt");
  CHECK(tokenizer->size() == 8);
  CHECK(encode(*tokenizer, "low lower  lot ") == std::vector<int32_t>{2, 3, 4, 5, 3, 6});
  CHECK(encode(*tokenizer, "low x\tt") == std::vector<int32_t>{2, 1, 7, 6});  // a tab does not separate words
  const std::vector<int32_t> line{2, 3, 4, 5, 3, 0, 6};
  CHECK(tokenizer->decode(line) == "low lower lo\nt");
  CHECK(tokenizer->find_split("low lo") == 4);
  CHECK(tokenizer->find_split("low") == std::string::npos);

  const auto reparsed_tokenizer = parse_tokenizer(tokenizer->serialize(), "v");
  CHECK(reparsed_tokenizer->serialize() == tokenizer->serialize());
  CHECK(reparsed_tokenizer->fingerprint() == tokenizer->fingerprint());
  CHECK(encode(*reparsed_tokenizer, "lower low") == encode(*tokenizer, "lower low"));
  CHECK(read_codes(tokenizer->serialize(), "v") == merges);
  // The fingerprint covers the merges.
  CHECK(make_subword_tokenizer({{"<eos>", 1}, {"<unk>", 0}}, {})->fingerprint() !=
        make_subword_tokenizer({{"<eos>", 1}, {"<unk>", 0}}, merges)->fingerprint());
  // Vocabularies without special pieces, without merges or with an invalid merge are refused.
  CHECK(status_of([&] { parse_tokenizer(serialize_vocabulary("subword-nmt", {{"a", 1}}, &merges), "v"); }) == 3);
  CHECK(status_of([&] {
          parse_tokenizer(serialize_vocabulary("subword-nmt", {{"<eos>", 1}, {"<unk>", 0}}), "v");
        }) == 3);
  for (const Merge& invalid : {Merge{"", "b"}, Merge{"a", ""}, Merge{"a", "\xff"}}) {
    const std::vector<Merge> invalid_merges{invalid};
    CHECK(status_of([&] {
            parse_tokenizer(serialize_vocabulary("subword-nmt", {{"<eos>", 1}, {"<unk>", 0}}, &invalid_merges), "v");
          }) == 3);
  }
}

TEST_CASE("text of known characters decodes to itself for any learnt merges", "[subword]") {
  CHECK(rc::check([] {
    const auto list = *rc::gen::nonEmpty(rc::gen::container<Symbols>(any_word()));
    std::map<std::string, int64_t> words;
    for (const std::string& word : list) words[word] += 1;
    const std::vector<Merge> merges = learn(words, 10);
    const Segmenter segmenter(merges);
    std::map<std::string, uint64_t> pieces;
    std::string text;
    for (const std::string& word : list) {
      text += (text.empty() ? "" : " ") + word;
      for_each_piece(segmenter, word, [&](std::string_view piece) { ++pieces[std::string(piece)]; });
    }
    std::vector<Piece> entries{{"<eos>", 1}, {"<unk>", 0}};
    for (const auto& [piece, count] : pieces) entries.push_back({piece, count});
    const auto tokenizer = make_subword_tokenizer(entries, merges);
    const std::vector<int32_t> tokens = encode(*tokenizer, text);
    RC_ASSERT(count_unknown(tokens, *tokenizer) == 0U);
    RC_ASSERT(tokenizer->decode(tokens) == text);
  }));
}
