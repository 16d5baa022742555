// Tests of SQuAD files: parsing, refusals, and encoding as shards.
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "fixtures/encoder_vocabulary.h"
#include "fixtures/squads.h"
#include "fixtures/status.h"
#include "text/json_tokenizer.h"

using namespace mh;
using namespace squads;

namespace {

text::Squad read(const std::string& bytes, const text::SquadOptions& options = {}) {
  const Folder folder;
  write_file_atomically(folder.file("squad.json"), bytes);
  return text::read_squad({folder.file("squad.json")}, options);
}

std::string refusal_message(const std::string& bytes, const text::SquadOptions& options = {}) {
  try {
    read(bytes, options);
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::input);
    return error.what();
  }
  return "";
}

std::string refusal_of_json(const ordered_json& json, const text::SquadOptions& options = {}) {
  return refusal_message(json.dump(), options);
}

const std::string kContext = "é中😀 abc cab";

}  // namespace

TEST_CASE("squad: answer_start counts characters, and the range of an answer counts bytes") {
  auto json = file({article(kContext, {question("1", "a?", {answer("中😀", 1), answer("cab", 8), answer("c", 6)})})});
  for (const std::string& bytes : {json.dump(), json.dump(2, ' ', true), "\xEF\xBB\xBF" + json.dump()}) {
    const text::Squad squad = read(bytes);
    REQUIRE(squad.num_questions == 1);
    CHECK(squad.num_answers_without_range == 0);
    const auto& answers = squad.paragraphs[0].questions[0].answers;
    CHECK(answers[0].byte_range == text::TextRange{2, 9});
    CHECK(answers[1].byte_range == text::TextRange{14, 17});
    CHECK(answers[2].byte_range == text::TextRange{12, 13});
  }
}

TEST_CASE("squad: JSON entries may be in any order, and unknown entries are ignored") {
  const ordered_json empty{{"title", "before"}, {"more", 1}, {"paragraphs", ordered_json::array()}};
  ordered_json json = file({empty, article("abc", {question("1", "a?", {answer("a", 0)})})});
  json["data"][1].erase("title");
  json["data"][1]["paragraphs"][0]["qas"][0]["plausible_answers"] = 5;
  CHECK(read(json.dump()).num_questions == 1);
}

TEST_CASE("squad: a truncated file is refused, and the message states the offset of its end") {
  const std::string bytes = file({article(kContext, {question("1", "a?", {answer("cab", 8)})})}).dump();
  for (size_t prefix_size = 0; prefix_size < bytes.size(); ++prefix_size) {
    const std::string message = refusal_message(bytes.substr(0, prefix_size));
    INFO(prefix_size << ": " << message);
    // If the end of the file truncates a character, the check of the text reports invalid UTF-8.
    CHECK((message.find(str("squad.json: byte ", prefix_size, ": ")) != message.npos ||
           message.find("UTF-8") != message.npos));
    CHECK(message.find("squad.json") != message.npos);
  }
}

TEST_CASE("squad: a number beyond the range of fp64 is refused") {
  const std::string message = refusal_message(R"({"version": 1e999, "data": []})");
  CHECK(message.find("a number beyond the range of fp64") != message.npos);
}

TEST_CASE("squad: an error names the article, paragraph or question") {
  const ordered_json valid_question = question("q1", "a?", {answer("cab", 8)});
  auto refusal_with_value = [&](const std::string& pointer, const ordered_json& value) {
    auto json = file({article("b", {question("q0", "b", {answer("b", 0)})}), article(kContext, {valid_question})});
    json[ordered_json::json_pointer(pointer)] = value;
    return refusal_of_json(json);
  };
  const std::string paragraph_path = "/data/1/paragraphs/0", question_path = paragraph_path + "/qas/0",
                    answer_path = question_path + "/answers/0";
  auto check_contains = [](const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
      INFO(message);
      CHECK(message.find(part) != message.npos);
    }
  };
  check_contains(refusal_with_value("/data", 1), {"'data'", "number"});
  check_contains(refusal_with_value("/data/1", 1), {"article 2", "'title'"});
  check_contains(refusal_with_value("/data/1/paragraphs", "x"), {"article 2 (T)", "'paragraphs'", "a list", "string"});
  check_contains(refusal_with_value(paragraph_path + "/context", 1), {"article 2 (T), paragraph 1", "'context'"});
  check_contains(refusal_with_value(paragraph_path + "/context", std::string("a\0b", 3)), {"paragraph 1", "NUL"});
  check_contains(refusal_with_value(question_path + "/question", std::string("\0", 1)), {"question q1", "NUL"});
  check_contains(refusal_with_value(question_path + "/id", 7), {"paragraph 1", "'id'", "text"});
  check_contains(refusal_with_value(question_path + "/id", "q0"), {"question q0", "a unique id"});
  check_contains(refusal_with_value(question_path + "/answers", ordered_json::object()),
                 {"question q1", "'answers'", "object"});
  check_contains(refusal_with_value(question_path + "/answers", ordered_json::array()),
                 {"question q1", "at least one answer"});
  check_contains(refusal_with_value(question_path + "/is_impossible", "no"), {"question q1", "true or false"});
  check_contains(refusal_with_value(answer_path + "/text", nullptr), {"question q1", "'text'", "null"});
  check_contains(refusal_with_value(answer_path + "/answer_start", 1.5), {"question q1", "a whole number"});
  for (const ordered_json& start : {ordered_json(-1), ordered_json(11), ordered_json(UINT64_MAX)})
    check_contains(refusal_with_value(answer_path + "/answer_start", start),
                   {"question q1", "11 characters", start.dump()});
  for (const char* key : {"context", "qas"}) {
    auto json = file({article(kContext, {valid_question})});
    json["data"][0]["paragraphs"][0].erase(key);
    check_contains(refusal_of_json(json), {"article 1 (T), paragraph 1", key, "no such entry"});
  }
  for (const char* key : {"id", "question", "answers"}) {
    auto json = file({article(kContext, {valid_question})});
    json["data"][0]["paragraphs"][0]["qas"][0].erase(key);
    check_contains(refusal_of_json(json), {"article 1 (T), paragraph 1", key, "no such entry"});
  }
  check_contains(refusal_of_json(file({})), {"questions", "none"});
  check_contains(refusal_message("garbage"), {"byte 0"});
  check_contains(refusal_message("\x1f\x8b\x08"), {"byte"});
  check_contains(refusal_message("[]"), {"'data'", "array"});
}

