// GPT-2's byte-level pair encoding: words against plain loops over its expression, merges against plain loops over the
// list, bytes that come back, cuts that change nothing, and what is refused.
#include "text/byte_bpe.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <map>
#include <optional>

#include "base/text.h"
#include "base/unicode.h"
#include "fixtures/status.h"
#include "text/tokenizer_json.h"

using namespace mh;
using namespace mh::text;

namespace {

using Ids = std::vector<int32_t>;
using Words = std::vector<std::string>;

std::string letter(uint8_t byte) {
  std::string text;
  append_utf8(letter_of_byte(byte), text);
  return text;
}

std::string letters(const std::string& bytes) {
  std::string text;
  for (char byte : bytes) text += letter(static_cast<uint8_t>(byte));
  return text;
}

// The bytes from 255 down, <|endoftext|> amid them, then what merges make; merges of plain text.
std::pair<std::vector<Piece>, std::vector<Merge>> files_of(
    const std::vector<std::pair<std::string, std::string>>& all) {
  std::vector<Piece> pieces;
  for (int byte = 255; byte >= 0; --byte) pieces.push_back({letter(static_cast<uint8_t>(byte)), 0});
  pieces.insert(pieces.begin() + 100, {kEndOfText, 0});
  std::vector<Merge> merges;
  for (const auto& [left, right] : all) {
    merges.push_back({letters(left), letters(right)});
    const std::string both = letters(left + right);
    if (std::none_of(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.text == both; }))
      pieces.push_back({both, 0});
  }
  return {pieces, merges};
}

std::unique_ptr<ByteBpeTokenizer> tokenizer_of(const std::vector<std::pair<std::string, std::string>>& merges) {
  auto [pieces, list] = files_of(merges);
  return make_byte_bpe_tokenizer(std::move(pieces), std::move(list), "test");
}

Ids encoded(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  tokenizer.encoder()->encode(text, ids);
  return ids;
}

