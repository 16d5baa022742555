// Batches of training. The rows of an update are a function of the update number and the seed, so a resumed run needs
// no state of the data loader. In a run on one shard, every epoch contains each target exactly once, except that an
// epoch of sentence streams omits the tokens left over at its end, and that an epoch of sampled documents is cut or
// filled up to the length of the first epoch (example_batches.cpp).
//
//   blocks    Text, as with sample-break-mode `none` of fairseq: the text is split into consecutive blocks of n
//             tokens, which are shuffled in each epoch by (seed, epoch). No state passes from block to block.
//   streams   Text, as in Transformer-XL: the text is split into B contiguous streams (class Streams), and each update
//             takes the next n tokens of every stream, so that the memory holds the preceding tokens. The last update
//             of an epoch takes the remaining tokens. Each epoch starts at the beginning of every stream with an empty
//             memory, as in the code of Transformer-XL.
//   sentences Each line of a text, with its end-of-line token, is a row whose first input is an end-of-line token, so
//             that no row has context from other lines. A line of more than n tokens is cut into rows of n tokens,
//             whose first input is the token before the row. Updates are formed and shuffled as for pairs
//             (sorted_batches.h).
//   sentence-streams
//             Lines of a text, as in Transformer-XL for LM1B: see sentence_streams.h.
//   examples  Rows of an encoder model, shuffled in each epoch by (seed, epoch).
//   pairs     Sentence pairs of similar length; an update takes as many pairs as fit into train.batch.tokens tokens
//             when all are padded to the longest source or target. Pairs of equal length are shuffled among batches,
//             and batches are shuffled, in each epoch by (seed, epoch) (sorted_batches.h).
//
// Several shards are mixed by the rules in mixed_batches.h.
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
#include "data/row_shares.h"
#include "data/text.h"

namespace mh::data {

class Batches {
 public:
  virtual ~Batches() = default;
  // A micro-batch: consecutive rows of an update that are processed by one forward pass.
  struct MicroBatch {
    int64_t first_row = 0, num_rows = 0;
    // Whether the rows belong to another process. This process then computes them without targets, so that all
    // processes run the same number of micro-batches (share_batches()).
    bool is_filler = false;
    bool operator==(const MicroBatch&) const = default;
  };
  // Returns the number of tokens of each row of update `update`, counted from 0. These numbers determine how the rows
  // are divided among processes.
  virtual std::vector<int64_t> row_costs(int64_t update) = 0;
  // Returns the micro-batches of the rows `rows` of an update, in the order of the rows.
  virtual std::vector<MicroBatch> micro_batches_of(int64_t update, const BatchRowRange& rows) = 0;
  // Returns the rows of an update that this process computes: all, or the share of a process (share_batches()).
  virtual BatchRowRange own_rows(int64_t update) { return {0, static_cast<int64_t>(row_costs(update).size())}; }
  // Returns the micro-batches of update `update` that this process computes, in the order of their rows.
  virtual std::vector<MicroBatch> micro_batches(int64_t update) { return micro_batches_of(update, own_rows(update)); }
  // Returns the input and targets of a micro-batch that micro_batches(update) returned.
  virtual Batch load(int64_t update, const MicroBatch& micro_batch) = 0;
  // Describes the rows of an update for error messages: "20 rows, of which the first starts at token 4096".
  virtual std::string describe_rows(int64_t update) = 0;
  // Returns whether row b of the update continues row b of the previous update, so that the Transformer-XL memory of
  // the previous update is used.
  virtual bool continues_streams(int64_t /*update*/) const { return false; }
  // Returns the fraction of the rows or updates that comes from each training shard, in the order of the shards; the
  // fractions sum to 1. Empty unless several shards are mixed (mixed_batches.h).
  const std::vector<double>& shard_shares() const { return shard_shares_; }
  // Returns the number of epochs of each training shard that the first `num_updates` updates contain, in the order of
  // the shards; empty unless several shards are mixed (mixed_batches.h). May run in another thread than the other
  // functions.
  virtual std::vector<double> shard_epochs(int64_t /*num_updates*/) { return {}; }
  // Returns the number of rows in an update of a text; the last update of an epoch may be smaller. 0 for other corpora.
  int64_t rows_per_update() const { return rows_per_update_; }
  // Returns the number of rows in a micro-batch of a text; the last micro-batch of an update may be smaller. 0 for
  // other corpora.
  int64_t rows_per_micro_batch() const { return rows_per_micro_batch_; }