TEST_CASE("squad: a file is refused if more than --missing-fraction of its answers are not at answer_start") {
  std::vector<ordered_json> questions;
  for (int i = 0; i < 9; ++i) questions.push_back(question(std::to_string(i), "a", {answer("abc", 4)}));
  questions.push_back(question("elsewhere", "a", {answer("abc", 5)}));
  const auto json = file({article(kContext, questions)});
  const std::string message = refusal_of_json(json);
  CHECK(message.find("question elsewhere") != message.npos);
  CHECK(message.find("9 of 10") != message.npos);
  CHECK(message.find("--missing-fraction") != message.npos);
  const text::Squad squad = read(json.dump(), {0.1, "refuse"});
  CHECK(squad.num_answers_without_range == 1);
  CHECK(!squad.paragraphs[0].questions[9].answers[0].byte_range);
  CHECK(refusal_of_json(json, {0.09, "refuse"}) != "");
  // An answer that ends past the end of the paragraph and an empty answer are refused like an answer that the paragraph
  // does not contain.
  CHECK(refusal_of_json(file({article(kContext, {question("1", "a", {answer("cabc", 8)})})})) != "");
  CHECK(refusal_of_json(file({article(kContext, {question("1", "a", {answer("", 8)})})})) != "");
}

TEST_CASE("squad: unanswerable questions require --unanswerable keep and must not have answers") {
  auto json = file({article(kContext, {question("1", "a?", {})})});
  auto& q = json["data"][0]["paragraphs"][0]["qas"][0];
  q["is_impossible"] = true;
  q["plausible_answers"] = {answer("cab", 8)};
  CHECK(refusal_of_json(json).find("--unanswerable keep") != std::string::npos);
  const text::Squad squad = read(json.dump(), {0.01, "keep"});
  CHECK(squad.num_unanswerable == 1);
  CHECK(squad.paragraphs[0].questions[0].is_unanswerable);
  CHECK(text::may_have_unanswerable(shard_of(json, {0.01, "keep"}).header));
  q["answers"] = q["plausible_answers"];
  CHECK(refusal_of_json(json, {0.01, "keep"}).find("no answers") != std::string::npos);
}

