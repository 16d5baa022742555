// The jobs of mh-eval.
#pragma once

#include <string>
#include <vector>

#include "model/load.h"
#include "task/generation.h"
#include "task/scoring.h"

namespace mh::eval {

struct Arguments {
  std::vector<std::string> files;
  std::string format = "table", device = "auto", precision = "fp32", attention = "auto", per_token;
  std::string model, prompt, prompt_file;  // of generate
  int threads = 0;
};

// The model, on the device and path that the arguments ask for.
model::LoadedModel load(const Arguments& a, const std::string& path);
void score(const Arguments& a, const task::ScoringOptions& given);
void write_text(const Arguments& a, const task::GenerationOptions& options);

}  // namespace mh::eval
