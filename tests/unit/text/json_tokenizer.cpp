// Tests of the components of tokenizer.json with hand-made values, of the models against naive references, and of the
// tokenizer as a whole: round trips, vocabulary files, tokens around a text and line feeds.
#include "text/json_tokenizer.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "base/file.h"
#include "base/json_types.h"
#include "base/text.h"
#include "base/unicode.h"
#include "fixtures/folder.h"
#include "fixtures/status.h"
#include "fixtures/within.h"
#include "text/byte_bpe.h"
#include "text/folder_tokenizer.h"
#include "text/pipeline/normalization.h"
#include "text/pipeline/post_processor.h"

using namespace mh;
using namespace mh::text;
using Json = nlohmann::json;

namespace {

using TokenIds = std::vector<int32_t>;
using Words = std::vector<std::string>;

TokenIds encode(const Tokenizer& tokenizer, const std::string& text) {
  TokenIds ids;
  tokenizer.encoder()->encode(text, ids);
  return ids;
}

// Returns the value as a file gives it, with unsigned integers.
Json parsed(const Json& value) { return Json::parse(value.dump()); }

std::string normalized(const Json& settings, const std::string& text) {
  Json canonical = Json::array();
  const Normalizers normalizers = parse_normalizers({&settings, "test"}, canonical);
  std::string buffers[2];
  return std::string(normalize(normalizers, text, buffers));
}

// Returns the words of a text; the bytes of byte-level words are not yet replaced by their characters.
Words words_of(const Json& settings, const std::string& text) {
  Json canonical = Json::array();
  const PreTokenizers pre_tokenizers = parse_pre_tokenizers({&settings, "test"}, canonical);
  WordList list;
  list.assign(text, true);
  for (const auto& stage : pre_tokenizers.stages) stage->apply(list);
  Words words;
  for (const WordList::Word& word : list.words) words.emplace_back(list.text_of(word));
  return words;
}

Json split(const std::string& pattern, const std::string& behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", invert}};
}

TokenIds model_tokens(const Json& settings, const std::string& word) {
  Json canonical = Json::object();
  const Json file = parsed(settings);
  const ParsedModel model = parse_model({&file, "test"}, canonical);
  Model::Workspace workspace;
  TokenIds tokens;
  model.model->encode_word(word, workspace, tokens);
  return tokens;
}

std::string decoded(const Json& settings, Words pieces) {
  const Json file = parsed(settings);
  for (const auto& decoder : parse_decoders({&file, "test"})) decoder->apply(pieces);
  return join(pieces, "");
}

// Returns a tokenizer.json of byte-level BPE without merges, with the tokens <s> (256, special) and <tool> (257).
Json byte_level_json() {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string piece;
    append_utf8(character_of_byte(static_cast<uint8_t>(byte)), piece);
    vocabulary[piece] = byte;
  }
  return {{"added_tokens",
           {{{"id", 256}, {"content", "<s>"}, {"special", true}, {"normalized", false}},
            {{"id", 257}, {"content", "<tool>"}, {"special", false}, {"normalized", false}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {split(R"( ?\p{L}+|\s+(?!\S)|\s+|[^\s])", "Isolated"),
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}}}}}},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {256}}}}}}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
}

int refusal_status(const Json& json) {
  return status_of([&] { JsonTokenizer(json.dump(), "test"); });
}

}  // namespace