Words words_of(const std::string& text) {
  Words words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = byte_bpe_word_end(text, at);
    REQUIRE(end > at);
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// The expression, alternative by alternative, over code points.
Words words_plainly(const std::u32string& text) {
  auto space = [](char32_t c) { return is_space(c) && !(c >= 0x1C && c <= 0x1F); };
  auto other = [&](char32_t c) { return !space(c) && !is_letter(c) && !is_number(c); };
  Words words;
  for (size_t at = 0; at < text.size();) {
    const std::u32string_view rest = std::u32string_view(text).substr(at);
    auto run = [&](size_t from, const auto& is) {
      size_t end = from;
      while (end < rest.size() && is(rest[end])) ++end;
      return end;
    };
    size_t size = 0;
    for (std::u32string_view word : {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"})
      if (size == 0 && rest.starts_with(word)) size = word.size();
    const size_t from = rest[0] == U' ' ? 1 : 0;
    auto try_run = [&](const auto& is) {
      if (size == 0 && run(from, is) > from) size = run(from, is);
    };
    try_run(is_letter);
    try_run(is_number);
    try_run(other);
    if (size == 0) {
      size = run(0, space);
      if (size < rest.size() && size > 1) --size;  // \s+(?!\S)
    }
    std::string word;
    for (char32_t c : rest.substr(0, size)) append_utf8(c, word);
    words.push_back(word);
    at += size;
  }
  return words;
}

// While some neighbours have a merge, the leftmost of those with the least rank is joined.
Ids divided_plainly(const std::string& word, const std::vector<Piece>& pieces, const std::vector<Merge>& merges) {
  Words symbols;
  for (char byte : word) symbols.push_back(letter(static_cast<uint8_t>(byte)));
  for (;;) {
    std::optional<std::pair<size_t, size_t>> best;
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      for (size_t rank = 0; rank < merges.size(); ++rank)
        if (merges[rank] == Merge{symbols[i], symbols[i + 1]} && (!best || rank < best->first)) best = {rank, i};
    if (!best) break;
    symbols[best->second] += symbols[best->second + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best->second) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols)
    for (size_t i = 0; i < pieces.size(); ++i)
      if (pieces[i].text == symbol) ids.push_back(static_cast<int32_t>(i));
  return ids;
}

rc::Gen<std::string> any_text() {
  auto letter = rc::gen::element<std::string>("a", "b", "ab", "s", "t", "re", "l", "A", "\u00e9", "\u4e2d", "\u0301");
  auto odd = rc::gen::element<std::string>("'", "'", "!", "-", "1", "\u0663", "\u00bd", "\x01", "\x1c", "\u200b",
                                           "\U0001F600", "\u1c89", "\U00016130");
  auto space = rc::gen::element<std::string>(" ", " ", "  ", "\t", "\r", "\v", "\u00a0", "\u3000", "\u2028", "\u0085");
  auto part = rc::gen::weightedOneOf<std::string>({{6, letter}, {3, odd}, {4, space}});
  return rc::gen::map(rc::gen::container<Words>(part), [](const Words& parts) { return join(parts, ""); });
}

const std::vector<std::pair<std::string, std::string>> kMerges{{"a", "b"}, {" ", "a"},  {"ab", "ab"},
                                                               {"a", "a"}, {" a", "b"}, {"\xc3", "\xa9"},
                                                               {"b", "a"}, {" ", " "},  {"ab", "a"}};

}  // namespace

TEST_CASE("letters of bytes are GPT-2's", "[byte-bpe]") {
  CHECK(letter(' ') == "\u0120");
  CHECK(letter('\n') == "\u010a");
  CHECK(letter(0) == "\u0100");
  CHECK(letter('A') == "A");
  CHECK(letter(0xA1) == "\u00a1");
  CHECK(letter(0xAD) == "\u0143");
  CHECK(letter(0xA0) == "\u0142");
  CHECK(letter(0x7F) == "\u0121");
  for (int byte = 0; byte < 256; ++byte) CHECK(byte_of_letter(letter_of_byte(static_cast<uint8_t>(byte))) == byte);
  for (char32_t none : {U' ', U'\u00ad', U'\u0144', U'\u4e2d', U'\x01'}) CHECK(byte_of_letter(none) == -1);
}

TEST_CASE("words of GPT-2's expression", "[byte-bpe]") {
  CHECK(words_of("Hello, I'm 42!  You'll   see") ==
        Words{"Hello", ",", " I", "'m", " 42", "!", " ", " You", "'ll", "  ", " see"});
  CHECK(words_of("") == Words{});
  CHECK(words_of("   ") == Words{"   "});
  CHECK(words_of("a\t b") == Words{"a", "\t", " b"});
  CHECK(words_of("a \tb") == Words{"a", " ", "\t", "b"});
  CHECK(words_of("don't 'S'd x'") == Words{"don", "'t", " '", "S", "'d", " x", "'"});
  CHECK(words_of("!'s") == Words{"!'", "s"});
  CHECK(words_of("a\u00a0b c\u3000") == Words{"a", "\u00a0", "b", " c", "\u3000"});
  CHECK(words_of("e\u0301\u00bd7\u0663") == Words{"e", "\u0301", "\u00bd7\u0663"});
  CHECK(words_of("\u4e2d\u6587abc\x1c ") == Words{"\u4e2d\u6587abc", "\x1c", " "});
  CHECK(words_of("a\u1c89b\U0001ccf0\U00016130") == Words{"a\u1c89b", "\U0001ccf0\U00016130"});  // of Unicode 16.0
}

TEST_CASE("words of any text are those of the plain loops", "[byte-bpe]") {
  CHECK(rc::check([] {
    const std::string text = *any_text();
    // What is newer than the plain loops know is left to the case above.
    if (text.find("\u1c89") == text.npos && text.find("\U00016130") == text.npos)
      RC_ASSERT(words_of(text) == words_plainly(code_points(text)));
    RC_ASSERT(join(words_of(text), "") == text);
  }));
}

TEST_CASE("merges join as the plain loops do, and tokens give back the text", "[byte-bpe]") {
  const auto [pieces, merges] = files_of(kMerges);
  const auto t = tokenizer_of(kMerges);
  CHECK(rc::check([&, p = pieces, m = merges] {
    const std::string text = *any_text();
    Ids expected;
    for (const std::string& word : words_of(text))
      for (int32_t id : divided_plainly(word, p, m)) expected.push_back(id);
    const Ids found = encoded(*t, text);
    RC_ASSERT(found == expected);
    RC_ASSERT(t->decode(found) == text);
    if (const size_t at = t->cut(text); at != text.npos) {
      RC_ASSERT(at > 0U);
      const auto encoder = t->encoder();
      Ids parts;
      encoder->encode(text.substr(0, at), parts);
      encoder->encode(text.substr(at) + "s", parts);
      RC_ASSERT(parts == encoded(*t, text + "s"));
    }
  }));
  CHECK(t->cut("one two three") == 7);
  CHECK(t->cut("one  two") == 3);
  CHECK(t->cut("\u4e2d \u4e2d") == 3);
  CHECK(t->cut(" one") == std::string::npos);
  CHECK(t->cut("one") == std::string::npos);
  CHECK(t->end_of_line() == 100);
  CHECK(t->unknown() == -1);
  CHECK(t->decode(Ids{encoded(*t, "a b")[0], 100, encoded(*t, "\u00e9")[0]}) == "a\n\u00e9");
  CHECK(encoded(*t, "<|endoftext|>").size() > 1);
}

TEST_CASE("a joined pair of lower rank takes part at once", "[byte-bpe]") {
  // Rank 1 gives ab, which rank 0 joins before the second a b is joined: a list that no text gives.
  const auto t = tokenizer_of({{"ab", "a"}, {"a", "b"}});
  const Ids ids = encoded(*t, "abab");
  Words pieces;
  for (int32_t id : ids) pieces.push_back(t->piece(id));
  CHECK(pieces == Words{"aba", "b"});
}

TEST_CASE("the vocabulary file, and GPT-2's own, come back as they were", "[byte-bpe]") {
  const auto t = tokenizer_of(kMerges);
  const auto again = parse_tokenizer(t->serialize(), "test");
  CHECK(again->type() == "byte-bpe");
  CHECK(again->fingerprint() == t->fingerprint());
  CHECK(encoded(*again, "ab aab \u00e9\\") == encoded(*t, "ab aab \u00e9\\"));
  NumberedPieces numbered;
  for (size_t i = 0; i < t->pieces().size(); ++i) numbered[i] = t->pieces()[i].text;
  const std::string json = write_byte_bpe_pieces(numbered), text = write_byte_bpe_merges(t->merges());
  CHECK(read_numbered_pieces(json, "j") == numbered);
  CHECK(text.starts_with("#version: 0.2\na b\n\u0120 a\n"));
  CHECK(make_byte_bpe_tokenizer(in_order(numbered, "j"), read_byte_bpe_merges(text, "m"), "test")->serialize() ==
        t->serialize());
  CHECK(read_byte_bpe_merges("a b\r\nb c\r\n", "m") == std::vector<Merge>{{"a", "b"}, {"b", "c"}});
  CHECK(read_byte_bpe_merges("#version: 0.2\n# #", "m") == std::vector<Merge>{{"#", "#"}});
}

TEST_CASE("added tokens come back from a vocabulary file, and do not change its fingerprint", "[byte-bpe]") {
  auto [pieces, merges] = files_of({{"a", "b"}});
  const auto plain = make_byte_bpe_tokenizer(pieces, merges, "test");
  CHECK(plain->added_tokens() == AddedTokens{{100, {"special", "bos_token", "eos_token", "unk_token"}}});
  const AddedTokens added{{100, {"special", "eos_token"}}, {257, {"appended", "lstrip"}}};
  const auto t = make_byte_bpe_tokenizer(pieces, merges, "test", added);
  const std::string file = t->serialize();
  CHECK(file != plain->serialize());
  CHECK(t->fingerprint() == plain->fingerprint());
  const auto again = parse_tokenizer(file, "test");
  CHECK(dynamic_cast<const ByteBpeTokenizer&>(*again).added_tokens() == added);
  CHECK(again->serialize() == file);
  AddedTokens tokens{{3, {}}};
  for (const char* bad :
       {"", "x", "-1", "3", "2 special", "10", "4 other", "4 special special", "4  special", "4 ", "4x"})
    CHECK_FALSE(parse_added_token(bad, 10, tokens = {{3, {}}}));
  CHECK(parse_added_token("9 pad_token special", 10, tokens = {{3, {}}}));
}

TEST_CASE("files of other kinds, and pieces and merges that lack something, are refused", "[byte-bpe]") {
  for (const char* bad : {"", "[]", "{}", "{\"a\": 1}", "{\"a\": -1}", "{\"a\": 0, \"b\": 0}", "{\"a\": \"0\"}",
                          "{\"\": 0}", "{\"a\": 0.5}", "{\"a\": 0", "{\"a\": 0, \"a\": 1}"})
    CHECK(status_of([&] { in_order(read_numbered_pieces(bad, "vocab.json"), "vocab.json"); }) == 3);
  for (const char* bad : {"", "#version: 0.2\n", "ab\n", "a b c\n", " b\n", "a \n", "a b\n\nb c\n", "a \xff\n"})
    CHECK(status_of([&] { read_byte_bpe_merges(bad, "merges.txt"); }) == 3);
  CHECK_THROWS_WITH(read_byte_bpe_merges("a b\nab\n", "merges.txt"), Catch::Contains("merges.txt:2"));
  auto said = [](std::vector<Piece> pieces, std::vector<Merge> merges) {
    try {
      make_byte_bpe_tokenizer(std::move(pieces), std::move(merges), "test");
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::input);
      return std::string(error.what());
    }
    return std::string();
  };
  const auto [pieces, merges] = files_of({{"a", "b"}});
  auto without = [&, all = pieces](size_t i) {
    std::vector<Piece> fewer = all;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    return fewer;
  };
  CHECK(said(pieces, merges).empty());
  CHECK_THAT(said(without(100), merges), Catch::Contains("<|endoftext|>"));
  CHECK_THAT(said(without(0), merges), Catch::Contains("the byte 255"));
  CHECK_THAT(said(without(257), merges), Catch::Contains("'ab' of merge 1"));
  CHECK_THAT(said(pieces, {merges[0], merges[0]}), Catch::Contains("twice"));
  CHECK_THAT(said(pieces, {{"x", "yz"}}), Catch::Contains("'yz' of merge 1"));
  const std::string whole = tokenizer_of(kMerges)->serialize();
  for (size_t size = 0; size < whole.size(); size += 97)
    CHECK(status_of([&] { parse_tokenizer(whole.substr(0, size), "test"); }) == 3);
}
