// Shards of questions (mhs(5)): a question, a paragraph, and the place of its answer, if it has one.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/shard.h"
#include "text/records/questions/squad.h"
#include "text/records/whole_shard.h"
#include "text/wordpiece.h"

namespace mh::text {

constexpr size_t kQuestionFields = 6;

// A decoded record.
struct QuestionRecord {
  std::vector<int32_t> question, context;  // tokens
  std::vector<TextRange> places;           // ranges of the context's tokens in `text`; neither end decreases
  std::string text;                        // the paragraph
  std::string id;
  std::vector<TrueAnswer> answers;  // empty if and only if it is impossible
  bool impossible = false;
};

struct QuestionsSummary {
  uint64_t paragraphs = 0, questions = 0;
  uint64_t question_tokens = 0, paragraph_tokens = 0;  // each paragraph once
  uint64_t question_unknown = 0, paragraph_unknown = 0;
  double seconds = 0;
};

// Sets the kind questions and its fields; the vocabulary must be set before.
void hold_questions(io::ShardHeader& header, const Squad& squad, const SquadOptions& options);
// Returns whether a shard of questions may contain impossible ones, which are scored as in SQuAD 2.0.
bool holds_unanswerable(const io::ShardHeader& header);

// Writes every question as a record; the tokens of each paragraph are encoded once. The result does not depend on the
// number of threads. Throws Error(input) for a paragraph without tokens.
QuestionsSummary encode_questions(const Squad& squad, const WordPieceTokenizer& tokenizer, int threads,
                                  io::ShardWriter& writer);

// Decodes the record with these fields, number `number` of the shard `name`, from 1. Throws Error(input) if they
// contradict each other: a field of another length, ranges outside the text or decreasing, an object that is invalid or
// lacks an entry, an answer at another place.
QuestionRecord question_record(const std::array<std::span<const int32_t>, kQuestionFields>& fields,
                               const std::string& name, uint64_t number);
// Returns the nth record of a shard in memory, from 0.
QuestionRecord question_record(const WholeShard& shard, size_t record, const std::string& name);

}  // namespace mh::text