TEST_CASE("normalizers of tokenizer.json rewrite text", "[tokenizer-json]") {
  CHECK(normalized({{"type", "NFC"}}, "e\u0301\u1112\u1161\u11ab\u212b") == "\u00e9\ud55c\u00c5");
  CHECK(normalized({{"type", "NFD"}}, "\u00e9\u0327\ud55c") == "e\u0327\u0301\u1112\u1161\u11ab");
  CHECK(normalized({{"type", "NFKC"}}, "\ufb01\u2460\u32ff") == "fi1\u32ff");  // U+32FF is younger than Unicode 9.0
  CHECK(normalized({{"type", "NFKD"}}, "\u00bd") == "1\u20442");
  CHECK(normalized({{"type", "Lowercase"}}, "\u0130\u03a3\u1c89") == "i\u0307\u03c3\u1c8a");
  CHECK(normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, " \u3000a ") == "a ");
  CHECK(normalized({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, " a\u00a0 ") == " a");
  CHECK(normalized({{"type", "StripAccents"}}, "e\u0301\u00e9") == "e\u00e9");
  CHECK(normalized({{"type", "Prepend"}, {"prepend", "_"}}, "a") == "_a");
  CHECK(normalized({{"type", "Prepend"}, {"prepend", "_"}}, "").empty());
  CHECK(normalized({{"type", "Replace"}, {"pattern", {{"String", "a."}}}, {"content", "$"}}, "a.aba.") == "$ab$");
  CHECK(normalized({{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", " "}}, "a  b   c") == "a b c");
  CHECK(normalized({{"type", "ByteLevel"}}, "a \n") == "a\u0120\u010a");
  CHECK(normalized({{"type", "BertNormalizer"}, {"lowercase", true}, {"strip_accents", nullptr}}, "\u00c9\t") == "e ");
  CHECK(normalized(
            {{"type", "Sequence"},
             {"normalizers", {{{"type", "Lowercase"}}, {{"type", "Sequence"}, {"normalizers", {{{"type", "NFD"}}}}}}}},
            "\u00c9") == "e\u0301");
  CHECK(normalized(nullptr, "A") == "A");
}

TEST_CASE("Unicode normalisation is idempotent and keeps stable text", "[tokenizer-json]") {
  CHECK(rc::check("idempotent", [](const std::vector<uint16_t>& codes) {
    std::string text;
    for (uint16_t code : codes)
      if (code > 0 && (code < 0xD800 || code >= 0xE000)) append_utf8(code % 5 == 0 ? 0x300 + code % 0x70 : code, text);
    for (const NormalizationForm form :
         {NormalizationForm::nfc, NormalizationForm::nfd, NormalizationForm::nfkc, NormalizationForm::nfkd}) {
      std::string once, twice;
      if (!normalize_unicode(text, form, once)) continue;
      if (normalize_unicode(once, form, twice)) RC_ASSERT(twice == once);
    }
  }));
}

TEST_CASE("pre-tokenizers of tokenizer.json split text into words", "[tokenizer-json]") {
  CHECK(words_of(split("-", "Removed"), "a--b-") == Words{"a", "b"});
  CHECK(words_of(split("-", "Isolated"), "a--b-") == Words{"a", "-", "-", "b", "-"});
  CHECK(words_of(split("-", "MergedWithPrevious"), "a--b-") == Words{"a-", "-", "b-"});
  CHECK(words_of(split("-", "MergedWithNext"), "a--b-") == Words{"a", "-", "-b", "-"});
  CHECK(words_of(split("-", "Contiguous"), "a--b-") == Words{"a", "--", "b", "-"});
  CHECK(words_of(split("[ab]+", "Removed", true), "ab-ba--") == Words{"ab", "ba"});
  CHECK(words_of({{"type", "Split"}, {"pattern", {{"String", "."}}}, {"behavior", "Removed"}}, "a.b") ==
        Words{"a", "b"});
  CHECK(words_of({{"type", "Digits"}, {"individual_digits", true}}, "a12½") == Words{"a", "1", "2", "½"});
  CHECK(words_of({{"type", "Digits"}}, "a12b") == Words{"a", "12", "b"});
  CHECK(words_of({{"type", "Punctuation"}}, "a!?$") == Words{"a", "!", "?", "$"});
  CHECK(words_of({{"type", "Punctuation"}, {"behavior", "Contiguous"}}, "a!?b") == Words{"a", "!?", "b"});
  CHECK(words_of({{"type", "WhitespaceSplit"}}, " a\u3000b!") == Words{"a", "b!"});
  CHECK(words_of({{"type", "Whitespace"}}, "a_\u0301 b!?\u200d") == Words{"a_\u0301", "b", "!?", "\u200d"});
  CHECK(words_of({{"type", "BertPreTokenizer"}}, "a b!?") == Words{"a", "b", "!", "?"});
  CHECK(words_of({{"type", "CharDelimiterSplit"}, {"delimiter", "x"}}, "axxb") == Words{"a", "b"});
  CHECK(words_of({{"type", "ByteLevel"}, {"add_prefix_space", true}}, "a b's") == Words{" a", " b", "'s"});
  CHECK(words_of({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}, "a b") == Words{"a b"});
  const Json falcon = {
      {"type", "Sequence"},
      {"pretokenizers", {{{"type", "ByteLevel"}, {"add_prefix_space", false}}, split("[0-9][0-9]", "Isolated")}}};
  CHECK(words_of(falcon, "a 123\n") == Words{"a", "\u0120", "12", "3", "\u010a"});
}

TEST_CASE("Metaspace marks spaces, and the start of words by its scheme", "[tokenizer-json]") {
  const auto metaspace = [](const char* scheme, bool splits = true) -> Json {
    return {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", scheme}, {"split", splits}};
  };
  CHECK(words_of(metaspace("always"), "a  b") == Words{"_a", "_", "_b"});
  CHECK(words_of(metaspace("always"), " a") == Words{"_a"});
  CHECK(words_of(metaspace("never"), "a b") == Words{"a", "_b"});
  CHECK(words_of(metaspace("first", false), "a b") == Words{"_a_b"});
  const auto after_split = [&](const char* scheme) -> Json {
    return {{"type", "Sequence"}, {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace(scheme)}}};
  };
  CHECK(words_of(after_split("first"), "a b") == Words{"_a", "b"});
  CHECK(words_of(after_split("first"), " a b") == Words{"a", "b"});
  CHECK(words_of(after_split("always"), "a b") == Words{"_a", "_b"});
  CHECK(words_of({{"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", true}}, "a") == Words{"_a"});
}

TEST_CASE("added tokens are found from left to right, the longest first", "[tokenizer-json]") {
  AddedTokenMatcher matcher;
  const auto add = [&](int32_t id, const char* content, auto change) {
    AddedToken token;
    token.id = id;
    token.content = content;
    change(token);
    matcher.add(content, token);
  };
  add(1, "ab", [](AddedToken&) {});
  add(2, "abc", [](AddedToken&) {});
  add(3, "w", [](AddedToken& t) { t.single_word = true; });
  add(4, "L", [](AddedToken& t) { t.lstrip = true; });
  add(5, "R", [](AddedToken& t) { t.rstrip = true; });
  add(6, "<ab>", [](AddedToken& t) { t.special = true; });
  matcher.sort();
  // Returns the parts with tokens as [id], and the text between them.
  const auto parts_of = [&](const std::string& text) {
    std::vector<AddedTokenMatcher::Part> parts;
    matcher.find(text, parts);
    std::string result;
    for (const auto& part : parts)
      result += part.id >= 0 ? str("[", part.id, "]") : "(" + text.substr(part.begin, part.end - part.begin) + ")";
    return result;
  };
  CHECK(parts_of("xabcab") == "(x)[2][1]");
  CHECK(parts_of("w xw w.") == "[3]( xw )[3](.)");
  CHECK(parts_of("x  L R  R y") == "(x)[4]( )[5][5](y)");
  CHECK(parts_of("<ab>ab") == "(<ab>)[1]");  // the text of a special token is not searched
  CHECK(parts_of("").empty());
}

TEST_CASE("the model BPE handles unknown characters by its options", "[tokenizer-json]") {
  const auto bpe = [](const Json& settings, const Json& further_pieces = Json::object()) {
    Json model = {{"type", "BPE"}, {"vocab", {{"?", 0}, {"a", 1}, {"b", 2}, {"ab", 3}}}, {"merges", {"a b"}}};
    model.update(settings);
    model["vocab"].update(further_pieces);
    return model;
  };
  CHECK(model_tokens(bpe(Json::object()), "abxa") == TokenIds{3, 1});
  CHECK(model_tokens(bpe({{"unk_token", "?"}}), "xyab") == TokenIds{0, 0, 3});
  CHECK(model_tokens(bpe({{"unk_token", "?"}, {"fuse_unk", true}}), "xyabx") == TokenIds{0, 3, 0});
  CHECK(model_tokens(bpe({{"byte_fallback", true}}, {{"<0x78>", 4}}), "xab") == TokenIds{4, 3});
  // Bytes precede an unknown character that is not yet added.
  CHECK(model_tokens(bpe({{"byte_fallback", true}, {"unk_token", "?"}}, {{"<0x78>", 4}}), "yxa") == TokenIds{4, 0, 1});
  CHECK(model_tokens(bpe({{"ignore_merges", true}}, {{"ba", 4}}), "ba") == TokenIds{4});
  CHECK(model_tokens(bpe(Json::object(), {{"ba", 4}}), "ba") == TokenIds{2, 1});
  CHECK(model_tokens(bpe({{"merges", Json::array({Json::array({"a", "b"})})}}), "ab") == TokenIds{3});
  CHECK(model_tokens({{"type", "BPE"},
                      {"vocab", {{"a", 0}, {"##b", 1}, {"##b</w>", 2}, {"ab", 3}}},
                      {"merges", {"a ##b"}},
                      {"continuing_subword_prefix", "##"},
                      {"end_of_word_suffix", "</w>"}},
                     "abb") == TokenIds{3, 2});
}

TEST_CASE("the model BPE joins the merge of the lowest rank first", "[tokenizer-json]") {
  CHECK(rc::check("naive merging", [] {
    Words pieces{"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    const int num_merges = *rc::gen::inRange(0, 8);
    for (int i = 0; i < num_merges; ++i) {
      const auto left = *rc::gen::elementOf(pieces), right = *rc::gen::elementOf(pieces);
      if (std::find(pieces.begin(), pieces.end(), left + right) != pieces.end()) continue;
      merges.emplace_back(left, right);
      pieces.push_back(left + right);
    }
    Json vocabulary = Json::object(), merge_list = Json::array();
    for (size_t i = 0; i < pieces.size(); ++i) vocabulary[pieces[i]] = i;
    for (const auto& [left, right] : merges) merge_list.push_back(left + " " + right);
    const auto word = *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c')));
    Words symbols;
    for (char c : word) symbols.emplace_back(1, c);
    for (bool has_merged = true; has_merged;) {
      has_merged = false;
      for (const auto& [left, right] : merges) {
        for (size_t i = 0; i + 1 < symbols.size() && !has_merged; ++i)
          if (symbols[i] == left && symbols[i + 1] == right) {
            symbols[i] += right;
            symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(i) + 1);
            has_merged = true;
          }
        if (has_merged) break;
      }
    }
    TokenIds expected;
    for (const std::string& symbol : symbols) expected.push_back(vocabulary[symbol].get<int32_t>());
    RC_ASSERT(model_tokens({{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merge_list}}, word) == expected);
  }));
}

TEST_CASE("the model WordPiece takes the longest piece, or the unknown token", "[tokenizer-json]") {
  const Json model = {{"type", "WordPiece"},
                      {"vocab", {{"?", 0}, {"a", 1}, {"##b", 2}, {"##bc", 3}, {"é", 4}}},
                      {"unk_token", "?"},
                      {"max_input_chars_per_word", 4}};
  CHECK(model_tokens(model, "abcb") == TokenIds{1, 3, 2});
  CHECK(model_tokens(model, "éb") == TokenIds{4, 2});
  CHECK(model_tokens(model, "aba") == TokenIds{0});
  CHECK(model_tokens(model, "abbbb") == TokenIds{0});
}

TEST_CASE("the model WordLevel has a token for each word, or the unknown token", "[tokenizer-json]") {
  const Json model = {{"type", "WordLevel"}, {"vocab", {{"?", 3}, {"a", 0}, {"ab", 5}}}, {"unk_token", "?"}};
  CHECK(model_tokens(model, "ab") == TokenIds{5});
  CHECK(model_tokens(model, "a") == TokenIds{0});
  CHECK(model_tokens(model, "b") == TokenIds{3});
  Json old_model = model;  // old files have no type
  old_model.erase("type");
  CHECK(model_tokens(old_model, "b") == TokenIds{3});
  for (const char* unknown_piece : {"", "b"}) {
    Json damaged_model = model;
    damaged_model["unk_token"] = unknown_piece;
    CHECK(status_of([&] { model_tokens(damaged_model, "a"); }) == 3);
  }
}

TEST_CASE("the model Unigram has the segmentation of the highest score", "[tokenizer-json]") {
  CHECK(rc::check("all segmentations", [] {
    Json vocabulary = Json::array({{"?", 0.0}, {"a", -3.0}, {"b", -2.5}});
    std::map<std::string, double> scores{{"a", -3.0}, {"b", -2.5}};
    for (const char* piece : {"ab", "ba", "aa", "bab", "abba"}) {
      const double score = -*rc::gen::inRange(1, 1000) / 64.0 - 0.001;
      scores[piece] = score;
      vocabulary.push_back({piece, score});
    }
    const auto word =
        *rc::gen::resize(12, rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::element('a', 'b'))));
    std::vector<double> best(word.size() + 1, -1e9);
    best[0] = 0;
    for (size_t end = 1; end <= word.size(); ++end)
      for (size_t begin = 0; begin < end; ++begin)
        if (const auto piece = scores.find(word.substr(begin, end - begin)); piece != scores.end())
          best[end] = std::max(best[end], best[begin] + piece->second);
    double score = 0;
    std::string text;
    for (int32_t token : model_tokens({{"type", "Unigram"}, {"vocab", vocabulary}, {"unk_id", 0}}, word)) {
      score += vocabulary[static_cast<size_t>(token)][1].get<double>();
      text += vocabulary[static_cast<size_t>(token)][0].get<std::string>();
    }
    RC_ASSERT(text == word);
    // Both sums have at most a term per character; all terms are negative, so none cancel.
    const double bound = rounding::fp64_bound(static_cast<int64_t>(word.size()), std::abs(best[word.size()]));
    RC_ASSERT(std::abs(score - best[word.size()]) <= bound);
  }));
  CHECK(rc::check("equal scores", [] {
    // Many segmentations have equal sums. The naive reference adds scores from left to right; of segmentations with
    // equal sums it keeps the segmentation whose last piece begins first.
    std::map<std::string, std::pair<int32_t, double>> pieces;
    Json vocabulary = Json::array({{"?", 0.0}});
    for (const char* piece : {"a", "b", "ab", "ba", "aa", "bab", "aab"}) {
      const double score = -0.1 * *rc::gen::inRange(1, 9);
      const double rounded_score = std::stod(str(score));
      pieces[piece] = {static_cast<int32_t>(vocabulary.size()), rounded_score};
      vocabulary.push_back({piece, rounded_score});
    }
    const auto word =
        *rc::gen::resize(12, rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::element('a', 'b'))));
    std::vector<double> best(word.size() + 1, -1e9);
    std::vector<TokenIds> best_tokens(word.size() + 1);
    best[0] = 0;
    for (size_t end = 1; end <= word.size(); ++end)
      for (size_t begin = 0; begin < end; ++begin)
        if (const auto piece = pieces.find(word.substr(begin, end - begin));
            piece != pieces.end() && best[begin] + piece->second.second > best[end]) {
          best[end] = best[begin] + piece->second.second;
          best_tokens[end] = best_tokens[begin];
          best_tokens[end].push_back(piece->second.first);
        }
    RC_ASSERT(model_tokens({{"type", "Unigram"}, {"vocab", vocabulary}, {"unk_id", 0}}, word) == best_tokens.back());
  }));
  const Json pieces = Json::array({{"?", 0.0}, {"a", -1.0}, {"<0x78>", -5.0}});
  CHECK(model_tokens({{"type", "Unigram"}, {"vocab", pieces}, {"unk_id", 0}}, "axyza") == TokenIds{1, 0, 1});
  CHECK(model_tokens({{"type", "Unigram"}, {"vocab", pieces}, {"unk_id", 0}, {"byte_fallback", true}}, "xxa") ==
        TokenIds{2, 2, 1});
  CHECK(model_tokens({{"type", "Unigram"}, {"vocab", pieces}, {"unk_id", 0}, {"byte_fallback", true}}, "xya") ==
        TokenIds{0, 1});
}

