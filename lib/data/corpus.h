// The corpus that a model is trained or scored on: a text, pairs of sentences, or examples.
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
struct BatchOptions;  // batch_options.h

// Copies share the records.
class Corpus {
 public:
  virtual ~Corpus() = default;
  // Returns the number of tokens of a text, of tokens of all targets of pairs, or of rows of examples.
  virtual int64_t targets() const = 0;
  // Returns the options with all defaults of this corpus and a model filled in; for a text, block must be set. For
  // independent rows, block becomes the longest side, and batch the number of rows in a forward pass. Throws
  // Error(usage) for options that exclude each other or that the model does not have, and for a sample larger than the
  // corpus.
  virtual ScoringOptions resolve(const ScoringOptions& options, model::LanguageModel& model) const = 0;
  // Returns the mini-batches of one pass over the corpus, by resolved options. The corpus must outlive them.
  virtual MiniBatches mini_batches(const ScoringOptions& resolved) const = 0;
  // Returns the batches of training. The source of the records must outlive them.
  virtual std::unique_ptr<Batches> batches(const BatchOptions& options, int64_t seed) const = 0;
};

}  // namespace mh::data
