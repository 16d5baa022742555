// Tests of the special tokens of encoders, of the byte ranges of tokens, and of rows with two separators between texts.
#include "text/encoder_vocabulary.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "fixtures/encoder_vocabulary.h"
#include "fixtures/status.h"
#include "text/json_tokenizer.h"
#include "text/records/classification.h"
#include "text/records/masked_words.h"

using namespace mh;
using namespace mh::text;
using namespace encoder_vocabulary;
using Json = nlohmann::json;
using TokenIds = std::vector<int32_t>;

namespace {

const JsonTokenizer& roberta() {
  static const JsonTokenizer tokenizer(roberta_json().dump(), "test");
  return tokenizer;
}

int32_t byte(char c) { return kFirstByte + static_cast<unsigned char>(c); }

// Returns a post-processor TemplateProcessing with `num_separators` separators between two texts.
Json template_processor(size_t num_separators) {
  const Json begin{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
      end{{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}, first{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
      second{{"Sequence", {{"id", "B"}, {"type_id", 0}}}};
  Json pair = Json::array({begin, first});
  for (size_t i = 0; i < num_separators; ++i) pair.push_back(end);
  pair.push_back(second);
  pair.push_back(end);
  return Json::parse(
      Json{{"type", "TemplateProcessing"},
           {"single", Json::array({begin, first, end})},
           {"pair", pair},
           {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {0}}}}, {"</s>", {{"id", "</s>"}, {"ids", {2}}}}}}}
          .dump());
}

// The token sequences of a shard in memory.
struct Records {
  TokenIds tokens;
  std::vector<uint64_t> ends;

  explicit Records(const std::vector<TokenIds>& records) {
    for (const TokenIds& sequence : records) {
      tokens.insert(tokens.end(), sequence.begin(), sequence.end());
      ends.push_back(tokens.size());
    }
  }
  Sequences sequences() const { return {ends, token_reader(tokens)}; }
};

}  // namespace

TEST_CASE("the tokens of an encoder follow from the post-processor and the names of special tokens", "[encoder]") {
  const EncoderTokens tokens = encoder_tokens(roberta(), "test");
  CHECK(tokens.begin_id == kBegin);
  CHECK(tokens.padding_id == kPadding);
  CHECK(tokens.separator_id == kSeparator);
  CHECK(tokens.mask_id == kMask);
  CHECK(tokens.num_special_tokens(1) == 2);
  CHECK(tokens.num_special_tokens(2) == 4);
  CHECK(tokens.num_segments(2) == 0);
  for (const size_t num_separators : {1, 2, 3}) {
    Json json = roberta_json();
    json["post_processor"] = template_processor(num_separators);
    const JsonTokenizer tokenizer(json.dump(), "test");
    CHECK(encoder_tokens(tokenizer, "test").num_special_tokens(2) == static_cast<int64_t>(2 + num_separators));
    // A vocabulary file restores the tokens.
    const auto restored = parse_tokenizer(tokenizer.serialize(), "test");
    CHECK(encoder_tokens(*restored, "test").num_pair_separators == static_cast<int64_t>(num_separators));
  }
}

