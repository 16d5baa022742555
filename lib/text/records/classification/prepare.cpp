// mh-prep glue and mh-prep examples: convert tab-separated files to shards of examples.
#include <algorithm>

#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "text/records/classification/glue.h"
#include "text/records/preparation.h"
#include "text/tokenizers.h"

namespace mh::text {

using namespace mh::io;
using nlohmann::ordered_json;

namespace {

// Command-line options for the columns of tab-separated files.
struct ColumnOptions {
  std::string text, text_b, label;
  bool no_header = false;
  std::string malformed_handling = "refuse";
  void describe(Fields& f) {
    f.field("text", text,
            "column of the text: name in the first line, or number from 1; default of mh-prep glue: the column of the "
            "task; required by mh-prep examples");
    f.field("text_b", text_b,
            "column of the second text: name in the first line, or number from 1; default of mh-prep glue: the column "
            "of the task, if the task has two texts; default of mh-prep examples: no second text");
    f.field("label", label,
            "column of the label: name in the first line, or number from 1; default of mh-prep glue: the column of the "
            "task, if the files have labels; default of mh-prep examples: no labels");
    f.field("no_header", no_header,
            "read the first line as an example instead of a header; columns are then selected by number");
    f.field("malformed", malformed_handling,
            "treatment of lines with a wrong number of columns in files with labels; refuse: stop with an error; drop: "
            "leave the line out",
            {"refuse", "drop"});
  }
};

struct GlueOptions {
  std::string task;
  BertVocabularyOptions vocabulary;
  ColumnOptions columns;
  EncodingThreads threads;
  void describe(Fields& f) {
    f.field("task", task, "GLUE task: " + join_alternatives(glue_names()));
    f.section("", vocabulary);
    f.section("", columns);
    f.section("", threads);
  }
};

struct ExamplesOptions {
  BertVocabularyOptions vocabulary;
  ColumnOptions columns;
  std::string labels, metrics;  // words separated by commas
  std::vector<double> label_bounds;
  std::string name = "examples";
  EncodingThreads threads;
  void describe(Fields& f) {
    f.section("", vocabulary);
    f.section("", columns);
    f.field("labels", labels, "names of the classes in order, separated by commas, such as no,yes");
    f.field("number", label_bounds, "lower and upper bound of numeric labels, such as 0,5; replaces --labels",
            at_least(0));
    f.field(
        "metrics", metrics,
        "metrics by which predictions are scored, separated by commas; labels that are words: accuracy (default), f1 "
        "and matthews; labels that are numbers: pearson and spearman (default: both)");
    f.field("name", name, "name of the task, and of the prediction file NAME.tsv");
    f.section("", threads);
  }
};

ColumnChoice column_choice(const ColumnOptions& options) {
  return {options.text, options.text_b, options.label, !options.no_header};
}

void write_examples_shard(const PrepArguments& arguments, const BertVocabularyOptions& vocabulary,
                          const ColumnOptions& columns, int num_threads, const ExampleTask& task,
                          const FindColumns& find_columns) {
  const auto tokenizer = load_vocabulary(arguments, vocabulary);
  TextBatches text(arguments.inputs, line_ends(arguments, false), nullptr);
  ShardHeader header = header_of(*tokenizer);
  set_examples_header(header, task);
  header.provenance = provenance_of(arguments, vocabulary,
                                    {{"text", columns.text},
                                     {"text_b", columns.text_b},
                                     {"label", columns.label},
                                     {"no_header", columns.no_header},
                                     {"malformed", columns.malformed_handling}});
  ExampleSummary summary;
  write_shard(arguments, header, [&](ShardWriter& writer) {
    summary = encode_examples(text, find_columns, task, columns.malformed_handling == "drop", *tokenizer, num_threads,
                              writer);
    if (summary.num_examples == 0)
      refuse_inputs(arguments, "examples, one per line", "none", "name a file with at least one example");
  });
  log_removed_bytes(text.num_normalised_lines(), text.num_byte_order_marks());
  if (summary.num_malformed > 0)
    log_info("dropped " + count_with_commas(summary.num_malformed, "line") + " with a wrong number of columns");
  log_info(str(count_with_commas(summary.num_examples, "example"), " of ", task.name, ", ",
               format_count(summary.num_labelled, "labelled, "), count_with_commas(summary.num_tokens, "token"), ", ",
               format_count(summary.num_unknown, "unknown, "), format_throughput(summary.num_bytes, summary.seconds)));
}

void refuse(const std::string& option, const std::string& expected, const std::string& found,
            const std::string& advice) {
  refuse_usage(option, expected, found, advice);
}

// Splits a comma-separated list such as "a,b"; returns an empty list for an empty text.
std::vector<std::string> split_list(const std::string& words) {
  return words.empty() ? std::vector<std::string>{} : split(words, ',');
}

void check_labels(const std::vector<std::string>& labels) {
  if (labels.size() < 2)
    refuse("--labels", "at least two names", "one", "separate names by commas, such as --labels no,yes");
  for (const std::string& label : labels)
    if (label.find_first_of("\t\r\n") != label.npos || find_invalid_utf8(label) != label.npos)
      refuse("--labels", "names in UTF-8, without tabs and line ends", "'" + escape_piece(label) + "'",
             "correct the name, as well as the labels in the files");
  for (auto it = labels.begin(); it != labels.end(); ++it)
    if (it->empty() || std::find(labels.begin(), it, *it) != it)
      refuse("--labels", "distinct, non-empty names", it->empty() ? "an empty name" : "'" + *it + "' twice",
             "give each name once, such as --labels no,yes");
}

std::string join_numbers(const std::vector<double>& numbers) {
  std::vector<std::string> texts;
  texts.reserve(numbers.size());
  for (double number : numbers) texts.push_back(shortest_decimal(number));
  return join(texts, ", ");
}

ExampleTask task_of_options(const ExamplesOptions& options) {
  if (options.columns.label.empty() && options.columns.malformed_handling == "drop")
    refuse("--malformed drop", "--label with this option, since only lines of files with labels are dropped",
           "no --label", "add --label, or leave --malformed out");
  if (options.name.empty())
    refuse("--name", "a name of the task", "an empty name", "give a name, such as --name reviews");
  if (options.columns.text.empty())
    refuse("--text", "the column of the text, by name or number", "none", "give a column, such as --text sentence");
  if (options.labels.empty() == options.label_bounds.empty())
    refuse("--labels", "either --labels (names of classes) or --number (bounds of numeric labels)",
           options.labels.empty() ? "neither" : "both", "give exactly one of the two options, such as --labels no,yes");
  ExampleTask task;
  task.name = options.name, task.prediction_file = options.name + ".tsv";
  task.num_sentences = options.columns.text_b.empty() ? 1 : 2;
  task.labels = split_list(options.labels), task.metrics = split_list(options.metrics);
  std::vector<std::string> known_metrics{"accuracy", "f1", "matthews"};
  if (task.is_number()) {
    known_metrics = {"pearson", "spearman"};
    if (options.label_bounds.size() != 2 || options.label_bounds[1] <= options.label_bounds[0] ||
        options.label_bounds[1] > 1e6)
      refuse("--number", "two bounds from 0 to 1000000, the lower one first", join_numbers(options.label_bounds),
             "give lower and upper bound, such as --number 0,5");
    task.min_label = options.label_bounds[0], task.max_label = options.label_bounds[1];
  } else {
    check_labels(task.labels);
  }
  if (task.metrics.empty()) task.metrics = task.is_number() ? known_metrics : std::vector<std::string>{"accuracy"};
  for (auto it = task.metrics.begin(); it != task.metrics.end(); ++it) {
    if (std::find(known_metrics.begin(), known_metrics.end(), *it) == known_metrics.end())
      refuse(
          "--metrics",
          str("metrics of a task with ", task.is_number() ? "--number" : "--labels", ": ", join(known_metrics, ", ")),
          "'" + *it + "'", "give metrics of this list");
    if (std::find(task.metrics.begin(), it, *it) != it)
      refuse("--metrics", "each metric once", "'" + *it + "' twice", "remove the repeated metric");
    if (*it == "f1" && task.labels.size() > 2)
      refuse("--metrics", "two labels for f1, which scores the second label", count_of(task.labels.size(), "label"),
             "leave f1 out, or give two labels");
  }
  return task;
}

void make_glue(const PrepArguments& arguments, const GlueOptions& options) {
  const GlueTask& task = glue_task(options.task);
  if (task.example_task.num_sentences == 1 && !options.columns.text_b.empty())
    refuse("--text-b", "a task of two sentences", task.example_task.name + ", a task of one sentence",
           "leave --text-b out");
  if (options.columns.no_header &&
      (options.columns.text.empty() || (task.example_task.num_sentences == 2 && options.columns.text_b.empty())))
    refuse("--no-header",
           task.example_task.num_sentences == 1 ? "--text with a column number"
                                                : "--text and --text-b with column numbers",
           options.columns.text.empty() ? "no --text" : "no --text-b",
           str("count columns from 1, and add ", options.columns.text.empty() ? "--text" : "--text-b", " NUMBER"));
  write_examples_shard(arguments, options.vocabulary, options.columns, options.threads.num_threads(), task.example_task,
                       [&](const std::vector<std::string>& fields, const std::string& where) {
                         return glue_columns(task, column_choice(options.columns), fields, where);
                       });
}

void make_examples(const PrepArguments& arguments, const ExamplesOptions& options) {
  write_examples_shard(arguments, options.vocabulary, options.columns, options.threads.num_threads(),
                       task_of_options(options), [&](const std::vector<std::string>& fields, const std::string& where) {
                         return select_columns(column_choice(options.columns), fields, where);
                       });
}

class GluePreparation : public PreparationWithOptions<GlueOptions, make_glue> {
 public:
  std::string inputs_help() const override { return "files of the GLUE task in GLUE's format"; }
};

class ExamplesPreparation : public PreparationWithOptions<ExamplesOptions, make_examples> {
 public:
  std::string inputs_help() const override {
    return "tab-separated files, one example per line; quotation marks have no special meaning";
  }
};

const Registration<GluePreparation> glue_entry(preparations(), "glue", "make a shard of examples of a GLUE task");
const Registration<ExamplesPreparation> examples_entry(preparations(), "examples",
                                                       "make a shard of examples: one or two texts, and a label");

}  // namespace

}  // namespace mh::text
