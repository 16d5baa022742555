// A small model of each backbone and stage, and what it reads.
#pragma once

#include <string>
#include <vector>

#include "attention/stage.h"
#include "base/text.h"
#include "models.h"
#include "translators.h"

namespace every_model {

using namespace mh;
using namespace mh::model;
using namespace mh::nn;

inline const Vocabularies kVocabularies{30, 20};

// A configuration of each.
inline std::vector<std::string> configurations() {
  std::vector<std::string> all;
  for (const std::string& stage : translators::stages()) all.push_back(translators::kTiny + stage);
  for (const char* norm : {"pre", "post"})
    for (const char* positions : {"learned", "none"})
      all.push_back(str("[model]\nlayers = 2\nwidth = 16\nffn = 24\nnorm = '", norm, "'\npositions = '", positions,
                        "'\n[attention]\nheads = 4\n"));
  for (const auto& name : attention::combiners().names())
    all.push_back("[model]\nlayers = 2\nwidth = 32\nffn = 24\n[attention]\nheads = 4\ncombiner = '" + name + "'\n");
  for (const char* rest : {"", "same_length = true\n", "initial_memory = 'zeros'\n"})
    for (const char* pairing : {"own", "cross-head"})
      all.push_back(
          str("[model]\nbackbone = 'transformer-xl'\npositions = 'none'\nmemory = 6\nlayers = 2\nwidth = "
              "16\nffn = 24\n",
              rest, "[attention]\nheads = 4\nscore = 'relative'\npairing = '", pairing, "'\n"));
  for (const char* head : {"", "next_sentence = true\n", "head = 'classes'\nclasses = 3\n", "head = 'span'\n"})
    all.push_back(
        str("[model]\nbackbone = 'bert'\npositions = 'learned'\nsegments = 2\nembedding_norm = true\nlayers = "
            "2\nwidth = 16\nffn = 24\n",
            head, "[attention]\nheads = 4\n"));
  return all;
}

// Made on the CPU, as all input is: two rows, one of them filled up. `encodes`: the model is an encoder alone.
inline Input input(const LanguageModel& model, bool encodes, int64_t length = 5) {
  Input made(models::some_tokens(2, length, kVocabularies.target, 1));
  const at::Tensor lengths = at::tensor(std::vector<int64_t>{length, std::max<int64_t>(1, length - 2)}, at::kLong);
  if (model.has_encoder()) {
    made.source = models::some_tokens(2, 7, kVocabularies.source, 2);
    made.lengths.encoder = at::tensor(std::vector<int64_t>{7, 4}, at::kLong);
  }
  if (encodes) made.segments = at::zeros_like(made.tokens);
  (encodes ? made.lengths.encoder : made.lengths.decoder) = lengths;
  return made;
}

}  // namespace every_model
