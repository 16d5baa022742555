// Prints windows, answers and scores of a shard of SQuAD questions, for comparison with transformers:
//
//   squad-print windows SHARD LENGTH STRIDE QUESTION   one line per window: question id; token ids; position of the
//                                                      first paragraph token; target positions; for each paragraph
//                                                      token 1 if this window has its maximum context, else 0
//   squad-print truth SHARD                            predictions of a model that scores the gold spans highest
//   squad-print made SHARD                             predictions from pseudo-random scores
//   squad-print score SHARD PREDICTIONS                exact match, F1 and number of all questions, of the answerable
//                                                      questions and of the unanswerable questions
//
// truth and made also print the questions per second of one core to stderr.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "metrics/answers.h"
#include "metrics/predictions.h"
#include "text/records/questions.h"
#include "text/records/whole_shard.h"
#include "text/tokenizers.h"

using namespace mh;

namespace {

text::Questions questions_of(const std::string& path, const text::WindowOptions& options) {
  const text::WholeShard shard = text::read_whole_shard(path, text::kQuestionsKind);
  const text::Tokenizers tokenizers = text::tokenizers_of(shard.header, path);
  return {text::sequences_of(shard),     shard.header, text::require_wordpiece(*tokenizers.target, path), options,
          text::QuestionUse::prediction, path};
}

void print_windows(const text::Questions& questions) {
  for (int64_t row = 0; row < questions.size(); ++row) {
    const text::Example example = questions.make(row);
    std::printf("%s\t", questions.questions()[static_cast<size_t>(questions.window(row).question_index)].id.c_str());
    for (int32_t token : example.tokens) std::printf("%d ", token);
    std::printf("\t%d\t%d\t%d\t", example.first_segment_length, static_cast<int>(example.targets[0]),
                static_cast<int>(example.targets[1]));
    for (bool is_scored : questions.scored_tokens(row)) std::putchar(is_scored ? '1' : '0');
    std::putchar('\n');
  }
}

struct Scores {
  std::vector<float> start, end;
};

void print_answers(const text::Questions& questions, const std::function<Scores(int64_t row)>& scores_of) {
  metrics::AnswerSearch search(questions, {});
  std::clock_t cpu_time = 0;
  for (int64_t row = 0; row < questions.size(); ++row) {
    const Scores s = scores_of(row);
    cpu_time -= std::clock();
    search.add(row, s.start, s.end);
    cpu_time += std::clock();
  }
  std::vector<metrics::Answers> answers;
  cpu_time -= std::clock();
  for (size_t q = 0; q < questions.questions().size(); ++q) answers.push_back(search.answers(static_cast<int64_t>(q)));
  cpu_time += std::clock();
  const double seconds = static_cast<double>(cpu_time) / CLOCKS_PER_SEC;
  std::fprintf(stderr, "%.0f questions/s of one core\n", static_cast<double>(answers.size()) / seconds);
  std::fputs(metrics::predictions_json(questions, answers).c_str(), stdout);
}

// Returns start and end scores of the window `row`: 10 at its target positions, 0 elsewhere.
Scores gold_scores(const text::Questions& questions, int64_t row) {
  Scores s{std::vector<float>(static_cast<size_t>(questions.length(row))), {}};
  s.end = s.start;
  const auto targets = questions.make(row).targets;
  s.start[static_cast<size_t>(targets[0])] = s.end[static_cast<size_t>(targets[1])] = 10;
  return s;
}

// Returns pseudo-random start and end scores of the window `row`, with few distinct values to test ties.
Scores pseudo_random_scores(const text::Questions& questions, int64_t row) {
  Scores s;
  for (int64_t i = 0; i < questions.length(row); ++i) {
    s.start.push_back(static_cast<float>((row * 7919 + i * 104729) % 1009 / 8));
    s.end.push_back(static_cast<float>((row * 6101 + i * 15485863) % 997 / 8));
  }
  return s;
}

void print_scores(const text::Questions& questions, const std::string& path) {
  const auto scores = metrics::score_predictions(questions, metrics::read_predictions(path));
  for (const metrics::AnswerScoreMean* group_scores :
       {&scores.all_questions, &scores.answerable_questions, &scores.unanswerable_questions})
    std::printf("%.10f %.10f %d\n", group_scores->mean_percent().exact, group_scores->mean_percent().f1,
                static_cast<int>(group_scores->num_questions()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string job = argc > 2 ? argv[1] : "";
  text::WindowOptions options;
  if (job == "windows" && argc == 6)
    options.max_length = std::atol(argv[3]), options.stride = std::atol(argv[4]),
    options.max_question_tokens = std::atol(argv[5]);
  else if (argc != (job == "score" ? 4 : 3)) return 2;
  const text::Questions questions = questions_of(argv[2], options);
  if (job == "windows") print_windows(questions);
  else if (job == "truth") print_answers(questions, [&](int64_t row) { return gold_scores(questions, row); });
  else if (job == "made") print_answers(questions, [&](int64_t row) { return pseudo_random_scores(questions, row); });
  else if (job == "score") print_scores(questions, argv[3]);
  else return 2;
}