TEST_CASE("scores of Unigram are rounded and compared as in tokenizers 0.22", "[tokenizer-json]") {
  const auto segments = [](const std::vector<std::pair<const char*, double>>& scores, const std::string& word) {
    Json vocabulary = Json::array();
    vocabulary.push_back(Json::array({"?", 0.0}));
    for (const auto& [piece, score] : scores) vocabulary.push_back(Json::array({piece, score}));
    Words result;
    for (int32_t token : model_tokens({{"type", "Unigram"}, {"vocab", vocabulary}, {"unk_id", 0}}, word))
      result.push_back(vocabulary[static_cast<size_t>(token)][0].get<std::string>());
    return result;
  };
  // Of equal sums the segmentation remains whose last piece begins first.
  CHECK(segments({{"a", -1}, {"b", -1}, {"ab", -2}}, "ab") == Words{"ab"});
  CHECK(segments({{"a", -1}, {"b", -1}, {"c", -1}, {"ab", -2}, {"bc", -2}}, "abc") == Words{"a", "bc"});
  // Sums are fp64; in fp32 the scores of "ab" equal -2.
  CHECK(segments({{"a", -1}, {"b", -1}, {"ab", -2.0000000001}}, "ab") == Words{"a", "b"});
  CHECK(segments({{"a", -1}, {"b", -1}, {"ab", -1.9999999999}}, "ab") == Words{"ab"});
  // Scores are added from left to right: (-0.8 - 0.2) - 0.2 = -1.2, but -0.8 + (-0.2 - 0.2) = -1.2000000000000002.
  CHECK(segments({{"a", -0.8}, {"b", -0.2}, {"c", -0.2}, {"abc", -1.2000000000000002}}, "abc") == Words{"a", "b", "c"});
  // tokenizers reads -1.3948980098582995 as the next lower double, and -0.9611624983327085 as the next higher one.
  CHECK(segments({{"a", -0.5}, {"b", -0.8948980098582995}, {"ab", -1.3948980098582995}}, "ab") == Words{"a", "b"});
  CHECK(segments({{"a", -0.5}, {"b", -0.9611624983327085}, {"ab", -1.4611624983327085}}, "ab") == Words{"a", "b"});
  // The score of the unknown "x" is the lowest score minus 10.
  CHECK(segments({{"a", -1}, {"xa", -12}}, "xa") == Words{"xa"});
}

