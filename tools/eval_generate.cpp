// mh-eval generate: text from a model.
#include <algorithm>

#include "base/log.h"
#include "eval.h"

namespace mh::eval {

void write_text(const Arguments& a, const task::GenerationOptions& options) {
  model::LoadedModel m = load(a, a.model);
  // The text starts a new line, so the model first sees an end-of-line symbol.
  std::vector<int32_t> prompt{m.tokenizer->end_of_line()};
  m.tokenizer->encoder()->encode(a.prompt, prompt);
  auto unknown = std::count(prompt.begin(), prompt.end(), m.tokenizer->unknown());
  if (unknown > 0) log_warning(str(unknown, " tokens of the prompt are unknown to the vocabulary"));
  auto sink = open_sink("-");
  for (int64_t sample = 0; sample < options.samples; ++sample) {
    std::vector<int32_t> tokens(prompt.begin() + 1, prompt.end());
    task::generate(*m.model, prompt, options, sample, [&](int32_t token) {
      tokens.push_back(token);
      return true;
    });
    std::string out = m.tokenizer->decode(tokens);
    sink->write(out + (out.empty() || out.back() != '\n' ? "\n" : ""));
  }
  sink->close();
}

}  // namespace mh::eval
