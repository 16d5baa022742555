// Shards of questions (mhs(5)): a question, the paragraph that answers it or does not, and where.
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

// A record in another form.
struct QuestionRecord {
  std::vector<int32_t> question, context;  // tokens
  std::vector<TextRange> places;           // of the context's tokens in `text`; neither end ever steps back
  std::string text;                        // the paragraph
  std::string id;
  std::vector<TrueAnswer> answers;  // none exactly where it is impossible
  bool impossible = false;
};

struct QuestionsSummary {
  uint64_t paragraphs = 0, questions = 0;
  uint64_t question_tokens = 0, paragraph_tokens = 0;  // each paragraph once
  uint64_t question_unknown = 0, paragraph_unknown = 0;
  double seconds = 0;
};

// The kind questions with what belongs to it; the vocabulary comes first.
void hold_questions(io::ShardHeader& header, const Squad& squad, const SquadOptions& options);
// Whether the records may be impossible questions, which are scored as SQuAD 2.0 does. Of this kind only.
bool holds_unanswerable(const io::ShardHeader& header);

// Every question becomes a record, with its paragraph's tokens encoded once. The same for any number of threads.
// Error(input) for a paragraph without tokens.
QuestionsSummary encode_questions(const Squad& squad, const WordPieceTokenizer& tokenizer, int threads,
                                  io::ShardWriter& writer);

// The record whose fields these are, the `number`th of the shard `name`, from 1. Error(input) where they do not fit
// each other: a field of another length, places outside the text or that step back, an object that is none or lacks an
// entry, an answer that is not where it should be.
QuestionRecord question_record(const std::array<std::span<const int32_t>, kQuestionFields>& fields,
                               const std::string& name, uint64_t number);
// The nth record of a shard that was read, from 0.
QuestionRecord question_record(const WholeShard& shard, size_t record, const std::string& name);

}  // namespace mh::text