TEST_CASE("decoders of tokenizer.json convert pieces to text", "[tokenizer-json]") {
  CHECK(decoded(nullptr, {"a", "b"}) == "a b");
  CHECK(decoded({{"type", "ByteLevel"}}, {"\u0120a", "\u010a", "中"}) == " a\n中");
  CHECK(decoded({{"type", "ByteFallback"}}, {"a", "<0xC3>", "<0xA9>", "<0xC3>", "b"}) == "a\uFFFD\uFFFD\uFFFDb");
  CHECK(decoded({{"type", "ByteFallback"}}, {"<0xC3>", "<0xA9>", "b"}) == "éb");
  CHECK(decoded({{"type", "Strip"}, {"content", "_"}, {"start", 1}, {"stop", 2}}, {"__a___"}) == "_a_");
  CHECK(decoded({{"type", "Replace"}, {"pattern", {{"String", "_"}}}, {"content", " "}}, {"_a_"}) == " a ");
  CHECK(decoded({{"type", "Metaspace"}, {"replacement", "_"}}, {"_a", "_b"}) == "a b");
  CHECK(decoded({{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "never"}}, {"_a", "_b"}) == " a b");
  CHECK(decoded({{"type", "WordPiece"}}, {"a", "##b", "c", "."}) == "ab c.");
  CHECK(decoded({{"type", "BPEDecoder"}}, {"a", "b</w>", "c</w>"}) == "ab c");
  CHECK(decoded({{"type", "Sequence"},
                 {"decoders", {{{"type", "Fuse"}}, {{"type", "Strip"}, {"content", " "}, {"start", 1}}}}},
                {" a", " b"}) == "a b");
}

