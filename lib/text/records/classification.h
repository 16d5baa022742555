// The records of the task "classification", which are one or two texts and a label, a class or a number; their task
// with its labels and metrics (the header's `task`, see mh-shard(5)); their encoding from tab-separated files; and the
// input sequences for BERT that are made of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/shard.h"
#include "text/encoder_vocabulary.h"
#include "text/records/example.h"
#include "text/records/sequences.h"
#include "text/records/tsv.h"
#include "text/text_batches.h"
#include "text/tokenizer.h"

namespace mh::text {

constexpr const char* kExamplesKind = "examples";  // the kind of the records (io/record_kind.h)

// A task and its labels: classes, or a number in [min_label, max_label] with min_label >= 0, stored in thousandths.
struct ExampleTask {
  std::string name;
  int64_t num_sentences = 1;        // sentences per example: 1 or 2
  std::vector<std::string> labels;  // names of the classes; empty: the label is a number
  double min_label = 0, max_label = 0;
  std::vector<std::string> metrics;  // classes: accuracy, f1, matthews; numbers: pearson, spearman
  std::string prediction_file;       // file name of the predictions for a scoring server, such as "CoLA.tsv"

  bool is_number() const { return labels.empty(); }
  int64_t label_limit() const;  // exclusive upper limit of the numbers in the field "label"
  // Returns the number that a shard stores for a label; std::nullopt for an invalid label.
  std::optional<int32_t> label_of(std::string_view text) const;
  std::string text_of(int32_t label) const;  // text of a stored label; numbers with three decimals
  std::string valid_labels() const;  // description for messages, such as "one of: no, yes" or "a number from 0 to 5"
  std::string json() const;          // the header's `task`
  bool operator==(const ExampleTask&) const = default;
};
// Returns the task of a shard of examples. Throws Error(input) for another kind of shard, for a header without a valid
// task, and if the header's limit for the field "label" exceeds label_limit() of the task. `name` is the shard's name
// in messages.
ExampleTask task_of(const io::ShardHeader& header, const std::string& name);
// Sets the kind, the fields and the task of `header`, whose vocabulary must already be set.
void set_examples_header(io::ShardHeader& header, const ExampleTask& task);

struct ExampleSummary {
  uint64_t num_examples = 0, num_labelled = 0;
  uint64_t num_malformed = 0;                // number of lines skipped for a wrong number of columns
  uint64_t num_tokens = 0, num_unknown = 0;  // number of tokens, and of unknown tokens among them
  uint64_t num_bytes = 0;                    // size of the text
  double seconds = 0;
};

// Encodes every line except headers as a record, with several threads, in the order of the lines; byte order marks are
// dropped, and quotation marks count as text. `text` must return whole lines (TextBatches without `find_split`). Throws
// Error(input), with file and line, for an invalid label and for a line with a wrong number of columns.
// `drop_malformed`: in a file with labels, lines with a wrong number of columns are skipped instead, and the shard's
// trailer counts them. Lines of a file without labels are never skipped, since its predictions are numbered by line.
ExampleSummary encode_examples(TextBatches& text, const FindColumns& find_columns, const ExampleTask& task,
                               bool drop_malformed, const Tokenizer& tokenizer, int num_threads,
                               io::ShardWriter& writer);

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
