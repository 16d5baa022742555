// Turns the examples of a shard into input sequences for BERT with a classification or regression layer.
#pragma once

#include <cstdint>
#include <utility>

#include "text/encoder_vocabulary.h"
#include "text/records/classification/examples.h"
#include "text/records/example.h"
#include "text/records/sequences.h"

namespace mh::text {

// Returns the lengths to which two sentences of `first_length` and `second_length` tokens are truncated so that both
// have at most `max_tokens` tokens together. Truncates the longer sentence; if that is not enough, each sentence gets
// half of `max_tokens`, and an odd token goes to the longer sentence, or to the second one if both are equally long.
// This is longest_first of Hugging Face tokenizers; BERT's own code gives an odd token to the first sentence.
std::pair<int64_t, int64_t> truncate_lengths(int64_t first_length, int64_t second_length, int64_t max_tokens);

// The examples of a shard as a list of input sequences. Thread-safe. The source of `sequences` must outlive this
// object.
class ClassificationExamples {
 public:
  // `sequences` are the token sequences of a shard of examples of `task`: first text, second text and label of each
  // example. `max_length` is the maximum number of tokens of an input sequence. Throws Error(usage) if `max_length`
  // leaves no room for text, and Error(input) for a vocabulary without the tokens of an encoder.
  ClassificationExamples(Sequences sequences, ExampleTask task, const Tokenizer& tokenizer, int64_t max_length);
  int64_t size() const { return static_cast<int64_t>(sequences_.ends.size() / 3); }
  int64_t length(int64_t i) const;  // number of tokens of input sequence i
  // Returns input sequence i; for a task of two sentences it has two segments, even if the second text is empty.
  Example make(int64_t i) const;
  int64_t num_truncated() const { return num_truncated_; }    // number of examples longer than `max_length` tokens
  int64_t num_unlabelled() const { return num_unlabelled_; }  // number of examples without a label
  const ExampleTask& task() const { return task_; }

 private:
  std::pair<int64_t, int64_t> truncated_lengths(int64_t i) const;
  int64_t num_special_tokens() const { return special_tokens_.num_special_tokens(task_.num_sentences); }

  Sequences sequences_;
  ExampleTask task_;
  EncoderTokens special_tokens_;
  int64_t max_length_;
  int64_t num_truncated_ = 0, num_unlabelled_ = 0;
};

}  // namespace mh::text