TEST_CASE("a vocabulary of the type wordpiece has the special tokens and pair format of BERT", "[encoder]") {
  std::vector<Piece> pieces;
  for (const char* piece : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"}) pieces.push_back({piece, 0});
  const auto tokenizer = make_wordpiece_tokenizer(std::move(pieces), {}, "test");
  const EncoderTokens tokens = encoder_tokens(*tokenizer, "test");
  CHECK(tokens.padding_id == 0);
  CHECK(tokens.begin_id == 2);
  CHECK(tokens.separator_id == 3);
  CHECK(tokens.mask_id == 4);
  CHECK(tokens.num_special_tokens(2) == 3);
  CHECK(tokens.num_segments(2) == 2);
  CHECK(word_continuations(*tokenizer) == std::vector<bool>{false, false, false, false, false, false, true});
}

TEST_CASE("a vocabulary without the tokens of an encoder is refused, and the message names them", "[encoder]") {
  const auto tokens_without = [](const auto& change) {
    Json json = roberta_json();
    change(json);
    encoder_tokens(JsonTokenizer(json.dump(), "test"), "vocabulary");
  };
  CHECK_THROWS_WITH(tokens_without([](Json& json) { json["added_tokens"][1]["special"] = false; }),
                    Catch::Contains("vocabulary: ") && Catch::Contains("<pad>"));
  CHECK_THROWS_WITH(tokens_without([](Json& json) { json["added_tokens"][4]["special"] = false; }),
                    Catch::Contains("<mask>"));
  CHECK_THROWS_WITH(tokens_without([](Json& json) { json["post_processor"] = nullptr; }),
                    Catch::Contains("post-processor"));
  CHECK_THROWS_WITH(encoder_tokens(*make_byte_tokenizer(), "vocabulary"), Catch::Contains("of the type byte"));
}

TEST_CASE("a piece of a byte-level vocabulary continues a word unless it starts with a space", "[encoder]") {
  const std::vector<bool> continues_word = word_continuations(roberta());
  REQUIRE(continues_word.size() == 263);
  CHECK(continues_word[260]);
  CHECK_FALSE(continues_word[261]);
  CHECK_FALSE(continues_word[static_cast<size_t>(byte(' '))]);
  CHECK(continues_word[static_cast<size_t>(byte('b'))]);
}

TEST_CASE("the range of a byte-level token has its characters, without white space at both ends", "[encoder]") {
  const auto encoder = roberta().encoder();
  TokenIds tokens;
  std::vector<TextRange> ranges;
  REQUIRE(encode_with_ranges(roberta(), *encoder, "ab a\u00e9  b", tokens, ranges));
  CHECK(tokens == TokenIds{260, 261, byte('\xC3'), byte('\xA9'), byte(' '), byte(' '), byte('b')});
  // Both bytes of the accented letter have the range of the letter; a token of white space alone keeps its bytes.
  CHECK(ranges == std::vector<TextRange>{{0, 2}, {3, 4}, {4, 6}, {4, 6}, {6, 7}, {7, 8}, {8, 9}});
  CHECK(rc::check("ranges are in the order of the text and within it", [&](const std::vector<uint16_t>& codes) {
    std::string text;
    for (const uint16_t code : codes)
      if (code > 0 && (code < 0xD800 || code >= 0xE000)) append_utf8(code % 3 == 0 ? code % 128 + 1 : code, text);
    TokenIds text_tokens, plain_tokens;
    std::vector<TextRange> text_ranges;
    RC_ASSERT(encode_with_ranges(roberta(), *encoder, text, text_tokens, text_ranges));
    encoder->encode(text, plain_tokens);
    RC_ASSERT(text_tokens == plain_tokens);
    RC_ASSERT(text_ranges.size() == text_tokens.size());
    for (size_t i = 0; i < text_ranges.size(); ++i) {
      RC_ASSERT(text_ranges[i].begin < text_ranges[i].end);
      RC_ASSERT(text_ranges[i].end <= text.size());
      if (i == 0) continue;
      RC_ASSERT(text_ranges[i].begin >= text_ranges[i - 1].begin);
      RC_ASSERT(text_ranges[i].end >= text_ranges[i - 1].end);
    }
  }));
}

TEST_CASE("text that normalisation changes has no ranges of tokens", "[encoder]") {
  Json json = roberta_json();
  json["normalizer"] = {{"type", "NFC"}};
  const JsonTokenizer tokenizer(json.dump(), "test");
  const auto encoder = tokenizer.encoder();
  TokenIds tokens;
  std::vector<TextRange> ranges;
  CHECK_FALSE(encode_with_ranges(tokenizer, *encoder, "e\u0301", tokens, ranges));
  CHECK(tokens.empty());
  CHECK(ranges.empty());
  CHECK(encode_with_ranges(tokenizer, *encoder, "\u00e9", tokens, ranges));
}

TEST_CASE("a row of two texts has the separators of its vocabulary", "[encoder]") {
  const Records records({{10, 11, 12}, {20, 21}, {1}});
  const ExampleTask task{"any", 2, {"no", "yes"}, 0, 0, {"accuracy"}, "any.tsv"};
  const ClassificationExamples rows(records.sequences(), task, roberta(), 9);
  CHECK(rows.make(0).tokens == TokenIds{kBegin, 10, 11, 12, kSeparator, kSeparator, 20, 21, kSeparator});
  CHECK(rows.make(0).first_segment_length == 6);
  CHECK(rows.length(0) == 9);
  const ClassificationExamples short_rows(records.sequences(), task, roberta(), 6);
  CHECK(short_rows.make(0).tokens == TokenIds{kBegin, 10, kSeparator, kSeparator, 20, kSeparator});
  CHECK(status_of([&] { ClassificationExamples(records.sequences(), task, roberta(), 4); }) == 2);
}

TEST_CASE("masking leaves the separators of a row of two texts unchanged", "[encoder]") {
  const Records records({{10, 11, 12}, {13, 14}, {}, {20, 21}, {22}, {}});
  PretrainingOptions options;
  options.max_length = 16;
  options.mask_fraction = 1;
  options.max_predictions = 1000;
  const PretrainingExamples examples(records.sequences(), roberta(), options, 3);
  for (uint32_t number = 0; number < 20; ++number) {
    const PretrainingExamples::Epoch epoch = examples.plan_epoch(number);
    for (int64_t i = 0; i < epoch.size(); ++i) {
      const Example row = epoch.make(i);
      REQUIRE(static_cast<int64_t>(row.tokens.size()) == epoch.length(i));
      const auto end = static_cast<size_t>(row.first_segment_length);
      for (const size_t position : {size_t{0}, end - 2, end - 1, row.tokens.size() - 1}) {
        CHECK(row.tokens[position] == (position == 0 ? kBegin : kSeparator));
        if (position > 0) CHECK(row.targets[position] == -1);
      }
      CHECK(epoch.count_predicted_tokens(i) ==
            std::count_if(row.targets.begin() + 1, row.targets.end(), [](int64_t target) { return target >= 0; }));
    }
  }
}
