#include "data/sentence_streams.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"

namespace mh::data {

SentenceStreams::SentenceStreams(std::vector<int64_t> sentence_begins, int64_t num_rows, int64_t sequence_length,
                                 int64_t seed)
    : sentence_begins_(std::move(sentence_begins)),
      sequence_length_(sequence_length),
      seed_(seed),
      order_(sentence_begins_.size() - 1),
      rests_(static_cast<size_t>(num_rows)),
      rows_(static_cast<size_t>(num_rows)) {}

const std::vector<SentenceStreams::Parts>& SentenceStreams::rows(int64_t epoch, int64_t step) {
  if (epoch != epoch_ || step < num_steps_ - 1) begin_epoch(epoch);
  while (num_steps_ <= step) fill_rows();
  return rows_;
}

void SentenceStreams::begin_epoch(int64_t epoch) {
  std::iota(order_.begin(), order_.end(), 0);
  RandomSequence random(RandomStream(static_cast<uint64_t>(seed_), "batches"), static_cast<uint32_t>(epoch));
  random.shuffle(order_);
  epoch_ = epoch;
  num_steps_ = 0;
  next_sentence_ = 0;
  std::fill(rests_.begin(), rests_.end(), Row());
}

void SentenceStreams::fill_rows() {
  for (size_t r = 0; r < rows_.size(); ++r) {
    Row& rest = rests_[r];
    rows_[r].clear();
    int64_t num_missing = sequence_length_;
    while (num_missing > 0) {
      if (rest.length == 0) {
        if (next_sentence_ == order_.size()) break;
        const auto sentence = static_cast<size_t>(order_[next_sentence_++]);
        rest = {sentence_begins_[sentence], sentence_begins_[sentence + 1] - sentence_begins_[sentence], 0};
      }
      const int64_t length = std::min(num_missing, rest.length);
      rows_[r].push_back({rest.offset, length, 0});
      rest.offset += length;
      rest.length -= length;
      num_missing -= length;
    }
  }
  ++num_steps_;
}

namespace {

class SentenceStreamBatches : public Batches {
 public:
  SentenceStreamBatches(Text text, const BatchOptions& o, int64_t seed)
      : text_(std::move(text)),
        options_(o),
        // A sentence has at most as many tokens as the text, so no sentence is cut.
        streams_(sentence_row_begins(text_, text_.num_tokens), o.tokens / o.sequence_length, o.sequence_length, seed) {
    set_row_counts(o);
    updates_per_epoch_ = length_to_updates({1, Length::Unit::epochs}, o, text_.num_tokens);
    if (streams_.num_sentences() < rows_per_update_)
      refuse_usage("train.batch.tokens",
                   str("at most ", count_of(streams_.num_sentences(), "stream"), ", the number of lines in the text"),
                   str(count_of(rows_per_update_, "stream"), " (train.batch.tokens / train.batch.sequence_length)"),
                   "lower train.batch.tokens");
  }

  std::vector<int64_t> row_costs(int64_t /*update*/) override {
    return std::vector<int64_t>(static_cast<size_t>(rows_per_update_), options_.sequence_length);
  }
  std::vector<MicroBatch> micro_batches_of(int64_t /*update*/, const BatchRowRange& rows) override {
    return split_rows(rows);
  }

  Batch load(int64_t update, const MicroBatch& micro_batch) override {
    const int64_t width = options_.sequence_length;
    const auto& rows = rows_of(update);
    // The batch begins as padding only; the loop copies the parts of each row over it.
    Batch batch = load_rows(text_, std::vector<Row>(static_cast<size_t>(micro_batch.num_rows)), width);
    auto* input_data = batch.input.tokens.mutable_data_ptr<int64_t>();
    auto* target_data = batch.targets.mutable_data_ptr<int64_t>();
    auto* length_data = batch.input.lengths.decoder.mutable_data_ptr<int64_t>();
    std::vector<int32_t> tokens(static_cast<size_t>(width) + 1);
    for (int64_t r = 0; r < micro_batch.num_rows; ++r)
      for (const Row& part : rows[static_cast<size_t>(micro_batch.first_row + r)]) {
        read_row(text_, part, tokens);
        const int64_t position = r * width + length_data[r];
        std::copy_n(tokens.begin(), part.length, input_data + position);
        std::copy_n(tokens.begin() + 1, part.length, target_data + position);
        length_data[r] += part.length;
      }
    return batch;
  }

  std::string describe_rows(int64_t update) override {
    const auto& rows = rows_of(update);
    const auto first = std::find_if(rows.begin(), rows.end(), [](const auto& parts) { return !parts.empty(); });
    return str(count_of(rows.size(), "row"), ", of which the first starts at token ",
               first != rows.end() ? (*first)[0].offset : 0);
  }
  bool continues_streams(int64_t update) const override { return update % updates_per_epoch_ != 0; }
  int64_t to_updates(const Length& length) const override {
    return length_to_updates(length, options_, text_.num_tokens);
  }

 private:
  const std::vector<SentenceStreams::Parts>& rows_of(int64_t update) {
    return streams_.rows(update / updates_per_epoch_, update % updates_per_epoch_);
  }

  const Text text_;
  const BatchOptions options_;
  SentenceStreams streams_;
};

}  // namespace

std::unique_ptr<Batches> make_sentence_stream_batches(Text text, const BatchOptions& options, int64_t seed) {
  return std::make_unique<SentenceStreamBatches>(std::move(text), options, seed);
}

}  // namespace mh::data