TEST_CASE("post-processors state the tokens around a text", "[tokenizer-json]") {
  const auto tokens_of = [](const Json& settings) {
    const Json file = parsed(settings);
    const SurroundingTokens tokens = parse_post_processor({&file, "test"}, 10);
    return std::pair(tokens.begin, tokens.end);
  };
  CHECK(tokens_of(nullptr) == std::pair(TokenIds{}, TokenIds{}));
  CHECK(tokens_of({{"type", "RobertaProcessing"}, {"cls", {"<s>", 1}}, {"sep", {"</s>", 2}}}) ==
        std::pair(TokenIds{1}, TokenIds{2}));
  const Json templates = parsed(byte_level_json()["post_processor"]);
  CHECK(parse_post_processor({&templates, "test"}, 257).begin == TokenIds{256});
  CHECK(status_of([&] { parse_post_processor({&templates, "test"}, 256); }) == 3);
}

TEST_CASE("a tokenizer of tokenizer.json encodes line feeds and restores text", "[tokenizer-json]") {
  const JsonTokenizer tokenizer(byte_level_json().dump(), "test");
  CHECK(tokenizer.size() == 258);
  CHECK(tokenizer.encodes_line_feeds());
  CHECK(encode(tokenizer, "a\n<tool> <s>") == TokenIds{97, 10, 257, 32, 60, 115, 62});
  CHECK(tokenizer.decode(TokenIds{97, 10, 257, 256, 98}) == "a\n<tool>\nb");
  CHECK(rc::check("round trip", [&](const std::vector<uint16_t>& codes) {
    std::string text;
    for (uint16_t code : codes)
      if (code > 0 && (code < 0xD800 || code >= 0xE000)) append_utf8(code % 3 == 0 ? code % 128 + 1 : code, text);
    RC_ASSERT(tokenizer.decode(encode(tokenizer, text)) == text);
  }));
}

TEST_CASE("tokens around a text follow the post-processor and the settings", "[tokenizer-json]") {
  Json json = byte_level_json();
  const auto tokenizer_of = [&](std::optional<std::string> begin_piece, std::optional<std::string> end_piece) {
    JsonTokenizerSettings settings;
    settings.begin_piece = std::move(begin_piece);
    settings.end_piece = std::move(end_piece);
    return JsonTokenizer(json.dump(), "test", settings);
  };
  CHECK(tokenizer_of(std::nullopt, std::nullopt).begin_id() == 256);
  CHECK(tokenizer_of(std::nullopt, std::nullopt).end_of_line_id() == 256);
  CHECK(tokenizer_of("", "<tool>").begin_id() == -1);
  CHECK(tokenizer_of("", "<tool>").end_of_line_id() == 257);
  CHECK(status_of([&] { tokenizer_of("", std::nullopt); }) == 3);
  CHECK(status_of([&] { tokenizer_of("<x>", std::nullopt); }) == 3);
  json["post_processor"] = nullptr;
  json["added_tokens"].push_back({{"id", 258}, {"content", "</s>"}, {"special", true}});
  CHECK(tokenizer_of(std::nullopt, std::nullopt).begin_id() == -1);
  CHECK(tokenizer_of(std::nullopt, std::nullopt).end_id() == 258);
}

