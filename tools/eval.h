// The jobs of mh-eval.
#pragma once

#include <string>
#include <vector>

#include "model/load.h"
#include "model_options.h"
#include "task/bleu.h"
#include "task/chrf.h"
#include "task/generation.h"
#include "task/scoring.h"

namespace mh::eval {

struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention = "auto"; }
  std::vector<std::string> files, sets;
  std::string format = "table", per_token;
  std::string model, prompt, prompt_file;  // of generate
};

// Of bleu, which runs no model.
struct BleuJob {
  std::string hypotheses, format;
  std::vector<std::string> references;
  bool sentence = false, chrf = false;
  task::BleuOptions bleu;
  task::ChrfOptions chrf_options;  // its lower case is BLEU's
  void describe(Fields& f);
};

// The model, on the device and path that the arguments ask for.
model::LoadedModel load(const Arguments& a, const std::string& path);
void score(const Arguments& a, const task::ScoringOptions& given);
void write_text(const Arguments& a, const task::GenerationOptions& options);
void score_text(BleuJob job);

}  // namespace mh::eval
