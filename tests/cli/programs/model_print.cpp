// Prints the outputs of a model, for comparison with the package `transformers`: model-print MODEL
// Each line of standard input has the token ids of one sequence and optionally, after a "|", their segments. For each
// line the program prints the last hidden states of all positions, "|", the logits, "|", and the next-sentence logits
// if the model has them.
#include <c10/core/InferenceMode.h>

#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "base/error.h"
#include "fixtures/aten.h"
#include "model/load.h"

namespace {

// Prints all elements of a tensor; nothing if it is undefined.
void print_values(const at::Tensor& values) {
  const at::Tensor flat = values.defined() ? values.to(at::kFloat).contiguous() : at::zeros({0});
  for (int64_t i = 0; i < flat.numel(); ++i) std::printf("%.9g ", static_cast<double>(flat.const_data_ptr<float>()[i]));
}

// Returns the integers in `text` as a tensor (1, T), or an undefined tensor if there are none.
at::Tensor parse_row(const std::string& text) {
  std::istringstream in(text);
  std::vector<int64_t> numbers;
  for (int64_t number; in >> number;) numbers.push_back(number);
  return numbers.empty() ? at::Tensor() : at::tensor(numbers, at::kLong).unsqueeze(0);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  c10::InferenceMode inference;
  const auto loaded = mh::model::load_model(argv[1], at::kCPU);
  for (std::string line; std::getline(std::cin, line);) {
    const size_t bar = line.find('|');
    mh::model::Input input{parse_row(line.substr(0, bar))};
    if (bar != line.npos) input.segments = parse_row(line.substr(bar + 1));
    const at::Tensor hidden = loaded.model->hidden(input, {});
    print_values(hidden);
    std::printf("| ");
    print_values(loaded.model->logits(hidden));
    std::printf("| ");
    print_values(loaded.model->next_sentence_logits(hidden));
    std::printf("\n");
  }
  return 0;
} catch (const mh::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.exit());
}
