// Batches of training on several shards that are mixed by weight (data.weights). The shard of every row is a function
// of the update number, so a resumed run needs no state, and the rows do not depend on the number of processes.
//
//   blocks    Rows of a text are mixed. Row r of update u is draw u · rows_per_update + r of BlendedOrder
//             (blended_order.h). Draw n of a shard is block n of the shard's own shuffled epochs: block
//             n mod num_blocks of epoch n / num_blocks. Every update is full.
//   streams   The B streams of an update are divided among the shards by weight (Shares::divide()), and every shard has
//             its own streams for the whole run. A stream is a cycle: after its last token it continues, in the same
//             row, with its first token, so all rows are full and a Transformer-XL memory always precedes its row. In a
//             run on one shard, by contrast, all streams end together and start again with an empty memory.
//   pairs, examples, sentences
//             Rows of an update have similar lengths or a common random order, so whole updates are mixed: update u is
//             draw u of BlendedOrder, and draw n of a shard is update n of the shard's own batches.
//
// Shard 0 has the random numbers of a run on this shard alone; every other shard has its own seed (seed_of_shard()).
// An epoch of a mixture has as many rows (updates, for pairs, examples and sentences) as one epoch of all shards
// together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batches.h"
#include "data/blended_order.h"
#include "data/block_order.h"

namespace mh::data {

// Returns the seed of the data order of shard `shard`, counted from 0, in a run with seed `seed`; `seed` for shard 0.
int64_t seed_of_shard(int64_t seed, int64_t shard);

// A shard of a mixture.
struct WeightedCorpus {
  const Corpus* corpus = nullptr;  // must not be null; used only by mix_batches() itself
  std::string name;                // name of the shard in messages
  double weight = 1;               // above 0; the sum of the weights may be any number
};

// Returns the batches of several shards. All corpora must be texts, or all must be pairs or examples. `options` must
// have passed BatchOptions::check(). Throws Error(usage) for sentence-streams, for streams of which a shard would
// receive none, or which are shorter than a block, for a weight that is too small to be drawn, and the errors of
// Corpus::batches().
std::unique_ptr<Batches> mix_batches(const std::vector<WeightedCorpus>& shards, const BatchOptions& options,
                                     int64_t seed);

// Mixture of texts: rows of several texts in one update.
class MixedTextBatches : public Batches {
 public:
  struct ShardRow {
    size_t shard = 0;
    Row row;             // row of the text of `shard`
    Row continuation{};  // rest of a row whose stream starts again; length 0: none
  };
  using UpdateRows = PaddedRows<ShardRow>;
  virtual UpdateRows rows_of(int64_t update) = 0;
  std::vector<int64_t> row_costs(int64_t update) override;
  std::vector<MicroBatch> micro_batches_of(int64_t update, const BatchRowRange& rows) override;
  Batch load(int64_t update, const MicroBatch& micro_batch) override;
  std::string describe_rows(int64_t update) override;
  int64_t to_updates(const Length& length) const override;

 protected:
  MixedTextBatches(std::vector<Text> texts, const std::vector<double>& weights, const BatchOptions& options);
  // Sets the number of updates in an epoch. `rows_in_epoch`: number of rows of one epoch of all shards together.
  void set_epoch(int64_t rows_in_epoch);

  const std::vector<Text> texts_;
  const BatchOptions options_;

 private:
  // Returns the rows of an update. Remembers the rows of the last update, which several functions request.
  const UpdateRows& cached_rows(int64_t update);

  int64_t cached_update_ = -1;
  UpdateRows cached_rows_;
};

// Returns the batches of a mixture of texts; options.order selects the rule. `names`: names of the shards in messages.
std::unique_ptr<MixedTextBatches> mix_texts(std::vector<Text> texts, const std::vector<std::string>& names,
                                            const std::vector<double>& weights, const BatchOptions& options,
                                            int64_t seed);

// Returns a mixture of whole updates. `num_targets`: number of targets in an epoch of each shard.
std::unique_ptr<Batches> mix_updates(std::vector<std::unique_ptr<Batches>> shards,
                                     const std::vector<int64_t>& num_targets, const std::vector<double>& weights);

}  // namespace mh::data
