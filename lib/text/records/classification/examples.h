// Shards of examples for classification and regression: the task with its labels and metrics (the header's `task`, see
// mh-shard(5)), and the encoding of tab-separated files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/shard.h"
#include "text/records/tsv.h"
#include "text/text_batches.h"
#include "text/tokenizer.h"

namespace mh::text {

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

}  // namespace mh::text
