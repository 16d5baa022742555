#include "text/records/questions.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "base/json_integer.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "io/record_kind.h"
#include "io/shard_format.h"
#include "text/encoder_vocabulary.h"
#include "text/records/ordered_encoding.h"
#include "text/records/preparation.h"
#include "text/records/record_text.h"
#include "text/records/whole_shard.h"
#include "text/tokenizer.h"
#include "text/tokenizers.h"

namespace mh::text {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

class QuestionsKind : public io::RecordKind {
 public:
  int list_position() const override { return 5; }
  std::vector<std::string> preparations() const override { return {"squad"}; }
  std::vector<std::string> field_names() const override {
    return {"question", "context", "begins", "ends", "text", "about"};
  }
  size_t num_token_fields() const override { return 2; }
};
const Registration<QuestionsKind> kind_entry(
    io::record_kinds(), kQuestionsKind,
    "A question about a paragraph. The fields question and context contain the tokens of the question and of the "
    "paragraph, which has at least one token. The fields begins and ends contain the byte offsets in the paragraph "
    "where each of its tokens begins and ends, in ascending order, possibly with equal offsets. The field text "
    "contains the bytes of the paragraph in UTF-8, one number for each byte. The field about contains the bytes of a "
    "JSON object with the keys id; impossible (whether the paragraph has no answer); and answers (a list of objects "
    "with text and, if the paragraph contains this text, begin and end in bytes; empty exactly if the question is "
    "unanswerable). The header key task is an object with the key unanswerable (whether questions may be unanswerable "
    "and are scored as in SQuAD 2.0). The trailer key text_bytes counts each paragraph once.");

// Returns the range of the tokens that contain a character of `answer`; `token_ranges`: byte range of each token.
AnswerSpan span_of(const TextRange& answer, const std::vector<TextRange>& token_ranges) {
  const auto first_token = std::find_if(token_ranges.begin(), token_ranges.end(),
                                        [&](const auto& range) { return range.end > answer.begin; });
  const auto end_token =
      std::find_if(first_token, token_ranges.end(), [&](const auto& range) { return range.begin >= answer.end; });
  if (first_token == end_token) return {};  // no character of the answer belongs to a token
  return {static_cast<int32_t>(first_token - token_ranges.begin()),
          static_cast<int32_t>(end_token - token_ranges.begin()) - 1};
}

// Returns BERT's measure of the context that the window gives a token: the smaller of the numbers of window tokens
// before and after the token, plus a hundredth of the length of the window to break ties.
double context_score(const ParagraphWindow& window, int32_t token_index) {
  const int32_t num_tokens_before = token_index - window.first_token,
                num_tokens_after = window.first_token + window.num_tokens - 1 - token_index;
  return std::min(num_tokens_before, num_tokens_after) + 0.01 * window.num_tokens;
}

}  // namespace

void WindowOptions::check(int64_t num_special_tokens) const {
  if (max_length <= max_question_tokens + num_special_tokens)
    refuse_usage("train.batch.sequence_length",
                 str("more than ", max_question_tokens + num_special_tokens,
                     " tokens, the limit squad.max_question_tokens plus ", num_special_tokens, " special tokens"),
                 str(max_length), "raise train.batch.sequence_length, or lower squad.max_question_tokens");
}

std::string Paragraph::text_of(AnswerSpan span) const {
  const uint32_t begin = token_ranges[static_cast<size_t>(span.first)].begin,
                 end = token_ranges[static_cast<size_t>(span.last)].end;
  return text.substr(begin, end - begin);
}

Questions::Questions(const Sequences& sequences, const io::ShardHeader& header, const Tokenizer& tokenizer,
                     const WindowOptions& options, QuestionUse use, const std::string& name)
    : options_(options),
      question_use_(use),
      special_tokens_(encoder_tokens(tokenizer, name)),
      may_have_unanswerable_(text::may_have_unanswerable(header)) {
  options_.check(special_tokens_.num_special_tokens(2));
  io::require_kind(header, name, kQuestionsKind);
  constexpr size_t num_fields = kNumQuestionFields;
  std::vector<int32_t> numbers;
  for (size_t sequence = 0; sequence < sequences.ends.size(); sequence += num_fields) {
    const uint64_t begin = sequences.begin(sequence);
    numbers.resize(sequences.ends[sequence + num_fields - 1] - begin);
    sequences.read(begin, numbers);
    std::array<std::span<const int32_t>, num_fields> record_fields;
    for (size_t i = 0; i < num_fields; ++i)
      record_fields[i] = std::span(numbers).subspan(sequences.begin(sequence + i) - begin,
                                                    static_cast<size_t>(sequences.length(sequence + i)));
    add(decode_question_record(record_fields, name, sequence / num_fields + 1));
  }
  first_rows_.push_back(size());
}

