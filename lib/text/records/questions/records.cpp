#include "text/records/questions/records.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/json_integer.h"
#include "base/json_types.h"
#include "base/text.h"
#include "io/shard_format.h"
#include "text/encoder_vocabulary.h"
#include "text/records/ordered_encoding.h"
#include "text/records/whole_shard.h"

namespace mh::text {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kUnanswerableKey = "unanswerable";

std::vector<int32_t> numbers_of(std::string_view bytes) {
  std::vector<int32_t> numbers(bytes.size());
  std::transform(bytes.begin(), bytes.end(), numbers.begin(), [](char c) { return static_cast<unsigned char>(c); });
  return numbers;
}

std::string bytes_of(std::span<const int32_t> numbers) {
  std::string bytes(numbers.size(), '\0');
  std::transform(numbers.begin(), numbers.end(), bytes.begin(), [](int32_t n) { return static_cast<char>(n); });
  return bytes;
}

// Returns the bytes, one per element, of the JSON object of a record: the id, the answers, and whether the question is
// unanswerable. Throws Error(input) if the object has more than kMaxUncheckedJsonBytes. `where`: the paragraph, for the
// message.
std::vector<int32_t> encode_details(const SquadQuestion& q, const std::string& where) {
  ordered_json answers = ordered_json::array();
  for (const GoldAnswer& a : q.answers) {
    ordered_json answer{{"text", a.text}};
    if (a.byte_range) answer.update({{"begin", a.byte_range->begin}, {"end", a.byte_range->end}});
    answers.push_back(answer);
  }
  const std::string details_json =
      ordered_json{{"id", q.id}, {"answers", answers}, {"impossible", q.is_unanswerable}}.dump();
  if (details_json.size() > kMaxUncheckedJsonBytes)
    refuse_input(where, str("at most ", kMaxUncheckedJsonBytes, " bytes for the id and the answers of a question"),
                 count_of(details_json.size(), "byte"), "remove the question from the file");
  return numbers_of(details_json);
}

// Makes begins and ends non-decreasing, since canonical ordering of Unicode marks may produce decreasing ranges within
// a word.
void make_monotonic(std::vector<TextRange>& token_ranges) {
  for (size_t i = 1; i < token_ranges.size(); ++i) {
    token_ranges[i].begin = std::max(token_ranges[i].begin, token_ranges[i - 1].begin);
    token_ranges[i].end = std::max(token_ranges[i].end, token_ranges[i - 1].end);
  }
}

struct EncodedQuestions {
  EncodedSequences sequences;
  QuestionSummary summary;
  uint64_t num_bytes = 0;
};

EncodedQuestions encode(const SquadParagraph& paragraph, const Tokenizer& tokenizer, Encoder& encoder) {
  EncodedQuestions out;
  std::vector<int32_t> paragraph_tokens;
  std::vector<TextRange> token_ranges;
  if (!encode_with_ranges(tokenizer, encoder, paragraph.text, paragraph_tokens, token_ranges))
    refuse_input(paragraph.where, "a vocabulary that states which bytes of the paragraph each token encodes",
                 str("the vocabulary, of the type ", tokenizer.type(), ", does not state them for this paragraph"),
                 "use a vocabulary of the type wordpiece, or a byte-level vocabulary and text in the form that its "
                 "normalizer keeps, such as NFC");
  if (paragraph_tokens.empty())
    refuse_input(paragraph.where, "a paragraph with at least one token", "a paragraph without tokens",
                 "remove the paragraph from the file");
  make_monotonic(token_ranges);
  std::vector<int32_t> begins, ends;
  for (const TextRange& range : token_ranges) {
    begins.push_back(static_cast<int32_t>(range.begin));
    ends.push_back(static_cast<int32_t>(range.end));
  }
  const std::vector<int32_t> text = numbers_of(paragraph.text);
  auto add = [&](const std::vector<int32_t>& sequence) {
    out.sequences.tokens.insert(out.sequences.tokens.end(), sequence.begin(), sequence.end());
    out.sequences.ends.push_back(out.sequences.tokens.size());
  };
  for (const SquadQuestion& q : paragraph.questions) {
    std::vector<int32_t> question_tokens;
    encoder.encode(q.text, question_tokens);
    for (const auto& sequence :
         {question_tokens, paragraph_tokens, begins, ends, text, encode_details(q, paragraph.where)})
      add(sequence);
    out.summary.num_question_tokens += question_tokens.size();
    out.summary.num_unknown_in_questions += count_unknown(question_tokens, tokenizer);
    out.num_bytes += q.text.size();
  }
  out.summary.num_paragraphs = 1;
  out.summary.num_questions = paragraph.questions.size();
  out.summary.num_paragraph_tokens = paragraph_tokens.size();
  out.summary.num_unknown_in_paragraphs = count_unknown(paragraph_tokens, tokenizer);
  out.num_bytes += paragraph.text.size();
  return out;
}

void accumulate(QuestionSummary& total, const QuestionSummary& summary) {
  total.num_paragraphs += summary.num_paragraphs;
  total.num_questions += summary.num_questions;
  total.num_question_tokens += summary.num_question_tokens;
  total.num_paragraph_tokens += summary.num_paragraph_tokens;
  total.num_unknown_in_questions += summary.num_unknown_in_questions;
  total.num_unknown_in_paragraphs += summary.num_unknown_in_paragraphs;
}

// Parses the JSON object of a record into `record`. Returns a description of the object's fault; empty if it has none.
std::string read_details(std::span<const int32_t> bytes, QuestionRecord& record) {
  if (bytes.size() > kMaxUncheckedJsonBytes) return str("an object of ", count_of(bytes.size(), "byte"));
  try {
    const json j = json::parse(bytes_of(bytes));
    record.id = j.at("id").get<std::string>();
    record.is_unanswerable = j.at("impossible").get<bool>();
    for (const json& a : j.at("answers")) {
      GoldAnswer answer{a.at("text").get<std::string>(), {}};
      if (a.contains("begin")) {
        const auto begin = integer_of<uint64_t>(a.at("begin")), end = integer_of<uint64_t>(a.at("end"));
        if (begin >= end || end > record.text.size() || record.text.compare(begin, end - begin, answer.text) != 0)
          return str("an answer whose text is not at the bytes ", begin, " to ", end);
        answer.byte_range = TextRange{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
      }
      record.answers.push_back(std::move(answer));
    }
  } catch (const json::exception& error) {
    return json_error_text(error.what());
  }
  return record.is_unanswerable == record.answers.empty() ? "" : count_of(record.answers.size(), "answer");
}

bool has_decreasing_range(const std::vector<TextRange>& token_ranges) {
  return std::adjacent_find(token_ranges.begin(), token_ranges.end(), [](const TextRange& a, const TextRange& b) {
           return b.begin < a.begin || b.end < a.end;
         }) != token_ranges.end();
}

}  // namespace

void set_questions_header(io::ShardHeader& header, const Squad& squad, const SquadOptions& options) {
  size_t longest_paragraph = 0;
  for (const SquadParagraph& p : squad.paragraphs) longest_paragraph = std::max(longest_paragraph, p.text.size());
  const auto offset_limit = static_cast<int64_t>(longest_paragraph) + 1;
  header.set_kind(io::kQuestionsKind,
                  {header.vocabulary_size, header.vocabulary_size, offset_limit, offset_limit, 256, 256});
  header.task = json{{kUnanswerableKey, options.unanswerable_handling == "keep"}}.dump();
}

bool may_have_unanswerable(const io::ShardHeader& header) {
  const json task = json::parse(header.task, nullptr, false);
  return task.is_object() && task.contains(kUnanswerableKey) && task.at(kUnanswerableKey) == true;
}

QuestionSummary encode_questions(const Squad& squad, const Tokenizer& tokenizer, int num_threads,
                                 io::ShardWriter& writer) {
  QuestionSummary total;
  using Batch = const SquadParagraph*;
  size_t next_paragraph = 0;
  total.seconds = encode_in_order<Batch, EncodedQuestions>(
      num_threads, squad.paragraphs.size(), "paragraphs",
      [&](Batch& batch) {
        if (next_paragraph == squad.paragraphs.size()) return false;
        batch = &squad.paragraphs[next_paragraph++];
        return true;
      },
      [&] {
        return [&tokenizer, encoder = std::shared_ptr(tokenizer.encoder())](const Batch& batch) {
          return encode(*batch, tokenizer, *encoder);
        };
      },
      [&](const EncodedQuestions& e) {
        e.sequences.write(writer);
        writer.add_text_bytes(e.num_bytes);
        accumulate(total, e.summary);
        return total.num_paragraphs;
      });
  return total;
}

QuestionRecord decode_question_record(const std::array<std::span<const int32_t>, kNumQuestionFields>& fields,
                                      const std::string& name, uint64_t number) {
  const auto [question_tokens, paragraph_tokens, begins, ends, text, object] = fields;
  auto refuse = [&](const std::string& expected, const std::string& found) {
    io::throw_damaged(str(name, ": record ", number), expected, found);
  };
  if (paragraph_tokens.empty() || begins.size() != paragraph_tokens.size() || ends.size() != paragraph_tokens.size())
    refuse("a paragraph of tokens that each have a begin and an end",
           str(paragraph_tokens.size(), " tokens, ", begins.size(), " begins and ", ends.size(), " ends"));
  QuestionRecord record{{question_tokens.begin(), question_tokens.end()},
                        {paragraph_tokens.begin(), paragraph_tokens.end()},
                        {},
                        bytes_of(text),
                        {},
                        {},
                        false};
  for (size_t i = 0; i < paragraph_tokens.size(); ++i) {
    if (begins[i] >= ends[i] || static_cast<size_t>(ends[i]) > record.text.size())
      refuse(str("byte ranges of tokens within the ", count_of(record.text.size(), "byte"), " of the paragraph"),
             str("the range ", begins[i], " to ", ends[i]));
    record.token_ranges.push_back({static_cast<uint32_t>(begins[i]), static_cast<uint32_t>(ends[i])});
  }
  if (has_decreasing_range(record.token_ranges))
    refuse("byte ranges of tokens in the order of the text",
           "a range that begins or ends before the range of the previous token");
  if (std::string fault = read_details(object, record); !fault.empty())
    refuse(str("a JSON object of at most ", kMaxUncheckedJsonBytes,
               " bytes with the entries id, answers and impossible, and answers at their byte ranges"),
           fault);
  return record;
}

QuestionRecord decode_question_record(const WholeShard& shard, size_t record, const std::string& name) {
  std::array<std::span<const int32_t>, kNumQuestionFields> fields;
  for (size_t i = 0; i < fields.size(); ++i) fields[i] = shard.sequence(record, i);
  return decode_question_record(fields, name, record + 1);
}

}  // namespace mh::text
