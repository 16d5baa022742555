// Prints the outputs of a model, for comparison with the package `transformers`:
// model-print [--probabilities] [--steps] MODEL
// Each line of standard input has the token ids of one sequence and optionally, after a "|", their segments or, for an
// encoder-decoder, the token ids of the source. For each line the program prints the last hidden states of all
// positions, "|", the logits, "|", and the next-sentence logits if the model has them.
// --probabilities: prints also "|" and the attention probabilities (layers, h, T, T), from a second forward pass; of an
// encoder-decoder (layers, h, Tq, Tk) in the order of the forward pass.
// --steps: passes the tokens one at a time to a decoding state, instead of all in one forward pass.
#include <c10/core/InferenceMode.h>

#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "attention/observer.h"
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

class ProbabilityPrinter : public mh::attention::Observer {
 public:
  void observe_probabilities(const mh::attention::LayerSpec&, const at::Tensor& probabilities) override {
    print_values(probabilities);
  }
};

// Returns the last hidden states of a sequence whose tokens are passed one at a time.
at::Tensor hidden_by_steps(mh::model::LanguageModel& model, const mh::model::Input& input) {
  const auto state = model.new_state();
  std::vector<at::Tensor> steps;
  for (int64_t i = 0; i < input.tokens.size(1); ++i)
    steps.push_back(model.hidden(mh::model::Input(input.tokens.narrow(1, i, 1), input.source), {}, state.get()));
  return mh::nn::cat(steps, 1);
}

}  // namespace

int main(int argc, char** argv) try {
  bool prints_probabilities = false, has_steps = false;
  int argument = 1;
  for (; argument + 1 < argc; ++argument) {
    prints_probabilities |= argv[argument] == std::string_view("--probabilities");
    has_steps |= argv[argument] == std::string_view("--steps");
  }
  if (argument + 1 != argc) return 2;
  c10::InferenceMode inference;
  const auto loaded = mh::model::load_model(argv[argument], at::kCPU);
  for (std::string line; std::getline(std::cin, line);) {
    const size_t bar = line.find('|');
    mh::model::Input input{parse_row(line.substr(0, bar))};
    if (bar != line.npos)
      (loaded.model->has_encoder() ? input.source : input.segments) = parse_row(line.substr(bar + 1));
    const at::Tensor hidden = has_steps ? hidden_by_steps(*loaded.model, input) : loaded.model->hidden(input, {});
    print_values(hidden);
    std::printf("| ");
    print_values(loaded.model->logits(hidden));
    std::printf("| ");
    print_values(loaded.model->next_sentence_logits(hidden));
    if (prints_probabilities) {
      std::printf("| ");
      ProbabilityPrinter printer;
      loaded.model->hidden(input, {}, nullptr, &printer);
    }
    std::printf("\n");
  }
  return 0;
} catch (const mh::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.exit());
}
