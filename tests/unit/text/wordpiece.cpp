// WordPiece: normalising by hand, dividing and learning against plain loops over the definition, places in the text,
// and what is refused.
#include "text/wordpiece.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/text.h"
#include "base/unicode.h"
#include "fixtures/status.h"
#include "text/vocabulary.h"

using namespace mh;
using namespace mh::text;

namespace {

using Ids = std::vector<int32_t>;
using Words = std::vector<std::string>;

std::string utf8(std::span<const BertCharacter> characters) {
  std::string text;
  for (const BertCharacter& now : characters) append_utf8(now.c, text);
  return text;
}

Words words_of(const std::string& text, const BertText& options = {}) {
  Words words;
  each_bert_word(bert_characters(text, options),
                 [&](std::span<const BertCharacter> word) { words.push_back(utf8(word)); });
  return words;
}

std::vector<Piece> with_special(const Words& more) {
  std::vector<Piece> pieces{{"[PAD]", 0}, {"[UNK]", 0}, {"[CLS]", 0}, {"[SEP]", 0}, {"[MASK]", 0}};
  for (const std::string& piece : more) pieces.push_back({piece, 1});
  return pieces;
}

std::unique_ptr<WordPieceTokenizer> tokenizer_of(const Words& more, const BertText& options = {}) {
  return make_wordpiece_tokenizer(with_special(more), options, "test");
}

Ids encoded(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  tokenizer.encoder()->encode(text, ids);
  return ids;
}

// "piece:the text that it comes from"
Words placed(const WordPieceTokenizer& tokenizer, const std::string& text) {
  Ids ids;
  std::vector<TextRange> ranges;
  tokenizer.encode_with_ranges(text, ids, ranges);
  REQUIRE(ids.size() == ranges.size());
  Words out;
  for (size_t i = 0; i < ids.size(); ++i)
    out.push_back(tokenizer.piece(ids[i]) + ":" + text.substr(ranges[i].begin, ranges[i].end - ranges[i].begin));
  return out;
}

// The definition: of what is left of a word the longest piece that begins it.
Ids divided_plainly(const std::u32string& word, const std::vector<Piece>& pieces, int32_t unknown) {
  std::map<std::string, int32_t> numbers;
  for (size_t i = 0; i < pieces.size(); ++i) numbers[pieces[i].text] = static_cast<int32_t>(i);
  if (word.size() > 100) return {unknown};
  Ids ids;
  for (size_t at = 0; at < word.size();) {
    size_t end = word.size();
    for (; end > at; --end) {
      std::string piece = at > 0 ? "##" : "";
      for (size_t i = at; i < end; ++i) append_utf8(word[i], piece);
      if (auto it = numbers.find(piece); it != numbers.end()) {
        ids.push_back(it->second);
        break;
      }
    }
    if (end == at) return {unknown};
    at = end;
  }
  return ids;
}

// Text without a line end and NUL: of few letters, so that pieces are found, and of everything that is special.
rc::Gen<std::string> any_text() {
  auto letter =
      rc::gen::element<std::string>("a", "b", "A", "B", "ab", "\u00e9", "\u00c9", "e\u0301", "\u0130", "\u00df");
  auto odd = rc::gen::element<std::string>("!", "-", "#", "[", "\u4e2d", "\u3002", "\u200b", "\x01", "\x7f", "\u00ad",
                                           "\ufffd", "\u0301", "\u0344\u0316", "\U0001d16d", "\u302e", "\uac01",
                                           "\U0001F600", "\v", "\f");
  auto space = rc::gen::element<std::string>(" ", " ", "\t", "\r", "\u00a0", "\u3000", "\u2028");
  auto sized = rc::gen::map(rc::gen::inRange<size_t>(55, 110), [](size_t n) { return std::string(n, 'a'); });
  auto part = rc::gen::weightedOneOf<std::string>({{8, letter}, {3, odd}, {3, space}, {1, sized}});
  return rc::gen::map(rc::gen::container<Words>(part), [](const Words& parts) { return join(parts, ""); });
}

const Words kSome{"a",      "b",        "ab",       "##a",      "##b", "##ab", "##aab",  "A",        "##B",
                  "\u00e9", "##\u00e9", "##e",      "e",        "!",   "-",    "#",      "[",        "i",
                  "##i",    "\u4e2d",   "##\u0307", "##\u0301", "##",  "##A",  "\u00df", "##\u00df", "##\u00c9"};

}  // namespace

