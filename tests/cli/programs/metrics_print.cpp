// Prints scores with ten decimals, for comparison with scikit-learn, scipy and SQuAD's definition:
//
//   metrics-print classes   reads lines with the true and the predicted class: accuracy, F1, Matthews correlation
//   metrics-print numbers   reads lines with two numbers: Pearson and Spearman correlation
//   metrics-print answers   reads lines with an answer and the gold answers, separated by tabs: exact match and F1 of
//                           each line, then of all lines in percent
//
// For classes and numbers, an empty line ends a table of input lines; the program prints one line per table.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "base/text.h"
#include "metrics/scores.h"

namespace {

template <class T>
struct Table {
  std::vector<T> first_column, second_column;
};

// Parses the tables of standard input and calls print() for each of them.
template <class T>
void for_each_table(const std::function<T(const std::string&)>& parse,
                    const std::function<void(const Table<T>&)>& print) {
  Table<T> table;
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.empty()) {
      print(table);
      table = {};
      continue;
    }
    const auto columns = mh::split(line, ' ');
    table.first_column.push_back(parse(columns.at(0)));
    table.second_column.push_back(parse(columns.at(1)));
  }
}

void print_answers() {
  mh::metrics::AnswerScoreMean answer_scores;
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto columns = mh::split(line, '\t');
    const auto score = mh::metrics::answer_score(columns.at(0), std::span(columns).subspan(1));
    std::printf("%.10f %.10f\n", score.exact, score.f1);
    answer_scores.add(score);
  }
  std::printf("%.10f %.10f\n", answer_scores.mean_percent().exact, answer_scores.mean_percent().f1);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace mh::metrics;
  const std::string kind = argc == 2 ? argv[1] : "";
  if (kind == "classes") {
    for_each_table<int32_t>([](const std::string& text) { return std::stoi(text); },
                            [](const Table<int32_t>& t) {
                              std::printf("%.10f %.10f %.10f\n", accuracy(t.first_column, t.second_column),
                                          f1(t.first_column, t.second_column),
                                          matthews(t.first_column, t.second_column));
                            });
  } else if (kind == "numbers") {
    for_each_table<double>([](const std::string& text) { return std::strtod(text.c_str(), nullptr); },
                           [](const Table<double>& t) {
                             std::printf("%.10f %.10f\n", pearson(t.first_column, t.second_column),
                                         spearman(t.first_column, t.second_column));
                           });
  } else if (kind == "answers") {
    print_answers();
  } else {
    return 2;
  }
}