  int64_t updates_per_epoch() const { return updates_per_epoch_; }
  // Returns the maximum number of tokens in an update, padding included.
  int64_t tokens_per_update() const { return tokens_per_update_; }
  // Converts a length of training to updates. Rounds a length in tokens up to whole updates; batches of examples throw
  // Error(usage) for a length in tokens.
  virtual int64_t to_updates(const Length& length) const = 0;

 protected:
  // Splits rows of a text into micro-batches of rows_per_micro_batch_ rows; the last may have fewer.
  std::vector<MicroBatch> split_rows(const BatchRowRange& rows) const;

  // Sets the numbers of rows per update and per micro-batch, and of tokens per update, of rows of equal width.
  void set_row_counts(const BatchOptions& options);

  // Copies the data members of this base class from `other`, for batches that wrap `other`.
  void copy_base_members(const Batches& other);

  int64_t rows_per_update_ = 0, rows_per_micro_batch_ = 0, updates_per_epoch_ = 0, tokens_per_update_ = 0;
  std::vector<double> shard_shares_;
};

// Returns epochs · updates_per_epoch. Throws Error(usage), which quotes `length`, if the product overflows.
int64_t epochs_to_updates(int64_t epochs, int64_t updates_per_epoch, const Length& length);
// Converts a length of any unit to updates; calls `tokens_to_updates` only for a length in tokens.
int64_t count_updates(const Length& length, int64_t updates_per_epoch,
                      const std::function<int64_t(int64_t num_tokens)>& tokens_to_updates);
// Converts a length of training to updates if updates differ in their number of targets: whole epochs of `num_targets`
// targets each, and the remainder by the mean number of targets of an update, rounded up.
int64_t mean_length_to_updates(const Length& length, int64_t updates_per_epoch, int64_t num_targets);
// Converts a length of training on a text of `num_tokens` tokens to updates. If `num_tokens` is 0 (unknown), a length
// in epochs gives 0.
int64_t length_to_updates(const Length& length, const BatchOptions& options, int64_t num_tokens);

// Converts a length of training on examples to updates. Throws Error(usage) for a length in tokens, since examples
// differ in length.
int64_t example_length_to_updates(const Length& length, int64_t updates_per_epoch);

// The rows of one update of a text or of a mixture of texts.
template <class RowType>
struct PaddedRows {
  std::vector<RowType> rows;
  int64_t width = 0;  // row length in tokens after padding; the same in all micro-batches of an update
  // Returns the cost of each row, for Batches::row_costs().
  std::vector<int64_t> costs() const { return std::vector<int64_t>(rows.size(), width); }
};

// Batches of a text: shuffled blocks or streams.
class TextBatches : public Batches {
 public:
  using UpdateRows = PaddedRows<Row>;
  virtual UpdateRows rows_of(int64_t update) = 0;
  std::vector<int64_t> row_costs(int64_t update) override;
  std::vector<MicroBatch> micro_batches_of(int64_t update, const BatchRowRange& rows) override;
  Batch load(int64_t update, const MicroBatch& micro_batch) override;
  std::string describe_rows(int64_t update) override;
  int64_t to_updates(const Length& length) const override {
    return length_to_updates(length, options_, text_.num_tokens);
  }

 protected:
  TextBatches(Text text, const BatchOptions& options);
  const Text text_;
  const BatchOptions options_;
};

// Returns the batches of a text with train.batch.order = blocks or streams. `options` must have passed
// BatchOptions::check(). Throws Error(usage) if there are more streams than tokens.
std::unique_ptr<TextBatches> make_batches(Text text, const BatchOptions& options, int64_t seed);

// Returns batches of a text with train.batch.order = sentences. `options` must have passed BatchOptions::check().
std::unique_ptr<Batches> make_sentence_batches(Text text, const BatchOptions& options, int64_t seed);

// Returns batches of sentence pairs of similar length. Throws Error(usage) if a source or target is longer than
// options.sequence_length.
std::unique_ptr<Batches> make_batches(Pairs pairs, const BatchOptions& options, int64_t seed);

// Estimated fixed cost of a micro-batch of examples, in tokens. The cost arises because each backward pass reads and
// writes the gradients of all weights. The total cost of a micro-batch is its number of tokens plus this constant.
constexpr int64_t kMicroBatchCost = 64;
// Returns batches of options.rows examples (options.tokens / options.sequence_length if options.rows is 0), sorted by
// length within an update and split into the micro-batches of lowest cost. Throws Error(input) if there are no
// examples; Batches::to_updates() throws Error(usage) for a length in tokens.
std::unique_ptr<Batches> make_batches(Examples examples, const BatchOptions& options, int64_t seed);

}  // namespace mh::data
