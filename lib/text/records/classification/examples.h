// Shards of examples: what their labels are and how they are scored (the header's `task`, see mhs(5)), and their making
// from tab-separated files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/shard.h"
#include "text/text_batches.h"
#include "text/tokenizer.h"

namespace mh::text {

// Classes, or a number in [low, high] with low >= 0, which is kept in thousandths.
struct ExampleTask {
  std::string name;
  int64_t sentences = 1;            // of an example: 1 or 2
  std::vector<std::string> labels;  // the words of the classes; none: a number
  double low = 0, high = 0;
  std::vector<std::string> metrics;  // accuracy, f1, matthews; pearson, spearman (metrics/scores.h)
  std::string file;                  // of predictions

  bool is_number() const { return labels.empty(); }
  int64_t limit() const;  // of the field label
  // As a shard has it; std::nullopt for what is no label.
  std::optional<int32_t> label_of(std::string_view text) const;
  std::string text_of(int32_t label) const;  // numbers with three decimals
  std::string expected() const;              // "one of: no, yes"; "a number from 0 to 5"
  std::string json() const;
  bool operator==(const ExampleTask&) const = default;
};
// Of a shard of examples. Error(input) where the header does not tell it, or tells what its fields are not.
ExampleTask task_of(const io::ShardHeader& header, const std::string& name);
// The kind examples, for this task. Vocabularies come first.
void hold_examples(io::ShardHeader& header, const ExampleTask& task);

// Where a file has what: columns from 0.
struct ExampleColumns {
  static constexpr size_t kNone = SIZE_MAX;
  size_t first = 0, second = kNone, label = kNone;
  size_t count = 0;     // of each line; 0: as many as are needed at least
  bool header = false;  // the line that told it is no example
  size_t needed() const;
};
// Finds them in the fields of a file's first line; Error where they are not there. `where`: file and line.
using FindColumns = std::function<ExampleColumns(const std::vector<std::string>& fields, const std::string& where)>;
// A column by its name in `header`, or, where none has it or header is null, by its number from 1 among `count`.
std::optional<size_t> column_at(const std::string& name, const std::vector<std::string>* header, size_t count);

struct ExampleSummary {
  uint64_t examples = 0, labelled = 0;
  uint64_t malformed = 0;  // lines left out
  uint64_t tokens = 0, unknown = 0;
  uint64_t bytes = 0;
  double seconds = 0;
};

// Every line of the files but their headers becomes a record, in parallel and in order; a byte order mark in front of a
// file is dropped, quotes are text. Lines come whole (TextBatches without a cut). Error(input), with file and line, for
// a label that is none, and for a line of another number of columns, unless those are to be left out; what is left out
// stands in the shard's trailer. A file without labels loses no line: its predictions go by their numbers.
ExampleSummary encode_examples(TextBatches& text, const FindColumns& find, const ExampleTask& task, bool drop_malformed,
                               const Tokenizer& tokenizer, int threads, io::ShardWriter& writer);

}  // namespace mh::text
