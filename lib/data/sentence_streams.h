// The sentences of a text in the order in which training with train.batch.order = sentence-streams reads them: the
// order of the code of Transformer-XL for LM1B. A sentence ends with an end-of-line token, or with the text. In each
// epoch all sentences are shuffled by (seed, epoch) into one queue. Every update fills row 0, then row 1, …, with n
// tokens: the remaining tokens of the sentence in which this row ended in the previous update, then the next sentences
// of the queue. The memory of a row thus holds the preceding tokens.
//
// An epoch has max(1, ⌊N / (B n)⌋) updates (N tokens, B rows of n tokens), whatever the shuffled order. In its last
// updates the queue may be empty; a row is then shorter than n tokens, and padded. The code of Transformer-XL reads the
// files of LM1B one after another, in shuffled order, shuffles the sentences within a file, and drops the last updates
// of each file, those with a row of fewer than n tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/batches.h"

namespace mh::data {

class SentenceStreams {
 public:
  using Parts = std::vector<Row>;  // consecutive parts of a row, each from one sentence; no parts: an empty row

  // `sentence_begins`: first token of each sentence, then the number of tokens of the text (sentence_row_begins()).
  SentenceStreams(std::vector<int64_t> sentence_begins, int64_t num_rows, int64_t sequence_length, int64_t seed);
  int64_t num_sentences() const { return static_cast<int64_t>(order_.size()); }
  // Returns the rows of update `step`, counted from 0, of an epoch. The reference is valid until the next call. Takes
  // time proportional to the number of updates since the last call or, for an earlier update, since the start of the
  // epoch.
  const std::vector<Parts>& rows(int64_t epoch, int64_t step);

 private:
  void begin_epoch(int64_t epoch);
  void fill_rows();

  const std::vector<int64_t> sentence_begins_;
  const int64_t sequence_length_, seed_;
  int64_t epoch_ = -1;          // epoch of order_; -1: none
  int64_t num_steps_ = 0;       // number of updates of the epoch that fill_rows() has filled
  std::vector<int64_t> order_;  // indices of the sentences in the shuffled order of epoch_
  size_t next_sentence_ = 0;    // index in order_ of the next sentence of the queue
  std::vector<Row> rests_;      // tokens of each row's current sentence that no update has read yet
  std::vector<Parts> rows_;     // rows of update num_steps_ - 1
};

// Returns the batches of a text with train.batch.order = sentence-streams. `options` must have passed
// BatchOptions::check(). Throws Error(usage) if there are more rows than sentences.
std::unique_ptr<Batches> make_sentence_stream_batches(Text text, const BatchOptions& options, int64_t seed);

}  // namespace mh::data