TEST_CASE("vocab.json and merges.txt without tokenizer.json are read by the class of the tokenizer",
          "[tokenizer-json]") {
  Folder folder;
  const auto write = [&](const char* name, const std::string& text) { write_file_atomically(folder.file(name), text); };
  Json vocabulary = byte_level_json()["model"]["vocab"];
  for (const char* piece : {"12", "\u0120a", "aa"}) vocabulary[piece] = vocabulary.size();
  write("vocab.json", vocabulary.dump());
  write("merges.txt", "#version: 0.2\n1 2\n\u0120 a\na a\n");
  const std::string tokens =
      R"("added_tokens_decoder": {"259": {"content": "<|endoftext|>", "special": true}, "260": {"content": "<tool>"},)"
      R"( "261": {"content": "</s>", "special": true}})";
  const auto read = [&](const std::string& config) {
    write("tokenizer_config.json", "{" + config + "}");
    return read_tokenizer_folder(folder.path.string());
  };
  const std::string qwen2 = R"("tokenizer_class": "Qwen2Tokenizer", )" + tokens;
  // Qwen 2 divides numbers into digits, keeps a punctuation mark with the letters after it, and composes characters.
  const std::string text = "12 a.a\u0301 <tool></s>";
  const auto tokenizer = read(qwen2);
  CHECK(tokenizer->type() == "tokenizer-json");
  CHECK(tokenizer->size() == 262);
  CHECK(tokenizer->end_of_line_id() == 259);
  CHECK(tokenizer->begin_id() == -1);
  CHECK(encode(*tokenizer, text) == TokenIds{'1', '2', 257, '.', 0xC3, 0xA1, ' ', 260, '<', '/', 's', '>'});
  CHECK(tokenizer->decode(encode(*tokenizer, "a\n12")) == "a\n12");
  CHECK(read(qwen2 + R"(, "eos_token": "</s>")")->end_of_line_id() == 261);
  CHECK(parse_tokenizer(tokenizer->serialize(), "copy")->serialize() == tokenizer->serialize());
  CHECK(read_tokenizer_json(tokenizer_json_text(*tokenizer), "copy")->serialize() == tokenizer->serialize());
  // GPT-2 keeps numbers and does not normalise.
  const auto gpt2 = read(R"("tokenizer_class": "GPT2Tokenizer", )" + tokens);
  CHECK(gpt2->type() == "byte-bpe");
  CHECK(encode(*gpt2, "12 a") == TokenIds{256, 257});
  CHECK(read(tokens)->type() == "byte-bpe");
  // OPT has GPT-2's words and other tokens around a text.
  const auto opt =
      read(R"("tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "bos_token": "</s>", "eos_token": "</s>", )" +
           tokens);
  CHECK(opt->type() == "tokenizer-json");
  CHECK(opt->begin_id() == 261);
  CHECK(opt->end_id() == 261);
  CHECK(encode(*opt, text) == TokenIds{256, 257, '.', 'a', 0xCC, 0x81, ' ', 260, '<', '/', 's', '>'});
  CHECK(read(R"("add_bos_token": true, )" + tokens)->begin_id() == 259);
  CHECK(read(R"("eos_token": "</s>", )" + tokens)->begin_id() == -1);
  // Without the class, model_type of config.json states it.
  write("config.json", R"({"model_type": "qwen2"})");
  CHECK(read(tokens)->serialize() == tokenizer->serialize());
  CHECK_THROWS_WITH(read(R"("tokenizer_class": "RobertaTokenizer", )" + tokens),
                    Catch::Contains("tokenizer_class: expected GPT2Tokenizer, GPT2TokenizerFast, Qwen2Tokenizer") &&
                        Catch::Contains("found RobertaTokenizer; add the tokenizer.json"));
  write("config.json", R"({"tokenizer_class": "CodeGenTokenizer"})");
  CHECK_THROWS_WITH(read(tokens), Catch::Contains("found CodeGenTokenizer"));
  CHECK_THROWS_WITH(read_byte_bpe_folder(folder.path.string()), Catch::Contains("found CodeGenTokenizer"));
  CHECK(status_of([&] { read(qwen2 + R"(, "add_prefix_space": true)"); }) == 3);
  CHECK(status_of([&] { read(qwen2 + R"(, "eos_token": "<nowhere>")"); }) == 3);
  CHECK(status_of([&] { read(R"("tokenizer_class": "Qwen2Tokenizer")"); }) == 3);  // no token ends a text
}

TEST_CASE("a vocabulary file restores a tokenizer of tokenizer.json", "[tokenizer-json]") {
  const JsonTokenizer tokenizer(byte_level_json().dump(), "test");
  const auto copy = parse_tokenizer(tokenizer.serialize(), "copy");
  CHECK(copy->serialize() == tokenizer.serialize());
  CHECK(copy->fingerprint() == tokenizer.fingerprint());
  CHECK(copy->begin_id() == 256);
  // The same tokenizer with other spellings of its settings has the same fingerprint.
  Json json = byte_level_json();
  json["truncation"] = nullptr;
  json["model"]["fuse_unk"] = false;
  json["pre_tokenizer"]["pretokenizers"][1]["trim_offsets"] = false;
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  CHECK(JsonTokenizer(json.dump(2), "test").fingerprint() == tokenizer.fingerprint());
  json["added_tokens"][1]["special"] = true;
  CHECK(JsonTokenizer(json.dump(), "test").fingerprint() != tokenizer.fingerprint());
  std::string damaged = tokenizer.serialize();
  damaged.back() = ' ';
  CHECK(status_of([&] { parse_tokenizer(damaged, "damaged"); }) == 3);
}

