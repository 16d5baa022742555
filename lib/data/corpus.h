// The interface of a corpus that a model is trained or scored on: a text, sentence pairs, or examples.
#pragma once

#include <cstdint>
#include <memory>

#include "data/mini_batch.h"
#include "data/scoring_options.h"

namespace mh::model {
class LanguageModel;
}

namespace mh::data {

class Batches;        // batches.h
class Text;           // text.h
struct BatchOptions;  // batch_options.h

// Copies of a corpus share its tokens.
class Corpus {
 public:
  virtual ~Corpus() = default;
  // Returns the number of targets: tokens of a text, target tokens of sentence pairs, or examples.
  virtual int64_t num_targets() const = 0;
  // Returns the options with every default replaced by its value for this corpus and model. A text requires
  // options.sequence_length > 0. For pairs and examples, `sequence_length` becomes the length of the longest row, and
  // `batch` the number of rows of that length in a forward pass. Throws Error(usage) for options that exclude each
  // other, for options that the model or the corpus does not support, and for a sample of more blocks or rows than the
  // corpus has, unless sample.is_default_sample is set and the corpus has at least one. In a text, only full blocks
  // that follow a full context and memory are counted.
  virtual ScoringOptions resolve(const ScoringOptions& options, model::LanguageModel& model) const = 0;
  // Returns the mini-batches that score each row of the corpus, or of its sample (resolved.sample), exactly once.
  // `resolved`: options from resolve(). The corpus must outlive the mini-batches.
  virtual MiniBatches mini_batches(const ScoringOptions& resolved) const = 0;
  // Returns the batches for training. The file or memory that holds the tokens must outlive the batches.
  virtual std::unique_ptr<Batches> batches(const BatchOptions& options, int64_t seed) const = 0;
  // Returns this corpus if it is a text, otherwise null.
  virtual const Text* as_text() const { return nullptr; }
};

}  // namespace mh::data
