// What an encoder with a head says of examples, and how right it is.
//
//   words    word_accuracy, and with model.bert.next_sentence next_accuracy: shares, of the masked words and of the
//   rows classes, number  the scores of the task (metrics.h): accuracy, f1, matthews; pearson, spearman span     exact,
//   f1: SQuAD's, in percent
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/answers.h"
#include "task/corpus.h"

namespace mh::attention {
class Observer;
}
namespace mh::model {
class LanguageModel;
}

namespace mh::task {

using NamedScores = std::vector<std::pair<std::string, double>>;  // in the order of their task

// nan where there is none of this name.
double score_named(const NamedScores& scores, const std::string& name);
std::vector<std::string> score_names(const Examples& examples);
const std::vector<std::string>& all_score_names();  // of any examples

// What is told while examples are looked at; each may be left out.
struct ExampleListener {
  attention::Observer* observer = nullptr;                  // of every forward pass
  std::function<void(int64_t done, int64_t all)> progress;  // in rows
};

struct ExampleScores {
  double loss = 0;     // mean, as in training: of words the mean over words and that over next sentences, summed
  int64_t rows = 0;    // looked at
  int64_t scored = 0;  // words, classes, numbers or spans that are known
  NamedScores scores;  // empty where nothing is known
  std::vector<double> predicted;          // of each row the class, or the number
  std::vector<metrics::Answers> answers;  // of each question
};

// Rows of the first epoch, those of like length together, as many as about 4096 tokens have room for. Ends early, with
// what it has, where a signal asks the process to stop (base/signals.h).
ExampleScores score_examples(model::LanguageModel& model, const Examples& examples,
                             const ExampleListener& listener = {});

}  // namespace mh::task