TEST_CASE("the tokenizer.json of a vocabulary restores its tokens and the token in front of a text",
          "[tokenizer-json]") {
  const auto vocabulary_of = [](const Json& json, std::optional<std::string> begin_piece) {
    JsonTokenizerSettings settings;
    settings.begin_piece = std::move(begin_piece);
    settings.end_piece = "<tool>";
    const JsonTokenizer tokenizer(json.dump(), "test", settings);
    return parse_tokenizer(tokenizer.serialize(), "vocabulary");
  };
  const Json with_template = byte_level_json();
  Json with_positions = byte_level_json(), without_processor = byte_level_json();
  with_positions["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", false}};
  without_processor["post_processor"] = nullptr;
  for (const Json& json : {with_template, with_positions, without_processor})
    for (const char* begin_piece : {"<s>", ""}) {
      INFO(json["post_processor"] << " " << begin_piece);
      const auto tokenizer = vocabulary_of(json, begin_piece);
      const auto copy = vocabulary_of(Json::parse(tokenizer_json_text(*tokenizer)), std::nullopt);
      CHECK(copy->begin_id() == (*begin_piece == '\0' ? -1 : 256));
      CHECK(copy->end_of_line_id() == tokenizer->end_of_line_id());
      CHECK(encode(*copy, "a\n<tool> <s>") == encode(*tokenizer, "a\n<tool> <s>"));
      CHECK(tokenizer_json_text(*copy) == tokenizer_json_text(*tokenizer));
    }
  // Merges are strings, or all of them are pairs if a symbol has a space.
  Json spaced = with_template;
  spaced["model"]["vocab"].update({{"ab", 258}, {"a b", 259}, {"a bab", 260}});
  spaced["added_tokens"] = Json::array();
  spaced["post_processor"] = nullptr;
  spaced["model"]["vocab"]["<tool>"] = 261;
  const auto merges_of = [&](const Json& merges) {
    spaced["model"]["merges"] = merges;
    return Json::parse(tokenizer_json_text(*vocabulary_of(spaced, std::nullopt)))["model"]["merges"];
  };
  const Json pair_of_letters = Json::array({"a", "b"}), pair_with_space = Json::array({"a b", "ab"});
  CHECK(merges_of(Json::array({pair_of_letters})) == Json::array({"a b"}));
  CHECK(merges_of(Json::array({pair_of_letters, pair_with_space})) == Json::array({pair_of_letters, pair_with_space}));
  CHECK(status_of([&] { merges_of(Json::array({"a b", pair_with_space})); }) == 3);
  // The text is unchanged if the post-processor already states the token.
  const JsonTokenizer tokenizer(with_template.dump(), "test");
  CHECK(tokenizer_json_text(tokenizer) == tokenizer.json());
  const Json pair = Json::parse(tokenizer_json_text(*vocabulary_of(with_positions, "<s>")))["post_processor"];
  CHECK(pair["processors"][0]["type"] == "ByteLevel");
  CHECK(pair["processors"][1]["pair"].size() == 4);
}

TEST_CASE("the tokenizer.json of a byte-bpe vocabulary restores the vocabulary", "[tokenizer-json]") {
  std::vector<Piece> pieces;
  for (int byte = 0; byte < 256; ++byte) {
    std::string piece;
    append_utf8(character_of_byte(static_cast<uint8_t>(byte)), piece);
    pieces.push_back({piece, 0});
  }
  for (const char* piece : {"\u0120a", "ab", "<|endoftext|>", "<pad>"}) pieces.push_back({piece, 0});
  const std::vector<Merge> merges{{"\u0120", "a"}, {"a", "b"}};
  const AddedTokens added_tokens{{258, {kSpecialToken, "eos_token"}}, {259, {kSpecialToken, kAppended, "lstrip"}}};
  const auto tokenizer = make_byte_bpe_tokenizer(pieces, merges, "test", added_tokens);
  const std::string text = tokenizer_json_text(*tokenizer);
  const auto copy = read_tokenizer_json(text, "copy");
  CHECK(copy->type() == ByteBpeTokenizer::kType);
  CHECK(copy->fingerprint() == tokenizer->fingerprint());
  CHECK(Json::parse(text)["added_tokens"][1] == Json({{"id", 259},
                                                      {"content", "<pad>"},
                                                      {"special", true},
                                                      {"normalized", false},
                                                      {"lstrip", true},
                                                      {"rstrip", false},
                                                      {"single_word", false}}));
  CHECK(Json::parse(text)["model"]["merges"] == Json::array({"\u0120 a", "a b"}));
  // A symbol with a space needs merges in the form of pairs.
  pieces.push_back({"a b", 0});
  pieces.push_back({"a ba", 0});
  const auto spaced = make_byte_bpe_tokenizer(pieces, {{"a b", "a"}, {"a", "b"}}, "test");
  CHECK(Json::parse(tokenizer_json_text(*spaced))["model"]["merges"] ==
        Json::array({Json::array({"a b", "a"}), Json::array({"a", "b"})}));
  CHECK(status_of([] { tokenizer_json_text(*make_byte_tokenizer()); }) == 3);
}

