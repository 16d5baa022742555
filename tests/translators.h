// Small encoder-decoders, of every stage.
#pragma once

#include <c10/core/GradMode.h>

#include <memory>
#include <string>
#include <vector>

#include "attention/stage.h"
#include "base/error.h"
#include "models.h"

namespace translators {

using namespace mh;
using namespace mh::model;
using namespace mh::nn;

inline const char* const kTiny =
    "[model]\nbackbone = 'encoder-decoder'\nlayers = 2\nencoder_layers = 3\nwidth = 16\nffn = 24\n[attention]\nheads = "
    "4\n";

inline std::unique_ptr<LanguageModel> built(const std::string& toml, const Vocabularies& v = {30, 20}) {
  auto model = build_language_model(models::configured(toml), v, at::kCPU);
  model->parameters().initialise(1);
  // What begins as nothing shall do something.
  c10::NoGradGuard no_gradient;
  uint64_t seed = 100;
  for (Parameter& p : model->parameters().all()) {
    if (p.traits().head_axes.empty() || p.traits().role == HeadRole::projection || p.traits().role == HeadRole::output)
      continue;
    at::manual_seed(seed++);
    p.master().add_(at::randn(p.master().sizes()) * 0.3);
  }
  return model;
}

// Every combination of stages that can act in all three kinds, one at a time beside the plain ones.
inline std::vector<std::string> stages() {
  std::vector<std::string> all{""};
  for (const auto& name : attention::pairings().names()) all.push_back(str("pairing = '", name, "'\n"));
  for (const auto& name : attention::scores().names())
    all.push_back(
        name == "relative" || name == "synthesizer-random"
            ? str("[attention.encoder.self]\nscore = '", name, "'\n[attention.decoder.self]\nscore = '", name, "'\n")
            : str("score = '", name, "'\n"));
  for (const auto& name : attention::normalisers().names()) all.push_back(str("normaliser = '", name, "'\n"));
  for (const auto& name : attention::mixers().names()) all.push_back(str("mixer = '", name, "'\n"));
  for (const auto& name : attention::combiners().names()) all.push_back(str("combiner = '", name, "'\n"));
  all.push_back("mixer = 'mixhead-b'\nnormaliser = 'sigsoftmax'\ncombiner = 'alphas'\n");
  all.push_back("[attention.encoder.self]\ncombiner = 'mae'\nmae.mean = 'full'\n");
  return all;
}

}  // namespace translators