TEST_CASE("text is cleaned, ideographs and marks stand alone, case and accents go", "[wordpiece]") {
  struct Line {
    std::string text;
    Words lower, cased;
  };
  for (const Line& line : std::vector<Line>{
           {"", {}, {}},
           {" \t\r ", {}, {}},
           {"Hey friend!  How?", {"hey", "friend", "!", "how", "?"}, {"Hey", "friend", "!", "How", "?"}},
           {"don't $5.00", {"don", "'", "t", "$", "5", ".", "00"}, {"don", "'", "t", "$", "5", ".", "00"}},
           {"\u00c9t\u00e9 e\u0301", {"ete", "e"}, {"\u00c9t\u00e9", "e\u0301"}},
           {"\u0130I", {"ii"}, {"\u0130I"}},
           {"\u03a3\u0391\u03a3", {"\u03c3\u03b1\u03c3"}, {"\u03a3\u0391\u03a3"}},  // no final sigma
           {"stra\u00dfe \ufb01", {"stra\u00dfe", "\ufb01"}, {"stra\u00dfe", "\ufb01"}},
           {"\u6771\u4eaca\uac01", {"\u6771", "\u4eac", "a\u1100\u1161\u11a8"}, {"\u6771", "\u4eac", "a\uac01"}},
           {"\U0002b820 \U0002b920b", {"\U0002b820", "\U0002b920", "b"}, {"\U0002b820", "\U0002b920", "b"}},
           {"a\u00a0b\u3000c\u2028d\u180ee", {"a", "b", "c", "de"}, {"a", "b", "c", "de"}},
           {"a\x01\x7f"
            "b\vc\fd\u0085e",
            {"abcde"},
            {"abcde"}},
           {"zero\u200bwidth\ufeff\u00ad \ufffd \ue000", {"zerowidth"}, {"zerowidth"}},
           {"\u00bfqu\u00e9?\u3002", {"\u00bf", "que", "?", "\u3002"}, {"\u00bf", "qu\u00e9", "?", "\u3002"}},
           {"a~b_c\u20ac\u00b1", {"a", "~", "b", "_", "c\u20ac\u00b1"}, {"a", "~", "b", "_", "c\u20ac\u00b1"}},
           {"[SEP]", {"[", "sep", "]"}, {"[", "SEP", "]"}},
           // As tokenizers knows them: marks of Unicode 9.0 and later are letters, some others have changed since.
           {"a\u07fdb a\u166db a\U000111c9b",
            {"a\u07fdb", "a", "\u166d", "b", "a", "\U000111c9", "b"},
            {"a\u07fdb", "a", "\u166d", "b", "a", "\U000111c9", "b"}},
           {"\U00011938 \u1c89\U00010d50", {"\U00011938", "\u1c8a\U00010d70"}, {"\U00011938", "\u1c89\U00010d50"}},
       }) {
    INFO(line.text);
    CHECK(words_of(line.text) == line.lower);
    CHECK(words_of(line.text, {.lowercase = false, .strip_accents = false}) == line.cased);
  }
  CHECK(words_of("\u00c9\u0130", {.lowercase = true, .strip_accents = false}) == Words{"\u00e9i\u0307"});
  CHECK(words_of("\u00c9\u0130", {.lowercase = false, .strip_accents = true}) == Words{"EI"});
  // Marks that have a width stay; those of a lower class come first.
  CHECK(words_of("a\u302e\U0001d16d") == Words{"a\u302e\U0001d16d"});
  CHECK(words_of("a\U0001d16d\u302e") == Words{"a\u302e\U0001d16d"});
}

