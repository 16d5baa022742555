// Options of the batches of training: the configuration section [train.batch].
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/fields.h"

namespace mh::data {

enum class BatchOrder { blocks, streams, sentences, sentence_streams };

// Returns each value of BatchOrder with its name, in the order of BatchOrder.
inline const std::vector<std::pair<BatchOrder, std::string>>& batch_order_names() {
  static const std::vector<std::pair<BatchOrder, std::string>> names{
      {BatchOrder::blocks, "blocks"},
      {BatchOrder::streams, "streams"},
      {BatchOrder::sentences, "sentences"},
      {BatchOrder::sentence_streams, "sentence-streams"}};
  return names;
}

inline const std::string& name_of(BatchOrder order) { return batch_order_names()[static_cast<size_t>(order)].second; }

struct BatchOptions {
  BatchOrder order = BatchOrder::blocks;
  int64_t sequence_length = 512;
  int64_t tokens = 4096;
  int64_t rows = 0;
  int64_t micro_tokens = 0;
  int64_t bucket_updates = 1;
  int64_t long_sequence_length = 0;
  Length long_from{0, Length::Unit::updates};
  void check() const;
  void describe(Fields& f) {
    f.choice(
        "order", order, batch_order_names(),
        "order of the training rows; blocks: shuffled blocks of a text, or shuffled batches of sentence pairs of "
        "similar length; streams: parallel streams in the order of the text; sentences: each line of a text in a row "
        "of its own, without context, in shuffled batches of lines of similar length; sentence-streams: parallel "
        "streams of the lines of a text in shuffled order; models with a memory require streams or sentence-streams");
    f.field(
        "sequence_length", sequence_length,
        "sequence length in tokens; for sentence pairs, maximum length of the source and maximum length of the target",
        between(1, 1 << 20));
    f.field("tokens", tokens, "maximum number of tokens in an update, padding included", between(1, 1 << 30));
    f.field("rows", rows,
            "number of rows in an update, for a model with a task head (model.bert.head); 0: train.batch.tokens / "
            "train.batch.sequence_length",
            between(0, 1 << 24));
    f.field("micro_tokens", micro_tokens,
            "maximum number of tokens in a micro-batch, padding included; 0: no gradient accumulation",
            between(0, 1 << 30))
        .changeable();
    f.field("bucket_updates", bucket_updates,
            "length bucketing for a model with a task head: number of updates whose rows are sorted by length "
            "together; 1: no bucketing",
            between(1, 1 << 16));
    f.field(
        "long_sequence_length", long_sequence_length,
        "sequence length in tokens in the second phase of training, such as the 512 tokens of BERT's pretraining; only "
        "for a model with a task head; 0: no second phase",
        between(0, 1 << 20));
    f.field("long_from", long_from,
            "start of the second phase of training, in which rows have train.batch.long_sequence_length tokens");
  }
};

}  // namespace mh::data
