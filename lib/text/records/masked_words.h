// The records of the task "masked-words", which are the sentences of documents without special tokens, and the input
// sequences that are made from them.
//
// Input sequences of BERT's pre-training (Devlin et al. 2019, https://arxiv.org/abs/1810.04805, and BERT's program
// create_pretraining_data): two segments, of which the second follows the first in about half of the input sequences,
// or one segment (next_sentence=false), with masked words. Segments and masks are sampled separately for each epoch;
// create_pretraining_data instead writes several copies of the corpus with different masks.
//
// Sentences of a document are collected until they fill an input sequence (some input sequences get a random shorter
// length). The collected sentences are split after a random sentence. The second segment consists of the sentences
// after the split, or, with probability 1/2 and always if only one sentence was collected, of consecutive sentences of
// another document from a random sentence on; the sentences after the split then start the next input sequence. Tokens
// are removed from the longer segment, at random from its start or its end, until both segments fit.
//
// Of an input sequence of n tokens, at most k = min(max_predictions, max(1, mask_fraction · n)) are predicted, where
// the product is rounded half to even; [CLS] and [SEP] are never predicted. The tokens, or with whole-word masking the
// words, are taken in random order; a word that would exceed k predicted tokens is skipped, so that an input sequence
// may have no predicted token. Each predicted token is replaced by [MASK] with a probability of 80%, is unchanged with
// 10%, and becomes a random entry of the vocabulary, special entries included, with 10%.
//
// Differences from create_pretraining_data: the shorter length is sampled for each input sequence, not once for all
// input sequences of a document; the second document always differs from the first, whereas create_pretraining_data
// gives up after ten attempts; a word whose beginning was truncated counts as a word, not as part of the previous word.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/fields.h"
#include "base/random.h"
#include "io/shard.h"
#include "text/encoder_vocabulary.h"
#include "text/records/example.h"
#include "text/records/sequences.h"
#include "text/text_batches.h"
#include "text/tokenizer.h"

namespace mh::text {

constexpr const char* kDocumentsKind = "documents";  // the kind of the records (io/record_kind.h)

struct DocumentSummary {
  uint64_t num_documents = 0;
  uint64_t num_sentences = 0;
  uint64_t num_tokens = 0;
  uint64_t num_unknown = 0;  // number of unknown tokens among `num_tokens`
  // Number of skipped lines that have text but no token, such as lines of control characters.
  uint64_t num_lines_without_tokens = 0;
  uint64_t num_bytes = 0;  // size of the text
  double seconds = 0;
};

// Encodes each line as a sentence; a line of white space or the end of a file ends a document. `text` must return whole
// lines (TextBatches without `find_split`). Throws Error(input) for text that is not UTF-8 or contains a NUL byte.
DocumentSummary encode_documents(TextBatches& text, const Tokenizer& tokenizer, int num_threads,
                                 io::ShardWriter& writer);

struct PretrainingOptions {
  int64_t max_length = 128;  // maximum number of tokens of an input sequence; set by train.batch.sequence_length
  double short_fraction = 0.1;
  double mask_fraction = 0.15;
  int64_t max_predictions = 20;
  int64_t max_long_predictions = 0;
  bool whole_word = false;
  bool next_sentence = true;  // set by model.bert.next_sentence
  void describe(Fields& f) {
    f.field(
        "short_fraction", short_fraction,
        "fraction of input sequences that get a random shorter length, of at least 2 tokens besides the special tokens",
        between(0, 1));
    f.field("mask_fraction", mask_fraction,
            "fraction of the tokens of an input sequence that are predicted; at least one token is predicted",
            between(0, 1));
    f.field("max_predictions", max_predictions, "maximum number of predicted tokens in an input sequence", at_least(1));
    f.field("long_predictions", max_long_predictions,
            "maximum number of predicted tokens in an input sequence from update train.batch.long_from on; 0: "
            "min(mlm.max_predictions, train.batch.sequence_length) * train.batch.long_sequence_length / "
            "train.batch.sequence_length, rounded up",
            at_least(0));
    f.field("whole_word", whole_word, "mask whole words: predict the pieces of a word all together or not at all");
  }
};

// Samples input sequences from the documents of a shard. Thread-safe. The source of `sequences` must outlive this
// object.
class PretrainingExamples {
 public:
  // `sequences` are the token sequences of a shard of documents. Throws Error(usage) if `options.max_length` leaves no
  // room for a token of each segment, and if next-sentence prediction has only one document; throws Error(input) for a
  // vocabulary without the tokens of an encoder, and for a shard without documents, with an empty document, or with
  // 2^32 or more sequences.
  PretrainingExamples(Sequences sequences, const Tokenizer& tokenizer, const PretrainingOptions& options,
                      uint64_t seed);

