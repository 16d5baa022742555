// Small files of SQuAD, their shards, and a vocabulary for them.
#pragma once

#include <rapidcheck.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/unicode.h"
#include "folder.h"
#include "text/records/question_records.h"
#include "text/records/questions.h"
#include "text/records/whole_shard.h"
#include "text/tokenizers.h"

namespace squads {

using namespace mh;
using nlohmann::ordered_json;

// Letters of several bytes, accents that are dropped, ideographs, a mark, a character that is a pair of UTF-16.
const std::vector<std::string> kCharacters{"a",  "b",  "c", " ", " ",       "é", "ß",
                                           "中", "国", ".", "-", "e\u0301", "😀", "\n"};

inline std::unique_ptr<text::WordPieceTokenizer> tokenizer() {
  std::vector<text::Piece> pieces;
  for (const char* piece : text::kSpecialPieces) pieces.push_back({piece, 0});
  for (const char* piece : {"a", "b", "c", "e", "ß", "中", "国", ".", "-", "😀", "ab", "abc"})
    pieces.push_back({piece, 0});
  for (const char* piece : {"a", "b", "c", "e", "ß", "😀", "bc"}) pieces.push_back({std::string("##") + piece, 0});
  return text::make_wordpiece_tokenizer(std::move(pieces), {}, "test");
}

inline ordered_json answer(const std::string& text, int64_t start) { return {{"text", text}, {"answer_start", start}}; }

inline ordered_json question(const std::string& id, const std::string& text, const std::vector<ordered_json>& answers) {
  return {{"answers", answers}, {"question", text}, {"id", id}};
}

inline ordered_json article(const std::string& context, const std::vector<ordered_json>& questions) {
  return {{"paragraphs", {{{"context", context}, {"qas", questions}}}}, {"title", "T"}};
}

inline ordered_json file(const std::vector<ordered_json>& articles) { return {{"data", articles}, {"version", "1.1"}}; }

// A shard of it, read again.
inline text::RunText shard_of(const ordered_json& json, const text::SquadOptions& options = {}, int threads = 1) {
  const Folder folder;
  write_file_atomically(folder.file("squad.json"), json.dump());
  const text::Squad squad = text::read_squad({folder.file("squad.json")}, options);
  const auto pieces = tokenizer();
  io::ShardHeader header = text::header_of(*pieces);
  text::hold_questions(header, squad, options);
  auto sink = open_sink(folder.file("squad.mhs"));
  io::ShardWriter writer(*sink, header);
  text::encode_questions(squad, *pieces, threads, writer);
  writer.finish();
  sink->close();
  return text::read_runs(folder.file("squad.mhs"), io::kQuestionsKind);
}

inline text::QuestionRecord record_of(const text::RunText& text, size_t i) {
  return text::question_record(text, i, "test");
}

inline text::Questions questions_of(const text::RunText& text, const text::WindowOptions& options,
                                    text::QuestionUse use = text::QuestionUse::answer) {
  return {text::runs_of(text), text.header, *tokenizer(), options, use, "test"};
}

inline std::string joined(const std::vector<std::string>& parts, size_t first, size_t last) {
  std::string text;
  for (size_t i = first; i < last; ++i) text += parts[i];
  return text;
}

// Paragraphs of characters with an answer each, and the options of small windows.
struct Made {
  ordered_json json;
  text::WindowOptions options;
};

inline Made made(bool impossible = false) {
  Made m;
  m.options.length = *rc::gen::inRange(6, 20);
  m.options.question = *rc::gen::inRange<int64_t>(1, m.options.length - 3);
  m.options.stride = *rc::gen::inRange(1, 20);
  std::vector<ordered_json> articles;
  const auto count = *rc::gen::inRange(1, 5);
  for (int i = 0; i < count; ++i) {
    const auto characters = *rc::gen::resize(
        60, rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(kCharacters))));
    const std::string context = joined(characters, 0, characters.size()) + "a";
    std::vector<ordered_json> questions;
    for (int k = 0; k < 2; ++k) {
      const auto first = *rc::gen::inRange<size_t>(0, characters.size());
      const auto last = *rc::gen::inRange<size_t>(first + 1, std::min(first + 8, characters.size()) + 1);
      const auto begin = static_cast<int64_t>(code_points(joined(characters, 0, first)).size());
      const auto asked = *rc::gen::inRange(0, 9);
      questions.push_back(question(str(i, ".", k), std::string(static_cast<size_t>(asked), '.'),
                                   {answer(joined(characters, first, last), begin)}));
      if (!impossible || *rc::gen::arbitrary<bool>()) continue;
      questions.back()["answers"] = ordered_json::array();
      questions.back()["is_impossible"] = true;
    }
    articles.push_back(article(context, questions));
  }
  m.json = file(articles);
  return m;
}

}  // namespace squads