TEST_CASE("squad: paragraphs without tokens are refused") {
  try {
    shard_of(file({article(" \n", {question("1", "a", {answer(" ", 0)})})}));
    FAIL("a paragraph without tokens was accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("article 1 (T), paragraph 1") != std::string::npos);
  }
}

TEST_CASE("squad: a vocabulary whose normalisation changes the paragraph is refused, since its tokens have no ranges") {
  const Folder folder;
  write_file_atomically(folder.file("squad.json"),
                        file({article("ae\u0301", {question("1", "a", {answer("a", 0)})})}).dump());
  const text::Squad squad = text::read_squad({folder.file("squad.json")}, {});
  auto json = encoder_vocabulary::roberta_json();
  json["normalizer"] = {{"type", "NFC"}};
  const text::JsonTokenizer nfc_tokenizer(json.dump(), "test");
  io::ShardHeader header = text::header_of(nfc_tokenizer);
  text::set_questions_header(header, squad, {});
  const auto sink = open_sink(folder.file("squad.mhs"));
  io::ShardWriter writer(*sink, header);
  CHECK_THROWS_WITH(text::encode_questions(squad, nfc_tokenizer, 1, writer),
                    Catch::Contains("article 1 (T), paragraph 1: expected a vocabulary that states which bytes of the "
                                    "paragraph each token encodes; found the vocabulary, of the type tokenizer-json"));
}

TEST_CASE("squad: the records of a shard equal the SQuAD file, for any number of threads") {
  CHECK(rc::check("squad: records of random paragraphs equal the SQuAD file", [] {
    const auto characters = rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(kCharacters));
    std::vector<ordered_json> articles;
    std::vector<std::string> contexts;
    const auto count = *rc::gen::inRange(1, 5);
    for (int i = 0; i < count; ++i) {
      contexts.push_back("a" + join_range(*characters, 0, 0) + "bc");
      std::vector<ordered_json> questions;
      for (int k = 0; k < i % 3 + 1; ++k)
        questions.push_back(
            question(str(i, ".", k), join_range(*characters, 0, 0), {answer("a", 0), answer("nowhere", 0)}));
      articles.push_back(article(contexts.back(), questions));
    }
    const auto single_threaded_shard = shard_of(file(articles), {1, "refuse"}, 1),
               multithreaded_shard = shard_of(file(articles), {1, "refuse"}, 3);
    RC_ASSERT(single_threaded_shard.tokens == multithreaded_shard.tokens);
    RC_ASSERT(single_threaded_shard.ends == multithreaded_shard.ends);
    const auto pieces = tokenizer();
    for (size_t i = 0; i < single_threaded_shard.size(); ++i) {
      const text::QuestionRecord r = record_of(single_threaded_shard, i);
      const size_t at = std::stoul(r.id);
      std::vector<int32_t> tokens;
      std::vector<text::TextRange> token_ranges;
      pieces->encode_with_ranges(contexts[at], tokens, token_ranges);
      RC_ASSERT(r.text == contexts[at]);
      RC_ASSERT(r.paragraph_tokens == tokens);
      RC_ASSERT(r.token_ranges == token_ranges);
      RC_ASSERT(r.answers.size() == 2u);
      RC_ASSERT(r.answers[0].byte_range == (text::TextRange{0, 1}));
      RC_ASSERT(!r.answers[1].byte_range);
      RC_ASSERT(!r.is_unanswerable);
    }
  }));
}

TEST_CASE("squad: records whose fields contradict each other are refused") {
  const auto shard = shard_of(file({article(kContext, {question("1", "a?", {answer("cab", 8)})})}));
  using Field = std::vector<int32_t>;
  std::vector<Field> valid_fields;
  for (size_t f = 0; f < text::kNumQuestionFields; ++f)
    valid_fields.emplace_back(shard.sequence(0, f).begin(), shard.sequence(0, f).end());
  auto status = [&](size_t field, const Field& changed_field) {
    std::array<std::span<const int32_t>, text::kNumQuestionFields> fields;
    for (size_t f = 0; f < fields.size(); ++f) fields[f] = f == field ? changed_field : valid_fields[f];
    return status_of([&] { text::decode_question_record(fields, "test", 1); });
  };
  auto bytes = [](const std::string& s) { return Field(s.begin(), s.end()); };
  auto replace_element = [](Field field, size_t i, int32_t value) {
    field[i] = value;
    return field;
  };
  CHECK(status(0, {}) == 0);  // a question may have no tokens
  CHECK(status(1, {}) == 3);
  CHECK(status(1, Field(valid_fields[1].begin() + 1, valid_fields[1].end())) == 3);
  CHECK(status(2, Field(valid_fields[2].begin() + 1, valid_fields[2].end())) == 3);
  CHECK(status(3, {}) == 3);
  CHECK(status(2, replace_element(valid_fields[2], 0, valid_fields[3][0])) == 3);            // an empty token
  CHECK(status(3, replace_element(valid_fields[3], valid_fields[3].size() - 1, 100)) == 3);  // a token beyond the text
  CHECK(status(2, replace_element(valid_fields[2], valid_fields[2].size() - 1, 0)) == 3);    // begins not ascending
  CHECK(status(4, Field(valid_fields[4].begin(), valid_fields[4].end() - 1)) == 3);          // text one byte too short
  CHECK(status(4, replace_element(valid_fields[4], valid_fields[4].size() - 1, 'x')) ==
        3);  // text differs from the answer
  CHECK(status(5, bytes("{")) == 3);
  CHECK(status(5, bytes("[]")) == 3);
  CHECK(status(5, bytes(R"({"id":"1","answers":[]})")) == 3);
  CHECK(status(5, bytes(R"({"id":"1","answers":[],"impossible":false})")) == 3);
  CHECK(status(5, bytes(R"({"id":"1","answers":[],"impossible":true})")) == 0);
  CHECK(status(5, bytes(R"({"id":"1","answers":[{"text":"x"}],"impossible":true})")) == 3);
  CHECK(status(5, bytes(R"({"id":"1","answers":[{"text":"cab","begin":14,"end":1e9}],"impossible":false})")) == 3);
}
