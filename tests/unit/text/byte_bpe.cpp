// Tests of GPT-2's byte-level BPE: words, merges and learnt vocabularies compared with naive references, round trips,
// positions at which text can be split without a change of tokens, and refusal of invalid files.
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

using TokenIds = std::vector<int32_t>;
using Words = std::vector<std::string>;

std::string piece_of_byte(uint8_t byte) {
  std::string text;
  append_utf8(character_of_byte(byte), text);
  return text;
}

std::string piece_of_bytes(const std::string& bytes) {
  std::string text;
  for (char byte : bytes) text += piece_of_byte(static_cast<uint8_t>(byte));
  return text;
}

// Returns the pieces and the merges of a vocabulary. The pieces are the bytes from 255 down to 0 with <|endoftext|>
// inserted at index 100, then the distinct results of the merges. `byte_merges`: pairs of byte strings.
std::pair<std::vector<Piece>, std::vector<Merge>> pieces_and_merges(
    const std::vector<std::pair<std::string, std::string>>& byte_merges) {
  std::vector<Piece> pieces;
  for (int byte = 255; byte >= 0; --byte) pieces.push_back({piece_of_byte(static_cast<uint8_t>(byte)), 0});
  pieces.insert(pieces.begin() + 100, {kEndOfText, 0});
  std::vector<Merge> merges;
  for (const auto& [left, right] : byte_merges) {
    merges.push_back({piece_of_bytes(left), piece_of_bytes(right)});
    const std::string joined = piece_of_bytes(left + right);
    if (std::none_of(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.text == joined; }))
      pieces.push_back({joined, 0});
  }
  return {pieces, merges};
}

std::unique_ptr<ByteBpeTokenizer> tokenizer_of(const std::vector<std::pair<std::string, std::string>>& merges) {
  auto [pieces, merge_list] = pieces_and_merges(merges);
  return make_byte_bpe_tokenizer(std::move(pieces), std::move(merge_list), "test");
}

