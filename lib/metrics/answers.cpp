#include "metrics/answers.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace mh::metrics {

AnswerSearch::AnswerSearch(const text::Questions& questions, const AnswerOptions& options)
    : questions_(questions), options_(options), rows_(static_cast<size_t>(questions.size())) {}

bool AnswerSearch::ranks_before(const Candidate& a, const Candidate& b) {
  if (a.score() != b.score()) return a.score() > b.score();
  return a.span.first != b.span.first ? a.span.first < b.span.first : a.span.last < b.span.last;
}

// Returns the `count` best candidates of a row in descending order of score. Uses a heap whose front is the worst
// candidate. Candidates are visited in the order of start and end, so a candidate whose score is at most the score of
// the front ranks after the front.
std::vector<AnswerSearch::Candidate> AnswerSearch::best_of(int64_t row, std::span<const float> start,
                                                           std::span<const float> end, size_t count) const {
  const text::Window& w = questions_.window(row);
  const std::vector<bool> counts = questions_.scored_tokens(row);
  const auto shift = static_cast<size_t>(questions_.paragraph_begins(row));
  const std::span<const float> starts = start.subspan(shift, counts.size()), ends = end.subspan(shift, counts.size());
  std::vector<Candidate> best;
  for (size_t s = 0; s < counts.size(); ++s) {
    if (!counts[s]) continue;
    const size_t limit = std::min(counts.size(), s + static_cast<size_t>(options_.longest));
    for (size_t e = s; e < limit; ++e) {
      const double begins = starts[s], stops = ends[e];
      if (best.size() == count) {
        if (begins + stops <= best.front().score()) continue;
        std::pop_heap(best.begin(), best.end(), ranks_before);
        best.pop_back();
      }
      best.push_back({begins, stops, {w.first + static_cast<int32_t>(s), w.first + static_cast<int32_t>(e)}});
      std::push_heap(best.begin(), best.end(), ranks_before);
    }
  }
  std::sort_heap(best.begin(), best.end(), ranks_before);
  return best;
}

std::vector<AnswerSearch::Candidate> AnswerSearch::distinct(const text::Paragraph& paragraph,
                                                            const std::vector<Candidate>& ordered) const {
  std::vector<Candidate> kept;
  std::set<std::string> seen;
  for (const Candidate& c : ordered)
    if (kept.size() < static_cast<size_t>(options_.best) && seen.insert(paragraph.text_of(c.span)).second)
      kept.push_back(c);
  return kept;
}

void AnswerSearch::add(int64_t row, std::span<const float> start, std::span<const float> end) {
  const auto length = static_cast<size_t>(questions_.length(row));
  if (start.size() != length || end.size() != length)
    throw Error(Exit::failed, Problem{str("row ", row), str(length, " start logits and end logits"),
                                      str(start.size(), " and ", end.size()), ""});
  auto finite = [](float v) { return std::isfinite(v); };
  if (!std::all_of(start.begin(), start.end(), finite) || !std::all_of(end.begin(), end.end(), finite))
    throw Error(Exit::failed, Problem{str("row ", row), "finite start and end logits", "NaN or infinity", ""});
  Row& r = rows_[static_cast<size_t>(row)];
  r = {true, start[0], end[0], {}};
  const text::Paragraph& paragraph = questions_.paragraph_of(questions_.window(row).question);
  const auto num_best = static_cast<size_t>(options_.best);
  // Doubles the number of candidates until enough of them have distinct texts.
  for (size_t count = num_best;; count *= 2) {
    const std::vector<Candidate> ordered = best_of(row, start, end, count);
    r.best = distinct(paragraph, ordered);
    if (r.best.size() == num_best || ordered.size() < count) return;
  }
}

namespace {

void add_probabilities(std::vector<Answer>& answers) {
  double largest = answers.front().score(), sum = 0;
  for (Answer& a : answers) sum += a.probability = std::exp(a.score() - largest);
  for (Answer& a : answers) a.probability /= sum;
}

}  // namespace

Answers AnswerSearch::answers(int64_t question) const {
  const auto [first, last] = questions_.rows_of(question);
  const text::Question& q = questions_.questions()[static_cast<size_t>(question)];
  const text::Paragraph& paragraph = questions_.paragraph_of(question);
  std::vector<Candidate> all;
  const Row* least = nullptr;
  for (int64_t i = first; i < last; ++i) {
    const Row& row = rows_[static_cast<size_t>(i)];
    if (!row.added)
      throw Error(Exit::failed, Problem{"question " + q.id, "the logits of all rows of the question",
                                        "the logits of only some rows", ""});
    all.insert(all.end(), row.best.begin(), row.best.end());
    if (least == nullptr || row.null_start + row.null_end < least->null_start + least->null_end) least = &row;
  }
  if (all.empty()) throw Error(Exit::failed, Problem{"question " + q.id, "at least one row", "none", ""});
  // ranks_before() does not compare windows: each start belongs to one window, and later windows have later starts.
  std::sort(all.begin(), all.end(), ranks_before);
  Answers out;
  for (const Candidate& c : distinct(paragraph, all)) out.best.push_back({paragraph.text_of(c.span), c.start, c.end});
  out.text = out.best.front().text;
  if (questions_.unanswerable()) {
    const Answer none{"", least->null_start, least->null_end};
    out.null_difference = none.score() - out.best.front().score();
    if (out.null_difference > options_.null_threshold) out.text.clear();
    const auto below_none = [&](const Answer& a) { return a.score() < none.score(); };
    const auto at = std::find_if(out.best.begin(), out.best.end(), below_none);
    const bool in_best = at - out.best.begin() < options_.best;
    out.best.insert(at, none);
    if (in_best && static_cast<int64_t>(out.best.size()) > options_.best) out.best.pop_back();
  }
  add_probabilities(out.best);
  return out;
}

}  // namespace mh::metrics
