// Encodes and decodes the records of shards of questions (mh-shard(5)): a question, a paragraph, and the answers with
// their byte ranges in the paragraph.
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

constexpr size_t kNumQuestionFields = 6;

// A decoded record of a shard of questions.
struct QuestionRecord {
  std::vector<int32_t> question_tokens, paragraph_tokens;
  std::vector<TextRange> token_ranges;  // byte range in `text` of each paragraph token; begins and ends never decrease
  std::string text;                     // the paragraph
  std::string id;
  std::vector<GoldAnswer> answers;  // empty if and only if the question is unanswerable
  bool is_unanswerable = false;
};

struct QuestionSummary {
  uint64_t num_paragraphs = 0, num_questions = 0;
  uint64_t num_question_tokens = 0, num_paragraph_tokens = 0;            // tokens of a paragraph are counted once
  uint64_t num_unknown_in_questions = 0, num_unknown_in_paragraphs = 0;  // numbers of unknown tokens
  double seconds = 0;
};

// Sets the kind, the fields and the task of `header`, whose vocabulary must already be set.
void set_questions_header(io::ShardHeader& header, const Squad& squad, const SquadOptions& options);
// Returns whether a shard may contain unanswerable questions, so that predictions are scored as in SQuAD 2.0.
bool may_have_unanswerable(const io::ShardHeader& header);

// Writes every question as a record, and encodes each paragraph only once. The result does not depend on the number of
// threads. Throws Error(input) for a paragraph without tokens.
QuestionSummary encode_questions(const Squad& squad, const Tokenizer& tokenizer, int num_threads,
                                 io::ShardWriter& writer);

// Decodes a record from its fields; `number`, the number of the record from 1, and `name`, the shard's name, are for
// messages. Throws Error(input) if the paragraph has no tokens or the fields contradict each other: different numbers
// of tokens and ranges, ranges outside the text or decreasing, an invalid JSON object or one without a required entry,
// an answer whose text is not at its byte range, an unanswerable question with answers, or a question without answers
// that is not unanswerable.
QuestionRecord decode_question_record(const std::array<std::span<const int32_t>, kNumQuestionFields>& fields,
                                      const std::string& name, uint64_t number);
// Decodes the record with the index `record`, from 0, of a shard in memory. `name` is the shard's name in messages.
QuestionRecord decode_question_record(const WholeShard& shard, size_t record, const std::string& name);

}  // namespace mh::text