void Questions::add(QuestionRecord record) {
  if (paragraphs_.empty() || paragraphs_.back().text != record.text ||
      paragraphs_.back().tokens != record.paragraph_tokens)
    paragraphs_.push_back({std::move(record.text), std::move(record.paragraph_tokens), std::move(record.token_ranges)});
  Question q{std::move(record.id),      std::move(record.question_tokens),
             std::move(record.answers), record.is_unanswerable,
             paragraphs_.size() - 1,    {}};
  const auto max_tokens = static_cast<size_t>(options_.max_question_tokens);
  num_truncated_ += q.tokens.size() > max_tokens ? 1 : 0;
  q.tokens.resize(std::min(q.tokens.size(), max_tokens));
  for (const GoldAnswer& answer : q.answers)
    if (answer.byte_range && q.answer_span.is_empty())
      q.answer_span = span_of(*answer.byte_range, paragraphs_.back().token_ranges);
  questions_.push_back(std::move(q));
  first_rows_.push_back(size());
  const Question& last_question = questions_.back();
  if (question_use_ == QuestionUse::training && !last_question.is_unanswerable && last_question.answer_span.is_empty())
    ++num_without_windows_;
  else add_windows(static_cast<int64_t>(questions_.size()) - 1);
}

void Questions::add_windows(int64_t question) {
  const auto num_question_tokens = static_cast<int64_t>(questions_[static_cast<size_t>(question)].tokens.size());
  const auto num_paragraph_tokens = static_cast<int64_t>(paragraph_of(question).tokens.size());
  const int64_t max_window_tokens = options_.max_length - special_tokens_.num_special_tokens(2) - num_question_tokens;
  for (int64_t first_token = 0;; first_token += std::min(max_window_tokens, options_.stride)) {
    const int64_t num_tokens = std::min(max_window_tokens, num_paragraph_tokens - first_token);
    windows_.push_back({question, static_cast<int32_t>(first_token), static_cast<int32_t>(num_tokens)});
    if (first_token + num_tokens == num_paragraph_tokens) return;
  }
}

int64_t Questions::paragraph_start(int64_t row) const {
  return static_cast<int64_t>(questions_[static_cast<size_t>(window(row).question_index)].tokens.size()) + 1 +
         special_tokens_.num_pair_separators;
}

const Paragraph& Questions::paragraph_of(int64_t question) const {
  return paragraphs_[questions_[static_cast<size_t>(question)].paragraph_index];
}

std::pair<int64_t, int64_t> Questions::rows_of(int64_t question) const {
  const auto i = static_cast<size_t>(question);
  return {first_rows_[i], first_rows_[i + 1]};
}

Example Questions::make(int64_t row) const {
  const ParagraphWindow& w = window(row);
  const Question& q = questions_[static_cast<size_t>(w.question_index)];
  const std::vector<int32_t>& paragraph = paragraph_of(w.question_index).tokens;
  Example example;
  std::vector<int32_t>& tokens = example.tokens;
  tokens.reserve(static_cast<size_t>(length(row)));
  tokens.push_back(special_tokens_.begin_id);
  tokens.insert(tokens.end(), q.tokens.begin(), q.tokens.end());
  tokens.insert(tokens.end(), static_cast<size_t>(special_tokens_.num_pair_separators), special_tokens_.separator_id);
  example.first_segment_length = static_cast<int32_t>(tokens.size());
  tokens.insert(tokens.end(), paragraph.begin() + w.first_token, paragraph.begin() + w.first_token + w.num_tokens);
  tokens.push_back(special_tokens_.separator_id);
  const bool contains_answer = !q.answer_span.is_empty() && q.answer_span.first >= w.first_token &&
                               q.answer_span.last < w.first_token + w.num_tokens;
  const int32_t offset = example.first_segment_length - w.first_token;
  example.targets = {contains_answer ? q.answer_span.first + offset : 0,
                     contains_answer ? q.answer_span.last + offset : 0};
  return example;
}

