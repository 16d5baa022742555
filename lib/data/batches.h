// Which rows an update takes. Where a batch stands follows from its number alone, and every target is one exactly once
// an epoch.
//
//   blocks   of a text, fairseq's `none`: the text in one row, cut into blocks of n tokens, blocks shuffled anew each
//            epoch by (seed, epoch), no state across blocks
//   streams  of a text, Transformer-XL: the text cut into B contiguous streams in its own order (Streams), of
//            which each update takes the next n tokens, so that a memory of the earlier ones is true. The last update
//            of an epoch takes what is left. Each epoch begins at the start of every stream, with an empty memory, as
//            the published code does.
//   examples rows for an encoder with a head, in an order drawn anew each epoch by (seed, epoch)
//   pairs    pairs of like length together, as many as the longest side of any, filled up to it, leaves room for;
//            which pairs of one length meet, and the order of the batches, are drawn anew each epoch by (seed, epoch)
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
  // Rows of an update that are in memory together.
  struct MicroBatch {
    int64_t first = 0, count = 0;  // of the update's rows
  };
  // Those of update `update` (from 0), in order.
  virtual std::vector<MicroBatch> parts(int64_t update) = 0;
  virtual Batch load(int64_t update, const MicroBatch& part) = 0;
  // Where its rows stand, for messages: "20 rows, the first from token 4096".
  virtual std::string place(int64_t update) = 0;
  // Whether each row of the update goes on where it ended in the update before, and takes its memory over.
  virtual bool goes_on(int64_t /*update*/) const { return false; }
  // Of updates that go on: all of an update, and those of all parts but the last.
  int64_t rows_per_update() const { return rows_; }
  int64_t rows_per_micro_batch() const { return rows_per_micro_batch_; }

  int64_t updates_per_epoch() const { return updates_per_epoch_; }
  int64_t tokens_per_update() const { return tokens_; }  // at most
  // Number of updates in a length; epochs and tokens are rounded up.
  virtual int64_t updates(const Length& length) const = 0;

 protected:
  int64_t rows_ = 0, rows_per_micro_batch_ = 0, updates_per_epoch_ = 0, tokens_ = 0;
};

// Number of updates in so many epochs of `length`. Error(usage) where that is too large a number.
int64_t updates_of(int64_t epochs, int64_t per_epoch, const Length& length);
// Returns the number of updates in a length of any unit; `of_tokens` returns those in a number of tokens.
int64_t count_updates(const Length& length, int64_t per_epoch, const std::function<int64_t(int64_t tokens)>& of_tokens);
// Number of updates in a length of training on a text; epochs of an unknown one (tokens 0) are 0.
int64_t updates_in(const Length& length, const BatchOptions& options, int64_t tokens);

// Of a text.
class TextBatches : public Batches {
 public:
  struct Rows {
    std::vector<Row> rows;  // in order
    int64_t width = 0;      // tokens in a row; the same for every part of an update
  };
  virtual Rows rows_of(int64_t update) = 0;
  std::vector<MicroBatch> parts(int64_t update) override;
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

// Cost of a micro-batch of examples beside its tokens, in tokens: gradients of all weights once more.
constexpr int64_t kPartTokens = 64;
// Takes options.rows examples an update, the longest first, in the micro-batches that cost least. Error(input) for no
// examples, Error(usage) for lengths in tokens.
std::unique_ptr<Batches> make_batches(Examples examples, const BatchOptions& options, int64_t seed);

}  // namespace mh::data