  // The range [begin, end) of indices of token sequences in the shard: consecutive sentences of a document.
  struct SentenceRange {
    uint32_t begin = 0, end = 0;
    bool operator==(const SentenceRange&) const = default;
  };
  // The one or two segments of an input sequence.
  struct SegmentPair {
    SentenceRange first, second;    // `second` is empty if the input sequence has one segment
    bool is_next_sentence = false;  // whether `second` follows `first` in the document
    bool operator==(const SegmentPair&) const = default;
  };

  // The input sequences of an epoch, in the order of the documents. The same seed and epoch number give the same
  // sequences.
  class Epoch {
   public:
    int64_t size() const { return static_cast<int64_t>(segment_pairs_.size()); }
    const SegmentPair& segment_pair(int64_t i) const { return segment_pairs_[static_cast<size_t>(i)]; }
    int64_t length(int64_t i) const;  // number of tokens of input sequence i
    Example make(int64_t i) const;    // input sequence i, masked, with its targets
    // Returns the number of predicted tokens of make(i), without masking the input sequence. Reads its tokens only with
    // whole-word masking, where the number depends on the words.
    int64_t count_predicted_tokens(int64_t i) const;
    // Returns the weight of a next-sentence target relative to a predicted word in the loss of an update whose batch
    // has the input sequences `update_rows`; 1 without next-sentence prediction. BERT's loss is the mean over the
    // predicted words plus the mean over the input sequences.
    double next_sentence_weight(std::span<const int64_t> update_rows) const;

   private:
    friend class PretrainingExamples;
    Epoch(const PretrainingExamples* pretraining, uint32_t number) : pretraining_(pretraining), epoch_(number) {}
    Example make_unmasked(int64_t i) const;  // input sequence i, of which no token is masked or a target
    RandomSequence mask_random(int64_t i) const;
    const PretrainingExamples* pretraining_;
    uint32_t epoch_;
    std::vector<SegmentPair> segment_pairs_;
  };
  // Samples the segments of an epoch; this object must outlive the result.
  Epoch plan_epoch(uint32_t epoch) const;

  int64_t num_documents() const { return static_cast<int64_t>(documents_.size()); }
  SentenceRange document(int64_t i) const { return documents_[static_cast<size_t>(i)]; }
  int64_t num_tokens() const;  // number of tokens of all sentences

 private:
  int64_t num_special_tokens() const { return special_tokens_.num_special_tokens(options_.next_sentence ? 2 : 1); }
  // Returns the number of separators at the end of the first segment.
  int64_t num_first_separators() const { return options_.next_sentence ? special_tokens_.num_pair_separators : 1; }
  // Returns the maximum number of tokens of an input sequence, special tokens excluded.
  int64_t max_text_tokens() const { return options_.max_length - num_special_tokens(); }
  int64_t count_tokens(SentenceRange s) const;
  void plan_document(size_t document_index, uint32_t epoch, std::vector<SegmentPair>& segment_pairs) const;
  SentenceRange sample_second_segment(size_t document_index, int64_t max_tokens, RandomSequence& random) const;
  // Returns the maximum number of predicted tokens of an input sequence of `length` tokens.
  int64_t max_predicted_tokens(int64_t length) const;
  // Returns the units of masking_units() whose tokens are predicted, in random order.
  std::vector<std::vector<int32_t>> sample_masked_units(const Example& example, RandomSequence& random) const;
  void mask_tokens(Example& example, RandomSequence& random) const;
  // Returns the units of masking as lists of positions in `example`: single tokens, or, with whole-word masking, all
  // pieces of a word.
  std::vector<std::vector<int32_t>> masking_units(const Example& example) const;

  Sequences sequences_;
  PretrainingOptions options_;
  EncoderTokens special_tokens_;
  std::vector<bool> continues_word_;  // for each vocabulary entry, whether it continues a word
  std::vector<SentenceRange> documents_;
  RandomStream row_stream_, segment_stream_, mask_stream_;
};

}  // namespace mh::text
