// Rows of BERT's pre-training (Devlin et al. 2019, https://arxiv.org/abs/1810.04805, and its create_pretraining_data):
// two segments, where the second follows the first in half of the rows, and masked words. Rows and masks are sampled
// again in every epoch; create_pretraining_data writes several copies of the corpus with different masks instead.
//
// Sentences of a document are collected until they fill a row (some rows are sampled shorter). They are split after a
// random sentence. The second segment is the remaining sentences, or, with probability 1/2 and always if there is only
// one sentence, consecutive sentences of another document from a random sentence on; the remaining sentences then start
// the next row. Tokens are removed from the longer segment, at random from its start or end, until both fit.
//
// A fraction of the row's tokens is predicted, rounded half to even, at least 1, never [CLS] or [SEP]. Whole-word
// masking takes only words that still fit into that number, so there may be none. 80% of the predicted tokens are
// replaced by [MASK], 10% are unchanged, and 10% become a random entry of the vocabulary, special entries included.
//
// Differences from create_pretraining_data: each row is sampled short independently (there: all rows of a document
// together); the other document always differs (there: it may be the same after ten attempts); a word whose beginning
// was truncated counts as a word (there: it belongs to the previous word).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/fields.h"
#include "base/random.h"
#include "text/records/example.h"
#include "text/records/sequences.h"
#include "text/wordpiece.h"

namespace mh::text {

struct PretrainingOptions {
  int64_t length = 128;  // maximum tokens of a row; set by train.batch.block
  double short_share = 0.1;
  double mask_share = 0.15;
  int64_t max_predictions = 20;
  int64_t long_predictions = 0;
  bool whole_word = false;
  bool next_sentence = true;  // set by model.bert.next_sentence
  void describe(Fields& f) {
    f.field("short_share", short_share,
            "fraction of rows that are sampled shorter, with at least 2 tokens besides the special ones",
            between(0, 1));
    f.field("mask_share", mask_share, "fraction of a row's tokens that are predicted, at least one", between(0, 1));
    f.field("max_predictions", max_predictions, "maximum number of predicted tokens in a row", at_least(1));
    f.field("long_predictions", long_predictions,
            "maximum number of predicted tokens in a row from train.batch.long_from on; 0: max_predictions, at most "
            "train.batch.block, times "
            "train.batch.long_block / train.batch.block, rounded up",
            at_least(0));
    f.field("whole_word", whole_word, "whole-word masking: whether all pieces of a word are predicted or none");
  }
};

// The documents of a shard as a source of rows. Thread-safe. The source of `runs` must outlive this object.
class Pretraining {
 public:
  // `runs` are the sequences of a shard of documents. Throws Error(usage) for a single document with next-sentence
  // prediction, and Error(input) for no document or 2^32 or more sentences.
  Pretraining(Sequences runs, const WordPieceTokenizer& tokenizer, const PretrainingOptions& options, uint64_t seed);

  // Sentences [begin, end).
  struct Sentences {
    uint32_t begin = 0, end = 0;
    bool operator==(const Sentences&) const = default;
  };
  struct Row {
    Sentences first, second;  // `second` is empty if the row has one segment
    bool is_next = false;
    bool operator==(const Row&) const = default;
  };

  // The rows of an epoch, in the order of the documents; they depend only on the seed and the number of the epoch.
  class Epoch {
   public:
    int64_t size() const { return static_cast<int64_t>(rows_.size()); }
    const Row& row(int64_t i) const { return rows_[static_cast<size_t>(i)]; }
    int64_t length(int64_t i) const;  // tokens of a row
    Example make(int64_t i) const;    // the row with targets for a head that predicts words

   private:
    friend class Pretraining;
    Epoch(const Pretraining* of, uint32_t number) : of_(of), number_(number) {}
    const Pretraining* of_;
    uint32_t number_;
    std::vector<Row> rows_;
  };
  Epoch plan(uint32_t epoch) const;  // this object must outlive the result

  int64_t documents() const { return static_cast<int64_t>(documents_.size()); }
  Sentences document(int64_t i) const { return documents_[static_cast<size_t>(i)]; }
  int64_t tokens() const;  // tokens of all sentences

 private:
  int64_t special() const { return options_.next_sentence ? 3 : 2; }
  // Returns the maximum number of tokens of a row without the special ones.
  int64_t room() const { return options_.length - special(); }
  int64_t tokens_in(Sentences s) const;
  void plan_document(size_t document, uint32_t epoch, std::vector<Row>& rows) const;
  Sentences random_second(size_t document, int64_t max_tokens, RandomSequence& random) const;
  void hide(Example& row, RandomSequence& random) const;
  std::vector<std::vector<int32_t>> candidates(const Example& row) const;

  Sequences runs_;
  PretrainingOptions options_;
  WordPieceTokenizer::Special entries_;
  std::vector<bool> continues_word_;  // for each token: whether it continues a word (##)
  std::vector<Sentences> documents_;
  RandomStream rows_, segments_, masks_;
};

// Returns the weight of a next-sentence target relative to a word in an update with these rows, since BERT's loss is
// the mean over the words plus the mean over the rows.
double next_sentence_weight(std::span<const Example> update);

}  // namespace mh::text
