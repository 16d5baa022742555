// Shards of examples: their labels and metrics (the header's `task`, see mhs(5)), and their making from tab-separated
// files.
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

// The labels of a task: classes, or a number in [low, high] with low >= 0, stored in thousandths.
struct ExampleTask {
  std::string name;
  int64_t sentences = 1;            // sentences of an example: 1 or 2
  std::vector<std::string> labels;  // names of the classes; empty: a number
  double low = 0, high = 0;
  std::vector<std::string> metrics;  // accuracy, f1, matthews; pearson, spearman (metrics/scores.h)
  std::string file;                  // name of the file of predictions

  bool is_number() const { return labels.empty(); }
  int64_t limit() const;  // limit of the field label
  // Returns the label as a shard stores it; std::nullopt for an invalid one.
  std::optional<int32_t> label_of(std::string_view text) const;
  std::string text_of(int32_t label) const;  // numbers with three decimals
  std::string expected() const;              // "one of: no, yes"; "a number from 0 to 5"
  std::string json() const;
  bool operator==(const ExampleTask&) const = default;
};
// Returns the task of a shard of examples. Throws Error(input) for a header without a task, or with one that
// contradicts its fields.
ExampleTask task_of(const io::ShardHeader& header, const std::string& name);
// Sets the kind examples, for this task. Vocabularies must be set before.
void hold_examples(io::ShardHeader& header, const ExampleTask& task);

// The columns of a file, from 0.
struct ExampleColumns {
  static constexpr size_t kNone = SIZE_MAX;
  size_t first = 0, second = kNone, label = kNone;
  size_t count = 0;     // columns of each line; 0: at least those needed
  bool header = false;  // the first line is a header
  size_t needed() const;
};
// Finds the columns from the fields of a file's first line; throws Error if they are missing. `where`: file and line.
using FindColumns = std::function<ExampleColumns(const std::vector<std::string>& fields, const std::string& where)>;
// Returns a column by its name in `header`, or, if the name is not there or header is null, by its number from 1 to
// `count`.
std::optional<size_t> column_at(const std::string& name, const std::vector<std::string>* header, size_t count);

struct ExampleSummary {
  uint64_t examples = 0, labelled = 0;
  uint64_t malformed = 0;  // skipped lines
  uint64_t tokens = 0, unknown = 0;
  uint64_t bytes = 0;
  double seconds = 0;
};

// Encodes every line of the files but their headers as a record, in parallel and in order; byte order marks are
// dropped, quotes are text. Lines come whole (TextBatches without a cut). Throws Error(input), with file and line, for
// an invalid label, and for a line with another number of columns, unless malformed lines are to be skipped; the
// shard's trailer counts skipped lines. A file without labels must not lose a line, since its predictions are numbered.
ExampleSummary encode_examples(TextBatches& text, const FindColumns& find, const ExampleTask& task, bool drop_malformed,
                               const Tokenizer& tokenizer, int threads, io::ShardWriter& writer);

}  // namespace mh::text
