// Batches of the sentences of a text, one sentence a row (BatchOrder::sentences).
#include "base/error.h"
#include "base/text.h"
#include "data/sorted_batches.h"

namespace mh::data {

namespace {

class SentenceBatches : public Batches {
 public:
  SentenceBatches(Text text, const BatchOptions& o, int64_t seed)
      : text_(std::move(text)),
        begins_(sentence_row_begins(text_, o.sequence_length)),
        sorted_batches_(
            static_cast<int64_t>(begins_.size()) - 1,
            [this](int64_t row) { return std::pair(length(row), int64_t{0}); }, o, seed, "sentences") {
    updates_per_epoch_ = sorted_batches_.updates_per_epoch();
    tokens_per_update_ = o.tokens;
  }

  std::vector<int64_t> row_costs(int64_t update) override {
    return std::vector<int64_t>(static_cast<size_t>(sorted_batches_.num_rows(update)), sorted_batches_.width(update));
  }

  std::vector<MicroBatch> micro_batches_of(int64_t update, const BatchRowRange& rows) override {
    return sorted_batches_.micro_batches_of(update, rows);
  }

  Batch load(int64_t update, const MicroBatch& micro_batch) override {
    std::vector<Row> rows;
    for (int64_t i = 0; i < micro_batch.num_rows; ++i) {
      const int64_t row = sorted_batches_.row(update, micro_batch.first_row + i);
      rows.push_back({begin(row), length(row), 0});
    }
    return load_rows(text_, rows, sorted_batches_.width(update));
  }

  std::string describe_rows(int64_t update) override {
    return str(count_of(sorted_batches_.num_rows(update), "sentence"), ", of which the first starts at token ",
               begin(sorted_batches_.row(update, 0)));
  }

  int64_t to_updates(const Length& length) const override {
    return mean_length_to_updates(length, updates_per_epoch_, text_.num_tokens);
  }

 private:
  int64_t begin(int64_t row) const { return begins_[static_cast<size_t>(row)]; }
  int64_t length(int64_t row) const { return begin(row + 1) - begin(row); }

  const Text text_;
  const std::vector<int64_t> begins_;  // first token of each row, then the number of tokens of the text
  SortedBatches sorted_batches_;
};

}  // namespace

std::unique_ptr<Batches> make_sentence_batches(Text text, const BatchOptions& options, int64_t seed) {
  return std::make_unique<SentenceBatches>(std::move(text), options, seed);
}

}  // namespace mh::data