TokenIds encode(const Tokenizer& tokenizer, const std::string& text) {
  TokenIds ids;
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

// Splits text as GPT-2's regular expression does, by trying its alternatives in order at each code point.
Words naive_words(const std::u32string& text) {
  auto is_separator = [](char32_t c) { return is_space(c) && !(c >= 0x1C && c <= 0x1F); };
  auto is_other = [&](char32_t c) { return !is_separator(c) && !is_letter(c) && !is_number(c); };
  Words words;
  for (size_t at = 0; at < text.size();) {
    const std::u32string_view rest = std::u32string_view(text).substr(at);
    auto run_end = [&](size_t from, const auto& predicate) {
      size_t end = from;
      while (end < rest.size() && predicate(rest[end])) ++end;
      return end;
    };
    size_t size = 0;
    for (std::u32string_view word : {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"})
      if (size == 0 && rest.starts_with(word)) size = word.size();
    const size_t from = rest[0] == U' ' ? 1 : 0;
    auto try_run = [&](const auto& predicate) {
      if (size == 0 && run_end(from, predicate) > from) size = run_end(from, predicate);
    };
    try_run(is_letter);
    try_run(is_number);
    try_run(is_other);
    if (size == 0) {
      size = run_end(0, is_separator);
      if (size < rest.size() && size > 1) --size;  // \s+(?!\S)
    }
    std::string word;
    for (char32_t c : rest.substr(0, size)) append_utf8(c, word);
    words.push_back(word);
    at += size;
  }
  return words;
}

// Returns the tokens of a word. Repeatedly joins the leftmost adjacent pair of lowest rank, until no adjacent pair has
// a merge.
TokenIds naive_encode_word(const std::string& word, const std::vector<Piece>& pieces,
                           const std::vector<Merge>& merges) {
  Words symbols;
  for (char byte : word) symbols.push_back(piece_of_byte(static_cast<uint8_t>(byte)));
  for (;;) {
    std::optional<std::pair<size_t, size_t>> best;
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      for (size_t rank = 0; rank < merges.size(); ++rank)
        if (merges[rank] == Merge{symbols[i], symbols[i + 1]} && (!best || rank < best->first)) best = {rank, i};
    if (!best) break;
    symbols[best->second] += symbols[best->second + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best->second) + 1);
  }
  TokenIds ids;
  for (const std::string& symbol : symbols)
    for (size_t i = 0; i < pieces.size(); ++i)
      if (pieces[i].text == symbol) ids.push_back(static_cast<int32_t>(i));
  return ids;
}

rc::Gen<std::string> any_text() {
  auto letter = rc::gen::element<std::string>("a", "b", "ab", "s", "t", "re", "l", "A", "\u00e9", "\u4e2d", "\u0301");
  auto special = rc::gen::element<std::string>("'", "'", "!", "-", "1", "\u0663", "\u00bd", "\x01", "\x1c", "\u200b",
                                               "\U0001F600", "\u1c89", "\U00016130");
  auto space = rc::gen::element<std::string>(" ", " ", "  ", "\n", "\n\n", "\t", "\r", "\v", "\u00a0", "\u3000",
                                             "\u2028", "\u0085");
  auto part = rc::gen::weightedOneOf<std::string>({{6, letter}, {3, special}, {4, space}});
  return rc::gen::map(rc::gen::container<Words>(part), [](const Words& parts) { return join(parts, ""); });
}

const std::vector<std::pair<std::string, std::string>> kMerges{{"a", "b"}, {" ", "a"},  {"ab", "ab"},
                                                               {"a", "a"}, {" a", "b"}, {"\xc3", "\xa9"},
                                                               {"b", "a"}, {" ", " "},  {"ab", "a"}};

}  // namespace

TEST_CASE("character_of_byte() equals GPT-2's bytes_to_unicode()", "[byte-bpe]") {
  CHECK(piece_of_byte(' ') == "\u0120");
  CHECK(piece_of_byte('\n') == "\u010a");
  CHECK(piece_of_byte(0) == "\u0100");
  CHECK(piece_of_byte('A') == "A");
  CHECK(piece_of_byte(0xA1) == "\u00a1");
  CHECK(piece_of_byte(0xAD) == "\u0143");
  CHECK(piece_of_byte(0xA0) == "\u0142");
  CHECK(piece_of_byte(0x7F) == "\u0121");
  for (int byte = 0; byte < 256; ++byte)
    CHECK(byte_of_character(character_of_byte(static_cast<uint8_t>(byte))) == byte);
  for (char32_t invalid : {U' ', U'\u00ad', U'\u0144', U'\u4e2d', U'\x01'}) CHECK(byte_of_character(invalid) == -1);
}

TEST_CASE("byte_bpe_word_end() splits text as GPT-2's regular expression does", "[byte-bpe]") {
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
  // Unicode 16.0 added the letter U+1C89 and the digits U+1CCF0 and U+16130.
  CHECK(words_of("a\u1c89b\U0001ccf0\U00016130") == Words{"a\u1c89b", "\U0001ccf0\U00016130"});
}

TEST_CASE("byte_bpe_word_end() equals a naive reference for any text", "[byte-bpe]") {
  CHECK(rc::check([] {
    const std::string text = *any_text();
    // naive_words() does not know the letters and numbers of Unicode 15.1 and 16.0; the test with fixed examples covers
    // three of them.
    if (text.find("\u1c89") == text.npos && text.find("\U00016130") == text.npos)
      RC_ASSERT(words_of(text) == naive_words(code_points(text)));
    RC_ASSERT(join(words_of(text), "") == text);
  }));
}

TEST_CASE(
    "byte-level BPE equals a naive reference, decodes to the text, and encodes text split at find_split() equally",
    "[byte-bpe]") {
  const auto [pieces, merges] = pieces_and_merges(kMerges);
  const auto tokenizer = tokenizer_of(kMerges);
  CHECK(rc::check([&, p = pieces, m = merges] {
    const std::string text = *any_text();
    TokenIds expected;
    for (const std::string& word : words_of(text))
      for (int32_t id : naive_encode_word(word, p, m)) expected.push_back(id);
    const TokenIds actual = encode(*tokenizer, text);
    RC_ASSERT(actual == expected);
    RC_ASSERT(tokenizer->decode(actual) == text);
    if (const size_t at = tokenizer->find_split(text); at != text.npos) {
      RC_ASSERT(at > 0U);
      const auto encoder = tokenizer->encoder();
      TokenIds split_tokens;
      encoder->encode(text.substr(0, at), split_tokens);
      encoder->encode(text.substr(at) + "s", split_tokens);
      RC_ASSERT(split_tokens == encode(*tokenizer, text + "s"));
    }
  }));
  CHECK(tokenizer->find_split("one two three") == 7);
  CHECK(tokenizer->find_split("one  two") == 3);
  CHECK(tokenizer->find_split("\u4e2d \u4e2d") == 3);
  CHECK(tokenizer->find_split("one\n\ntwo") == 3);
  CHECK(tokenizer->find_split("one \ntwo") == 3);
  CHECK(tokenizer->find_split("\none") == std::string::npos);
  CHECK(tokenizer->find_split(" one") == std::string::npos);
  CHECK(tokenizer->find_split("one") == std::string::npos);
  CHECK(tokenizer->end_of_line_id() == 100);
  CHECK(tokenizer->unknown_id() == -1);
  CHECK(tokenizer->decode(TokenIds{encode(*tokenizer, "a b")[0], 100, encode(*tokenizer, "\u00e9")[0]}) == "a\n\u00e9");
  CHECK(encode(*tokenizer, "<|endoftext|>").size() > 1);
}

TEST_CASE("a pair of lower rank that a merge has created is joined next", "[byte-bpe]") {
  // The merge of rank 1 (a b) creates ab; the merge of rank 0 (ab a) then applies before the second a and b are joined.
  // Training never learns merges in this order.
  const auto tokenizer = tokenizer_of({{"ab", "a"}, {"a", "b"}});
  const TokenIds ids = encode(*tokenizer, "abab");
  Words pieces;
  for (int32_t id : ids) pieces.push_back(tokenizer->piece(id));
  CHECK(pieces == Words{"aba", "b"});
}

TEST_CASE("a byte-bpe vocabulary reads back equal from its own file and from vocab.json and merges.txt", "[byte-bpe]") {
  const auto tokenizer = tokenizer_of(kMerges);
  const auto reparsed_tokenizer = parse_tokenizer(tokenizer->serialize(), "test");
  CHECK(reparsed_tokenizer->type() == "byte-bpe");
  CHECK(reparsed_tokenizer->fingerprint() == tokenizer->fingerprint());
  CHECK(encode(*reparsed_tokenizer, "ab aab \u00e9\\") == encode(*tokenizer, "ab aab \u00e9\\"));
  NumberedPieces numbered_pieces;
  for (size_t i = 0; i < tokenizer->pieces().size(); ++i) numbered_pieces[i] = tokenizer->pieces()[i].text;
  const std::string json = serialize_byte_bpe_pieces(numbered_pieces),
                    text = serialize_byte_bpe_merges(tokenizer->merges());
  CHECK(read_numbered_pieces(json, "j") == numbered_pieces);
  CHECK(text.starts_with("#version: 0.2\na b\n\u0120 a\n"));
  CHECK(make_byte_bpe_tokenizer(pieces_in_id_order(numbered_pieces, "j"), read_byte_bpe_merges(text, "m"), "test")
            ->serialize() == tokenizer->serialize());
  CHECK(read_byte_bpe_merges("a b\r\nb c\r\n", "m") == std::vector<Merge>{{"a", "b"}, {"b", "c"}});
  CHECK(read_byte_bpe_merges("#version: 0.2\n# #", "m") == std::vector<Merge>{{"#", "#"}});
}

TEST_CASE("added tokens read back from a vocabulary file and do not change its fingerprint", "[byte-bpe]") {
  auto [pieces, merges] = pieces_and_merges({{"a", "b"}});
  const auto default_tokens = make_byte_bpe_tokenizer(pieces, merges, "test");
  CHECK(default_tokens->added_tokens() == AddedTokens{{100, {"special", "bos_token", "eos_token", "unk_token"}}});
  const AddedTokens added_tokens{{100, {"special", "eos_token"}}, {257, {"appended", "lstrip"}}};
  const auto tokenizer = make_byte_bpe_tokenizer(pieces, merges, "test", added_tokens);
  const std::string file = tokenizer->serialize();
  CHECK(file != default_tokens->serialize());
  CHECK(tokenizer->fingerprint() == default_tokens->fingerprint());
  const auto reparsed_tokenizer = parse_tokenizer(file, "test");
  CHECK(dynamic_cast<const ByteBpeTokenizer&>(*reparsed_tokenizer).added_tokens() == added_tokens);
  CHECK(reparsed_tokenizer->serialize() == file);
  AddedTokens tokens{{3, {}}};
  for (const char* invalid :
       {"", "x", "-1", "3", "2 special", "10", "4 other", "4 special special", "4  special", "4 ", "4x"})
    CHECK_FALSE(parse_added_token(invalid, 10, tokens = {{3, {}}}));
  CHECK(parse_added_token("9 pad_token special", 10, tokens = {{3, {}}}));
}

TEST_CASE("invalid vocab.json and merges.txt, and incomplete pieces or merges, are refused", "[byte-bpe]") {
  for (const char* invalid : {"", "[]", "{}", "{\"a\": 1}", "{\"a\": -1}", "{\"a\": 0, \"b\": 0}", "{\"a\": \"0\"}",
                              "{\"\": 0}", "{\"a\": 0.5}", "{\"a\": 0", "{\"a\": 0, \"a\": 1}"})
    CHECK(status_of([&] { pieces_in_id_order(read_numbered_pieces(invalid, "vocab.json"), "vocab.json"); }) == 3);
  for (const char* invalid : {"", "#version: 0.2\n", "ab\n", "a b c\n", " b\n", "a \n", "a b\n\nb c\n", "a \xff\n"})
    CHECK(status_of([&] { read_byte_bpe_merges(invalid, "merges.txt"); }) == 3);
  CHECK_THROWS_WITH(read_byte_bpe_merges("a b\nab\n", "merges.txt"), Catch::Contains("merges.txt:2"));
  auto error_of = [](std::vector<Piece> pieces, std::vector<Merge> merges) {
    try {
      make_byte_bpe_tokenizer(std::move(pieces), std::move(merges), "test");
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::input);
      return std::string(error.what());
    }
    return std::string();
  };
  const auto [pieces, merges] = pieces_and_merges({{"a", "b"}});
  auto pieces_without = [&, all_pieces = pieces](size_t i) {
    std::vector<Piece> remaining_pieces = all_pieces;
    remaining_pieces.erase(remaining_pieces.begin() + static_cast<std::ptrdiff_t>(i));
    return remaining_pieces;
  };
  CHECK(error_of(pieces, merges).empty());
  CHECK_THAT(error_of(pieces_without(100), merges), Catch::Contains("<|endoftext|>"));
  CHECK_THAT(error_of(pieces_without(0), merges), Catch::Contains("the byte 255"));
  CHECK_THAT(error_of(pieces_without(257), merges), Catch::Contains("'ab' of merge 1"));
  CHECK_THAT(error_of(pieces, {merges[0], merges[0]}), Catch::Contains("twice"));
  CHECK_THAT(error_of(pieces, {{"x", "yz"}}), Catch::Contains("'yz' of merge 1"));
  CHECK_THROWS_WITH(serialize_byte_bpe_pieces({{0, "a"}, {1, "a"}}),
                    Catch::Contains("vocab.json: entry 1: expected distinct pieces"));
  const std::string vocabulary = tokenizer_of(kMerges)->serialize();
  for (size_t size = 0; size < vocabulary.size(); size += 97)
    CHECK(status_of([&] { parse_tokenizer(vocabulary.substr(0, size), "test"); }) == 3);
}