std::vector<bool> Questions::scored_tokens(int64_t row) const {
  const ParagraphWindow& row_window = window(row);
  const auto [begin, end] = rows_of(row_window.question_index);
  std::vector<bool> is_scored(static_cast<size_t>(row_window.num_tokens), true);
  for (int32_t i = 0; i < row_window.num_tokens; ++i) {
    const int32_t token_index = row_window.first_token + i;
    const double row_context = context_score(row_window, token_index);
    for (int64_t other_row = begin; other_row < end; ++other_row) {
      const ParagraphWindow& w = window(other_row);
      if (other_row == row || token_index < w.first_token || token_index >= w.first_token + w.num_tokens) continue;
      const double other_context = context_score(w, token_index);
      if (other_context > row_context || (other_context == row_context && other_row < row))
        is_scored[static_cast<size_t>(i)] = false;
    }
  }
  return is_scored;
}

namespace {

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
  header.set_kind(kQuestionsKind,
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

namespace {

// The options of mh-prep squad.
struct SquadPrepOptions {
  BertVocabularyOptions vocabulary;
  SquadOptions squad;
  EncodingThreads threads;
  void describe(Fields& f) {
    f.section("", vocabulary);
    f.section("", squad);
    f.section("", threads);
  }
};

void report(const Squad& squad, const QuestionSummary& summary) {
  if (squad.num_answers_without_range > 0)
    log_info(str(format_count(squad.num_answers_without_range, "of "), count_with_commas(squad.num_answers, "answer"),
                 " not found at their offset in the paragraph; training does not use these answers"));
  if (squad.num_unanswerable > 0)
    log_info(count_with_commas(squad.num_unanswerable, "unanswerable question") +
             ", since the paragraph contains no answer");
  log_info(str(count_with_commas(summary.num_questions, "question"), " on ",
               count_with_commas(summary.num_paragraphs, "paragraph"), ", ",
               format_count(summary.num_question_tokens, "+ "),
               count_with_commas(summary.num_paragraph_tokens, "token"), ", ",
               format_count(summary.num_unknown_in_questions, "+ "),
               format_count(summary.num_unknown_in_paragraphs, "unknown (questions + paragraphs), "),
               format_throughput(squad.num_bytes, summary.seconds)));
}

void make_squad(const PrepArguments& arguments, const SquadPrepOptions& options) {
  const auto tokenizer = load_vocabulary(arguments, options.vocabulary);
  const Squad squad = read_squad(arguments.inputs, options.squad);
  io::ShardHeader header = header_of(*tokenizer);
  set_questions_header(header, squad, options.squad);
  header.provenance = provenance_of(
      arguments, options.vocabulary,
      {{"missing_share", options.squad.missing_fraction}, {"unanswerable", options.squad.unanswerable_handling}});
  QuestionSummary summary;
  write_shard(arguments, header, [&](io::ShardWriter& writer) {
    summary = encode_questions(squad, *tokenizer, options.threads.num_threads(), writer);
  });
  report(squad, summary);
}

class QuestionsPreparation : public PreparationWithOptions<SquadPrepOptions, make_squad> {
 public:
  std::string inputs_help() const override { return "files of SQuAD, version 1.1 or 2.0"; }
  bool reads_lines() const override { return false; }
};

const Registration<QuestionsPreparation> squad_entry(
    preparations(), "squad", "make a shard of questions: one question and its paragraph per record");

// Prints id, question and paragraph of each question.
class QuestionText : public WholeShardText {
 protected:
  ordered_json count_shard(const WholeShard& shard, const std::string& name) const override {
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
    ordered_json counts = WholeShardText::count_shard(shard, name);
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

const Registration<QuestionText> text_entry(record_texts(), kQuestionsKind,
                                            "id, question and paragraph, one question per line");

}  // namespace

}  // namespace mh::text