TEST_CASE("the longest piece comes first; what pieces do not spell is unknown", "[wordpiece]") {
  const auto t = tokenizer_of({"un", "##aff", "##able", "##a", "##ff", "aff", "u", "##n", "want", "##ed", ",", "#"});
  auto pieces = [&](const std::string& text) {
    Words out;
    for (int32_t id : encoded(*t, text)) out.push_back(t->piece(id));
    return out;
  };
  CHECK(pieces("UNaffable unwanted, affn") == Words{"un", "##aff", "##able", "[UNK]", ",", "aff", "##n"});
  CHECK(pieces("unaffx") == Words{"[UNK]"});         // not as far as it goes
  CHECK(pieces("##aff") == Words{"#", "#", "aff"});  // text never is a piece that goes on
  CHECK(pieces("\u00fbn\u200baff") == Words{"un", "##aff"});
  CHECK(pieces("[SEP] [UNK]").size() == 6);
  CHECK(pieces(" \x01 \u200b ").empty());
  CHECK(t->special().start == 2);
  CHECK(t->end_of_line() == 3);
  CHECK(t->unknown() == 1);

  // A hundred characters, however many bytes, are a word; one more is not.
  const auto letters = tokenizer_of({"a", "##a", "\u00e9", "##\u00e9"}, {.lowercase = false, .strip_accents = false});
  for (const std::string letter : {"a", "\u00e9"}) {
    std::string word;
    for (int i = 0; i < 100; ++i) word += letter;
    CHECK(encoded(*letters, word).size() == 100);
    CHECK(encoded(*letters, word + letter) == Ids{1});
    CHECK(encoded(*letters, word + "\u200b").size() == 100);  // dropped before it is counted
    CHECK(placed(*letters, word + letter) == Words{"[UNK]:" + word + letter});
  }
}

TEST_CASE("places are those of the original", "[wordpiece]") {
  const auto t = tokenizer_of(
      {"re", "##sume", "e", "##e", "\u6771", "i", "##i", "##t", ",", "\u1100", "##\u1161", "##\u11a8", "un"});
  CHECK(placed(*t, "  R\u00c9sum\u00c9, e") == Words{"re:R\u00c9", "##sume:sum\u00c9", ",:,", "e:e"});
  CHECK(placed(*t, "re\u0301sume\u0301") == Words{"re:re", "##sume:sume"});
  CHECK(placed(*t, "u\u200bn") == Words{"un:u\u200bn"});
  CHECK(placed(*t, "\u200bun\u00ad,") == Words{"un:un", ",:,"});
  CHECK(placed(*t, "i\u6771\u0130t\u3000unx") == Words{"i:i", "\u6771:\u6771", "i:\u0130", "##t:t", "[UNK]:unx"});
  // A character that became several.
  CHECK(placed(*t, "\uac01") == Words{"\u1100:\uac01", "##\u1161:\uac01", "##\u11a8:\uac01"});
}

TEST_CASE("every way of encoding gives what plain loops give", "[wordpiece]") {
  for (const BertText options :
       {BertText{true, true}, BertText{false, false}, BertText{true, false}, BertText{false, true}}) {
    const auto t = tokenizer_of(kSome, options);
    const auto encoder = t->encoder();  // one for all lines: it keeps the words it has seen
    CHECK(rc::check([&] {
      const std::string text = *any_text();
      Ids plain;
      for (const std::string& word : words_of(text, options))
        for (int32_t id : divided_plainly(code_points(word), t->pieces(), 1)) plain.push_back(id);
      for (int again = 0; again < 2; ++again) {
        Ids ids;
        encoder->encode(text, ids);
        RC_ASSERT(ids == plain);
      }
      Ids ids, whole;
      t->encode_part(text, whole);
      RC_ASSERT(whole == plain);
      std::vector<TextRange> ranges;
      t->encode_with_ranges(text, ids, ranges);
      RC_ASSERT(ids == plain);
      RC_ASSERT(ranges.size() == plain.size());
      for (const TextRange& r : ranges) {
        RC_ASSERT(r.begin < text.size());
        RC_ASSERT(r.end <= text.size());
      }
      // Cut where it may be.
      const size_t cut = t->cut(text);
      if (cut == text.npos) return;
      Ids both = encoded(*t, text.substr(0, cut));
      for (int32_t id : encoded(*t, text.substr(cut))) both.push_back(id);
      RC_ASSERT(both == plain);
    }));
  }
}