namespace {

using CountedWords = std::map<std::string, uint64_t>;

std::unique_ptr<ByteBpeTokenizer> learn(const CountedWords& words, int64_t max_size, int64_t min_count) {
  WordMap<uint64_t> counts;
  for (const auto& [word, count] : words) counts[std::string_view(word)] = count;
  return learn_byte_bpe(counts, max_size, min_count);
}

// Learns merges by recounting all pairs of symbols for each merge.
std::vector<Merge> naive_learn(const CountedWords& words, size_t max_size, uint64_t min_count) {
  Words pieces{kEndOfText};
  std::map<char32_t, std::string> byte_pieces;  // by code point, the order of the pieces of bytes
  for (int byte = 0; byte < 256; ++byte)
    byte_pieces[character_of_byte(static_cast<uint8_t>(byte))] = piece_of_byte(static_cast<uint8_t>(byte));
  for (const auto& [character, piece] : byte_pieces) pieces.push_back(piece);
  std::vector<std::pair<std::vector<size_t>, uint64_t>> text;  // ids of the symbols of each word, and its count
  for (const auto& [word, count] : words) {
    text.push_back({{}, count});
    for (char byte : word)
      text.back().first.push_back(static_cast<size_t>(
          std::find(pieces.begin(), pieces.end(), piece_of_byte(static_cast<uint8_t>(byte))) - pieces.begin()));
  }
  std::vector<Merge> merges;
  while (pieces.size() < max_size) {
    std::map<std::pair<size_t, size_t>, uint64_t> counts;
    for (const auto& [symbols, count] : text)
      for (size_t i = 0; i + 1 < symbols.size(); ++i) counts[{symbols[i], symbols[i + 1]}] += count;
    std::pair<size_t, size_t> best;
    uint64_t max_count = 0;
    for (const auto& [pair, count] : counts)
      if (count > max_count) best = pair, max_count = count;
    if (max_count < std::max<uint64_t>(1, min_count)) break;
    merges.push_back({pieces[best.first], pieces[best.second]});
    pieces.push_back(merges.back().left + merges.back().right);
    for (auto& entry : text) {
      std::vector<size_t>& symbols = entry.first;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        if (symbols[i] != best.first || symbols[i + 1] != best.second) continue;
        symbols[i] = pieces.size() - 1;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return merges;
}

Words counted_words(const std::string& text) {
  WordMap<uint64_t> counts;
  count_byte_bpe_words(text, counts);
  Words words;
  counts.for_each([&](std::string_view word, uint64_t count) { words.push_back(str(word, ":", count)); });
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace

TEST_CASE("learn_byte_bpe() equals a naive reference that recounts all pairs for each merge", "[byte-bpe]") {
  CHECK(rc::check([] {
    const auto letter = rc::gen::element<std::string>("a", "a", "b", "c", " ", "\n", "\u00e9", "\u4e2d");
    const auto list = *rc::gen::container<std::vector<Words>>(rc::gen::nonEmpty(rc::gen::container<Words>(letter)));
    CountedWords words;
    for (const Words& word : list) words[join(word, "")] += *rc::gen::inRange<uint64_t>(1, 5);
    const auto min_count = *rc::gen::inRange<int64_t>(0, 9);
    const auto tokenizer = learn(words, 280, min_count);
    RC_ASSERT(tokenizer->merges() == naive_learn(words, 280, static_cast<uint64_t>(min_count)));
    RC_ASSERT(tokenizer->pieces().size() == 257 + tokenizer->merges().size());
    for (size_t i = 0; i < tokenizer->merges().size(); ++i)
      RC_ASSERT(tokenizer->pieces()[257 + i].text == tokenizer->merges()[i].left + tokenizer->merges()[i].right);
  }));
}

TEST_CASE("a learnt byte-bpe vocabulary begins with <|endoftext|> and the bytes, and size and minimum count limit it",
          "[byte-bpe]") {
  const CountedWords words{{"ab", 3}, {" ab", 2}, {"cb", 3}};
  const auto tokenizer = learn(words, 300, 1);
  CHECK(tokenizer->pieces()[0].text == kEndOfText);
  CHECK(tokenizer->pieces()[1].text == "!");
  CHECK(tokenizer->pieces()[256].text == "\u0143");
  CHECK(tokenizer->merges() == std::vector<Merge>{{"a", "b"}, {"c", "b"}, {"\u0120", "ab"}});
  CHECK(learn(words, 300, 3)->merges() == std::vector<Merge>{{"a", "b"}, {"c", "b"}});
  CHECK(learn(words, 258, 1)->merges() == std::vector<Merge>{{"a", "b"}});
  CHECK(learn(words, 257, 1)->merges().empty());
  CHECK(learn({}, 300, 1)->size() == 257);
  CHECK(parse_tokenizer(tokenizer->serialize(), "test")->fingerprint() == tokenizer->fingerprint());
  // Of overlapping occurrences only the first is joined.
  CHECK(learn({{"aaaaa", 2}}, 300, 1)->merges() == std::vector<Merge>{{"a", "a"}, {"aa", "a"}, {"aa", "aaa"}});
}

TEST_CASE("words are counted with the white space that precedes a line feed", "[byte-bpe]") {
  CHECK(counted_words("a a\n") == Words{"\n:1", " a:1", "a:1"});
  CHECK(counted_words("a  \n") == Words{"  \n:1", "a:1"});
  CHECK(counted_words("a a a") == Words{" a:2", "a:1"});
  CHECK(counted_words("\n") == Words{"\n:1"});
  CHECK(counted_words("").empty());
}
