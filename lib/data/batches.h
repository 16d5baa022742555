// The rows of each update. They follow from the number of the update alone, and an epoch contains every target exactly
// once.
//
//   blocks   of a text, fairseq's `none`: the text in one row, split into blocks of n tokens, blocks shuffled in each
//            epoch by (seed, epoch), no state across blocks
//   streams  of a text, Transformer-XL: the text split into B contiguous streams in its own order (Streams); each
//   update
//            takes the next n tokens of each, so that a memory holds the tokens before them. The last update of an
//            epoch takes the remaining tokens. Each epoch begins at the start of every stream, with an empty memory, as
//            the published code does.
//   examples rows for an encoder with a head, shuffled in each epoch by (seed, epoch)
//   pairs    pairs of similar length, as many as fit when all are padded to the longest side; the pairs of one length
//   that
//            share a batch, and the order of batches, are shuffled in each epoch by (seed, epoch)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "data/batch_options.h"
#include "data/examples.h"
#include "data/pairs.h"
#include "data/text.h"

namespace mh::data {

class Batches {
 public:
  virtual ~Batches() = default;
  // A micro-batch: rows of an update that are in memory together.
  struct MicroBatch {
    int64_t first = 0, count = 0;  // range of the update's rows
  };
  // Returns the micro-batches of update `update` (from 0), in order.
  virtual std::vector<MicroBatch> micro_batches(int64_t update) = 0;
  virtual Batch load(int64_t update, const MicroBatch& part) = 0;
  // Describes the rows for messages: "20 rows, the first from token 4096".
  virtual std::string place(int64_t update) = 0;
  // Returns whether each row of the update continues its row of the update before, and thus its memory.
  virtual bool continues(int64_t /*update*/) const { return false; }
  // Return the rows of an update, and of each of its micro-batches but the last, if updates continue each other.
  int64_t rows_per_update() const { return rows_; }
  int64_t rows_per_micro_batch() const { return rows_per_micro_batch_; }

  int64_t updates_per_epoch() const { return updates_per_epoch_; }
  int64_t tokens_per_update() const { return tokens_; }  // maximum
  // Returns the number of updates in a length; epochs and tokens are rounded up.
  virtual int64_t updates(const Length& length) const = 0;

 protected:
  int64_t rows_ = 0, rows_per_micro_batch_ = 0, updates_per_epoch_ = 0, tokens_ = 0;
};

// Returns the number of updates in `epochs` epochs. Throws Error(usage) about `length` if it is too large.
int64_t updates_of(int64_t epochs, int64_t per_epoch, const Length& length);
// Returns the number of updates in a length of any unit; `of_tokens` converts a number of tokens.
int64_t count_updates(const Length& length, int64_t per_epoch, const std::function<int64_t(int64_t tokens)>& of_tokens);
// Returns the number of updates in a length of training on a text; 0 for a length in epochs if `tokens` is 0, unknown.
int64_t updates_in(const Length& length, const BatchOptions& options, int64_t tokens);

// Batches of a text.
class TextBatches : public Batches {
 public:
  struct Rows {
    std::vector<Row> rows;  // in order
    int64_t width = 0;      // tokens in a row; the same in all micro-batches of an update
  };
  virtual Rows rows_of(int64_t update) = 0;
  std::vector<MicroBatch> micro_batches(int64_t update) override;
  Batch load(int64_t update, const MicroBatch& part) override;
  std::string place(int64_t update) override;
  int64_t updates(const Length& length) const override { return updates_in(length, options_, text_.tokens); }

 protected:
  TextBatches(Text text, const BatchOptions& options, int64_t seed);
  const Text text_;
  const BatchOptions options_;
  const int64_t seed_;
};

// Throws Error(usage) for fewer tokens in an update than in a block, and for more streams than the text has tokens.
std::unique_ptr<TextBatches> make_batches(Text text, const BatchOptions& options, int64_t seed);

// Throws Error(usage) for a pair with a side longer than options.block.
std::unique_ptr<Batches> make_batches(Pairs pairs, const BatchOptions& options, int64_t seed);

// Fixed cost of a micro-batch of examples, in tokens: the gradients of all weights.
constexpr int64_t kPartTokens = 64;
// Returns batches of options.rows examples, sorted by length within an update, in the cheapest micro-batches. Throws
// Error(input) without examples, Error(usage) for lengths in tokens.
std::unique_ptr<Batches> make_batches(Examples examples, const BatchOptions& options, int64_t seed);

}  // namespace mh::data