TEST_CASE("pieces are joined again, marks left where they are", "[wordpiece]") {
  const auto t = tokenizer_of({"un", "##able", ",", "a"});
  CHECK(t->decode(Ids{5, 6, 7, 8, 3, 6, 6, 2, 1, 3}) == "unable , a\n##ableable [CLS] [UNK]\n");
  CHECK(t->decode(Ids{}).empty());
}

TEST_CASE("a vocabulary of WordPiece keeps its pieces and how text is read", "[wordpiece]") {
  std::set<std::string> fingerprints;
  for (const BertText options :
       {BertText{true, true}, BertText{false, false}, BertText{true, false}, BertText{false, true}}) {
    const auto t = tokenizer_of({"a", "##b", "\\x", "\u00e9"}, options);
    const auto again = parse_tokenizer(t->serialize(), "v");
    CHECK(again->serialize() == t->serialize());
    CHECK(again->type() == "wordpiece");
    CHECK(require_wordpiece(*again, "v").text() == options);
    fingerprints.insert(again->fingerprint());
  }
  CHECK(fingerprints.size() == 4);
  CHECK(status_of([] { require_wordpiece(*make_byte_tokenizer(), "v"); }) == 3);

  const std::string good = tokenizer_of({"a"})->serialize();
  auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    REQUIRE(text.find(from) != text.npos);
    return text.replace(text.find(from), from.size(), to);
  };
  CHECK(status_of([&] { parse_tokenizer(good, "v"); }) == 0);
  for (const std::string& bad : {changed("lowercase yes", "lowercase maybe"), changed("lowercase yes\n", ""),
                                 changed("strip_accents yes", "strip_accents"), changed("entries 6", "entries 7")})
    CHECK(status_of([&] { parse_tokenizer(bad, "v"); }) == 3);
  for (size_t missing = 0; missing < 5; ++missing) {
    std::vector<Piece> pieces = with_special({"a"});
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(missing));
    CHECK(status_of([&] { make_wordpiece_tokenizer(pieces, {}, "v"); }) == 3);
  }
}

TEST_CASE("BERT's vocab.txt is read as it is; what is none is refused", "[wordpiece]") {
  const std::string text = "[PAD]\n[unused0]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n!\n##a\n\u00e9\n";
  const std::vector<Piece> pieces = read_wordpieces(text, "v");
  CHECK(pieces.size() == 9);
  CHECK(pieces[7].text == "##a");
  CHECK(write_wordpieces(pieces) == text);
  CHECK(read_wordpieces("a\r\nb", "v")[0].text == "a");
  CHECK(make_wordpiece_tokenizer(pieces, {}, "v")->special().unknown == 2);
  for (const char* bad : {"", "a\n\nb\n", "a\nb\na\n", "a\n\xff\n", "a\n \n", "multihead-vocabulary 1\n"})
    CHECK(status_of([&] { read_wordpieces(bad, "v"); }) == 3);
  // Given where a vocabulary belongs: whether it keeps case is not known.
  CHECK(status_of([&] { parse_tokenizer(text, "vocab.txt"); }) == 3);
}

