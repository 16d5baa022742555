// The questions of a shard, printed as the id, the question and the paragraph of each question.
#include "text/records/record_text.h"

#include "base/json_types.h"
#include "text/records/questions/records.h"
#include "text/tokenizer.h"

namespace mh::text {

namespace {

class QuestionText : public WholeShardText {
 protected:
  nlohmann::ordered_json count_shard(const WholeShard& shard, const std::string& name) const override {
    uint64_t num_paragraphs = 0, num_answers = 0, num_answers_without_range = 0, num_unanswerable = 0;
    std::string text;
    for (size_t i = 0; i < shard.size(); ++i) {
      QuestionRecord record = decode_question_record(shard, i, name);
      num_paragraphs += i == 0 || record.text != text ? 1 : 0;
      text = std::move(record.text);
      num_answers += record.answers.size();
      for (const GoldAnswer& answer : record.answers) num_answers_without_range += answer.byte_range ? 0 : 1;
      num_unanswerable += record.is_unanswerable ? 1 : 0;
    }
    nlohmann::ordered_json counts = WholeShardText::count_shard(shard, name);
    counts.update({{"paragraphs", num_paragraphs},
                   {"answers", num_answers},
                   {"missing_answers", num_answers_without_range},
                   {"impossible", num_unanswerable}});
    return counts;
  }
  void print_text(const WholeShard& shard, const std::string& name, const Tokenizer& tokenizer,
                  ByteSink& sink) const override {
    for (size_t i = 0; i < shard.size(); ++i) {
      const QuestionRecord record = decode_question_record(shard, i, name);
      sink.write(escape_piece(record.id) + "\t" + tokenizer.decode(record.question_tokens) + "\t" +
                 tokenizer.decode(record.paragraph_tokens) + "\n");
    }
  }
};

const Registration<QuestionText> entry(record_texts(), io::kQuestionsKind,
                                       "id, question and paragraph, one question per line");

}  // namespace

}  // namespace mh::text