TEST_CASE("text is split only where both parts keep the tokens", "[tokenizer-json]") {
  const JsonTokenizer tokenizer(byte_level_json().dump(), "test");
  std::string text;
  while (text.size() < 20000) text += "some words,  1234 ";
  const size_t split_position = tokenizer.find_split(text);
  REQUIRE(split_position < text.size() - 1000);
  TokenIds tokens = encode(tokenizer, text.substr(0, split_position));
  for (int32_t token : encode(tokenizer, text.substr(split_position) + "end")) tokens.push_back(token);
  CHECK(tokens == encode(tokenizer, text + "end"));
  Json whole_text = byte_level_json();
  whole_text["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}};
  CHECK(JsonTokenizer(whole_text.dump(), "test").find_split(std::string(20000, 'a')) == std::string::npos);
}

TEST_CASE("unsupported and damaged parts of tokenizer.json are refused", "[tokenizer-json]") {
  REQUIRE(refusal_status(byte_level_json()) == 0);
  const auto status_with = [](const char* pointer, const Json& value) {
    Json json = byte_level_json();
    json[Json::json_pointer(pointer)] = value;
    return refusal_status(json);
  };
  for (const auto& [pointer, value] : std::vector<std::pair<const char*, Json>>{
           {"/normalizer", {{"type", "Nmt"}}},
           {"/normalizer", "NFC"},
           {"/normalizer", {{"type", "Sequence"}, {"normalizers", 1}}},
           {"/normalizer", {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", ""}}},
           {"/normalizer", {{"type", "Replace"}, {"pattern", "a"}, {"content", ""}}},
           {"/normalizer", {{"type", "BertNormalizer"}, {"clean_text", false}}},
           {"/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}},
           {"/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "?"}}},
           {"/pre_tokenizer", {{"type", "UnicodeScripts"}}},
           {"/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}},
           {"/pre_tokenizer", {{"type", "Metaspace"}, {"prepend_scheme", "last"}}},
           {"/pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", ""}}},
           {"/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Removed"}}},
           {"/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Json::array_t(33, {{"type", "Digits"}})}}},
           {"/decoder", {{"type", "CTC"}}},
           {"/decoder", {{"type", "Strip"}, {"content", ""}}},
           {"/post_processor", {{"type", "Other"}}},
           {"/post_processor/single", Json::array()},
           {"/post_processor", {{"type", "BertProcessing"}, {"cls", {"<s>"}}, {"sep", {"</s>", 2}}}},
           {"/model/type", "Other"},
           {"/model/type", "WordLevel"},  // without unk_token
           {"/model/dropout", 0.5},
           {"/model/unk_token", "missing"},
           {"/model/merges", {"a zz"}},
           {"/model/merges", {"ab"}},
           {"/model/merges", "a b"},
           {"/model/vocab", Json::object()},
           {"/model/vocab/x", -1},
           {"/model/vocab/!", 200000},
           {"/model", {{"type", "Unigram"}, {"vocab", {{"a", 0}}}}},
           {"/model", {{"type", "Unigram"}, {"vocab", {{"a"}}}, {"unk_id", 0}}},
           {"/added_tokens/0/id", 300},
           {"/added_tokens/1/id", 256},
           {"/added_tokens/0/content", ""},
           {"/added_tokens/0/special", 1},
           {"/added_tokens", 1}}) {
    INFO(pointer << " " << value);
    CHECK(status_with(pointer, value) == 3);
  }
  CHECK(status_of([] { parse_tokenizer("IQ== 0\nIg== 1\n", "tiktoken"); }) == 3);
  CHECK(status_of([] { parse_tokenizer("{}", "empty"); }) == 3);
}

TEST_CASE("the error of a refused tokenizer.json states the entry and the expected value", "[tokenizer-json]") {
  // Each patch is a JSON merge patch (RFC 7386).
  for (const auto& [patch, message] : std::vector<std::pair<const char*, const char*>>{
           {R"({"normalizer": {"type": "Prepend", "prepend": 1}})", "normalizer.prepend: expected a string; found 1"},
           {R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BQAAAA=="}})",
            "precompiled_charsmap: expected a normalisation table of SentencePiece in base64; found a trie of 5 bytes"},
           {R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAD/"}})",
            "normalisation table of SentencePiece in base64; found replacements that are not UTF-8"},
           {R"({"normalizer": {"type": "Replace", "pattern": {"String": "<s>"}, "content": ""},
                "added_tokens": [{"id": 256, "content": "<s>", "normalized": true}]})",
            "added_tokens: expected added tokens that are not empty when they are normalised; found '<s>'"},
           {R"({"pre_tokenizer": {"type": "Metaspace", "str_rep": "_"}})",
            "pre_tokenizer.str_rep: expected the value of replacement, '\u2581'; found '_'"},
           {R"({"pre_tokenizer": {"type": "Metaspace", "add_prefix_space": false, "prepend_scheme": "first"}})",
            "prepend_scheme: expected never, since add_prefix_space is false; found first"},
           {R"({"decoder": {"type": "Metaspace", "replacement": "ab"}})",
            "decoder.replacement: expected one character; found 'ab'"},
           {R"({"decoder": {"type": "Strip", "start": -1}})",
            "decoder.start: expected an integer from 0 to 2147483647; found -1"},
           {R"({"post_processor": {"single": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "B"}}]}})",
            "post_processor.single: expected a template with one text; found several texts"},
           {R"({"post_processor": {"single": [{"SpecialToken": {"id": "<s>"}}, {"SpecialToken": {"id": "<s>"}},
                {"Sequence": {"id": "A"}}]}})",
            "post_processor: expected at most one token in front of a text; found 2 tokens"},
           {R"({"model": {"continuing_subword_prefix": "##", "merges": ["a b"]}})",
            "model.merges[0]: expected a right symbol with the prefix '##'; found 'b'"},
           {R"({"model": {"vocab": {"zz": 65}}})",
            "model.vocab: expected a unique id for each piece; found the same id for 'A' and 'zz'"},
           {R"({"model": {"type": "Unigram", "vocab": [["a", 0], ["a", 0]], "unk_id": 0}})",
            "model.vocab[1]: expected distinct pieces; found 'a' twice"},
           {R"({"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1}})",
            "model.unk_id: expected the id of a piece; found 1"}}) {
    INFO(patch);
    Json json = byte_level_json();
    json.merge_patch(Json::parse(patch));
    CHECK_THROWS_WITH(JsonTokenizer(json.dump(), "test"), Catch::Contains(message));
  }
}
