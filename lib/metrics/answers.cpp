#include "metrics/answers.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace mh::metrics {

AnswerSearch::AnswerSearch(const text::Questions& questions, const AnswerOptions& options)
    : questions_(questions), options_(options), windows_(static_cast<size_t>(questions.size())) {}

bool AnswerSearch::ranks_before(const Candidate& a, const Candidate& b) {
  if (a.score() != b.score()) return a.score() > b.score();
  return a.span.first != b.span.first ? a.span.first < b.span.first : a.span.last < b.span.last;
}

// Uses a heap whose front is the worst candidate. Candidates are visited in the order of start and end, so a candidate
// whose score is at most the score of the front ranks after the front.
std::vector<AnswerSearch::Candidate> AnswerSearch::best_candidates(int64_t row, std::span<const float> start_logits,
                                                                   std::span<const float> end_logits,
                                                                   size_t count) const {
  const text::ParagraphWindow& w = questions_.window(row);
  const std::vector<bool> is_scored = questions_.scored_tokens(row);
  const auto paragraph_begin = static_cast<size_t>(questions_.paragraph_start(row));
  const std::span<const float> paragraph_start_logits = start_logits.subspan(paragraph_begin, is_scored.size()),
                               paragraph_end_logits = end_logits.subspan(paragraph_begin, is_scored.size());
  std::vector<Candidate> candidates;
  for (size_t s = 0; s < is_scored.size(); ++s) {
    if (!is_scored[s]) continue;
    const size_t limit = std::min(is_scored.size(), s + static_cast<size_t>(options_.max_answer_tokens));
    for (size_t e = s; e < limit; ++e) {
      const double start_logit = paragraph_start_logits[s], end_logit = paragraph_end_logits[e];
      if (candidates.size() == count) {
        if (start_logit + end_logit <= candidates.front().score()) continue;
        std::pop_heap(candidates.begin(), candidates.end(), ranks_before);
        candidates.pop_back();
      }
      candidates.push_back(
          {start_logit, end_logit, {w.first_token + static_cast<int32_t>(s), w.first_token + static_cast<int32_t>(e)}});
      std::push_heap(candidates.begin(), candidates.end(), ranks_before);
    }
  }
  std::sort_heap(candidates.begin(), candidates.end(), ranks_before);
  return candidates;
}

std::vector<AnswerSearch::Candidate> AnswerSearch::best_distinct_candidates(
    const text::Paragraph& paragraph, const std::vector<Candidate>& candidates) const {
  std::vector<Candidate> result;
  std::set<std::string> texts;
  for (const Candidate& c : candidates)
    if (result.size() < static_cast<size_t>(options_.num_best_answers) &&
        texts.insert(paragraph.text_of(c.span)).second)
      result.push_back(c);
  return result;
}

void AnswerSearch::add(int64_t row, std::span<const float> start_logits, std::span<const float> end_logits) {
  const auto length = static_cast<size_t>(questions_.length(row));
  if (start_logits.size() != length || end_logits.size() != length)
    throw Error(Exit::failed, Problem{str("row ", row), str(length, " start logits and as many end logits"),
                                      str(start_logits.size(), " start logits and ", end_logits.size(), " end logits"),
                                      "pass a logit for each position of the row"});
  auto is_finite = [](float v) { return std::isfinite(v); };
  if (!std::all_of(start_logits.begin(), start_logits.end(), is_finite) ||
      !std::all_of(end_logits.begin(), end_logits.end(), is_finite))
    throw Error(Exit::failed, Problem{str("row ", row), "finite start and end logits", "NaN or infinity",
                                      "use another checkpoint, or a higher --precision"});
  WindowAnswers& window = windows_[static_cast<size_t>(row)];
  window = {true, start_logits[0], end_logits[0], {}};
  const text::Paragraph& paragraph = questions_.paragraph_of(questions_.window(row).question_index);
  const auto num_best_answers = static_cast<size_t>(options_.num_best_answers);
  // Doubles the number of candidates until `num_best_answers` of them have distinct texts, or the row has no more
  // candidates.
  for (size_t count = num_best_answers;; count *= 2) {
    const std::vector<Candidate> candidates = best_candidates(row, start_logits, end_logits, count);
    window.best_candidates = best_distinct_candidates(paragraph, candidates);
    if (window.best_candidates.size() == num_best_answers || candidates.size() < count) return;
  }
}

namespace {

void add_probabilities(std::vector<Answer>& answers) {
  double max_score = answers.front().score(), sum = 0;
  for (Answer& a : answers) sum += a.probability = std::exp(a.score() - max_score);
  for (Answer& a : answers) a.probability /= sum;
}

}  // namespace

Answers AnswerSearch::answers(int64_t question) const {
  const auto [row_begin, row_end] = questions_.rows_of(question);
  const text::Question& q = questions_.questions()[static_cast<size_t>(question)];
  const text::Paragraph& paragraph = questions_.paragraph_of(question);
  std::vector<Candidate> candidates;
  const WindowAnswers* null_window = nullptr;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const WindowAnswers& window = windows_[static_cast<size_t>(row)];
    if (!window.has_logits)
      throw Error(Exit::failed, Problem{"question " + q.id, "the logits of all rows of the question",
                                        "the logits of only some rows", "add the logits of each row"});
    candidates.insert(candidates.end(), window.best_candidates.begin(), window.best_candidates.end());
    if (null_window == nullptr ||
        window.null_start_logit + window.null_end_logit < null_window->null_start_logit + null_window->null_end_logit)
      null_window = &window;
  }
  if (candidates.empty())
    throw Error(Exit::failed,
                Problem{"question " + q.id, "at least one row", "none", "make the shard again with mh-prep"});
  // ranks_before() need not compare windows: each start belongs to one window, and later windows have later starts.
  std::sort(candidates.begin(), candidates.end(), ranks_before);
  Answers out;
  for (const Candidate& c : best_distinct_candidates(paragraph, candidates))
    out.best_answers.push_back({paragraph.text_of(c.span), c.start_logit, c.end_logit});
  out.text = out.best_answers.front().text;
  if (questions_.may_have_unanswerable()) {
    const Answer no_answer{"", null_window->null_start_logit, null_window->null_end_logit};
    out.null_score_difference = no_answer.score() - out.best_answers.front().score();
    if (out.null_score_difference > options_.null_threshold) out.text.clear();
    const auto scores_below_no_answer = [&](const Answer& a) { return a.score() < no_answer.score(); };
    const auto position = std::find_if(out.best_answers.begin(), out.best_answers.end(), scores_below_no_answer);
    const bool is_in_best = position - out.best_answers.begin() < options_.num_best_answers;
    out.best_answers.insert(position, no_answer);
    if (is_in_best && static_cast<int64_t>(out.best_answers.size()) > options_.num_best_answers)
      out.best_answers.pop_back();
  }
  add_probabilities(out.best_answers);
  return out;
}

}  // namespace mh::metrics