namespace {

Words learnt(const std::map<std::string, int64_t>& words, const WordPieceOptions& options) {
  WordMap<uint64_t> counts;
  for (const auto& [word, count] : words) counts[std::string_view(word)] = static_cast<uint64_t>(count);
  return learn_wordpieces(counts, options);
}

// Counts every pair anew for each join. `again`: a piece arose that had been there before.
Words learnt_plainly(const std::map<std::string, int64_t>& words, size_t size, int64_t least, bool* again) {
  Words pieces{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  std::map<std::string, size_t> numbers;
  auto add = [&](const std::string& piece) {
    if (numbers.emplace(piece, pieces.size()).second) pieces.push_back(piece);
  };
  std::set<std::string> first, further;
  std::vector<std::pair<Words, int64_t>> text;
  for (const auto& [word, count] : words) {
    text.emplace_back(Words{}, count);
    for (char c : word) {
      first.insert(std::string(1, c));
      text.back().first.push_back((text.back().first.empty() ? "" : "##") + std::string(1, c));
    }
    further.insert(text.back().first.begin() + 1, text.back().first.end());
  }
  for (const std::string& piece : first) add(piece);
  for (const std::string& piece : further) add(piece);
  while (pieces.size() < size) {
    std::map<std::pair<size_t, size_t>, int64_t> counts;
    for (const auto& [symbols, count] : text)
      for (size_t i = 0; i + 1 < symbols.size(); ++i) counts[{numbers[symbols[i]], numbers[symbols[i + 1]]}] += count;
    std::pair<size_t, size_t> best;
    int64_t most = 0;
    for (const auto& [pair, count] : counts)
      if (count > most) best = pair, most = count;
    if (most < std::max<int64_t>(1, least)) break;
    const std::string left = pieces[best.first], right = pieces[best.second];
    const std::string both = left + (right.starts_with("##") ? right.substr(2) : right);
    *again = *again || numbers.count(both) > 0;
    add(both);
    for (auto& entry : text) {
      Words now;
      for (size_t i = 0; i < entry.first.size(); ++i) {
        const bool here = i + 1 < entry.first.size() && entry.first[i] == left && entry.first[i + 1] == right;
        now.push_back(here ? both : entry.first[i]);
        if (here) ++i;
      }
      entry.first = now;
    }
  }
  return pieces;
}

Words behind_special(const Words& pieces) { return {pieces.begin() + 5, pieces.end()}; }

}  // namespace

TEST_CASE("pieces are learnt as by counting all pairs anew", "[wordpiece]") {
  CHECK(rc::check([] {
    const auto letters = rc::gen::element<std::string>("a", "b", "c", "d", "e", "f", "g");
    const auto list = *rc::gen::nonEmpty(
        rc::gen::container<std::vector<Words>>(rc::gen::nonEmpty(rc::gen::container<Words>(letters))));
    std::map<std::string, int64_t> words;
    for (const Words& word : list) words[join(word, "")] += *rc::gen::inRange(1, 30);
    const auto least = *rc::gen::inRange<int64_t>(0, 40);
    bool again = false;
    const Words plain = learnt_plainly(words, 40, least, &again);
    // Where a piece arises by other joins too, the trainer joins some of its pairs later.
    RC_PRE(!again);
    RC_ASSERT(learnt(words, {.size = 40, .alphabet = 1000, .min_count = least}) == plain);
  }));
}

TEST_CASE("characters come first; of pairs that are as frequent that of lower numbers", "[wordpiece]") {
  const std::map<std::string, int64_t> words{{"ba", 2}, {"ca", 2}, {"a", 1}};
  CHECK(learnt(words, {.size = 99})[4] == "[MASK]");
  CHECK(behind_special(learnt(words, {.size = 99})) == Words{"a", "b", "c", "##a", "ba", "ca"});
  CHECK(behind_special(learnt(words, {.size = 10})) == Words{"a", "b", "c", "##a", "ba"});
  CHECK(behind_special(learnt(words, {.size = 99, .min_count = 3})) == Words{"a", "b", "c", "##a"});
  CHECK(refusal([&] { learnt(words, {.size = 8}); }).find("at least 9") != std::string::npos);
  // Of equal counts the lower code point is kept; what stood around one that is left out are neighbours.
  CHECK(behind_special(learnt({{"acb", 3}, {"\u00e9", 3}}, {.size = 99, .alphabet = 2})) ==
        Words{"a", "b", "##b", "ab"});
  CHECK(behind_special(learnt({{"cab", 3}, {"a", 1}, {"b", 1}}, {.size = 99, .alphabet = 2})) ==
        Words{"a", "b", "##a", "##b", "##ab"});
  // From left to right: where a pair overlaps itself, once.
  CHECK(behind_special(learnt({{"aaaaa", 2}}, {.size = 99})) == Words{"a", "##a", "##aa", "aaa", "aaaaa"});
}
