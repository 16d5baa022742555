#include "text/records/classification.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/json_integer.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "io/record_kind.h"
#include "io/shard_format.h"
#include "text/records/glue.h"
#include "text/records/ordered_encoding.h"
#include "text/records/preparation.h"
#include "text/records/record_text.h"
#include "text/tokenizer.h"
#include "text/tokenizers.h"

namespace mh::text {

namespace {

class ExamplesKind : public io::RecordKind {
 public:
  int list_position() const override { return 4; }
  std::vector<std::string> preparations() const override { return {"glue", "examples"}; }
  std::vector<std::string> field_names() const override { return {"first", "second", "label"}; }
  size_t num_token_fields() const override { return 2; }
  const char* length_rule() const override { return "examples whose label is empty or has one number"; }
  bool allows_length(size_t field, uint64_t length, uint64_t) const override { return field < 2 || length <= 1; }
};
const Registration<ExamplesKind> kind_entry(
    io::record_kinds(), kExamplesKind,
    "The fields first and second contain the tokens of one sentence each; second is empty if the example has only one "
    "sentence. The field label contains one number, or none if the label is not known. The header key task is an "
    "object with the keys name; sentences (1 or 2); labels (the names of the classes 0, 1, ...) or number (the lowest "
    "and the highest number; label is then in thousandths); metrics (one or more of accuracy, f1 and matthews, or of "
    "pearson and spearman); and file (the name of the file of predictions).");

constexpr double kThousandthsPerUnit = 1000;  // a shard stores numbers in thousandths

bool parse_number(std::string_view text, double& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

int64_t ExampleTask::label_limit() const {
  return is_number() ? std::llround(max_label * kThousandthsPerUnit) + 1 : static_cast<int64_t>(labels.size());
}

std::optional<int32_t> ExampleTask::label_of(std::string_view text) const {
  if (is_number()) {
    double number = 0;
    if (!parse_number(text, number) || !(number >= min_label && number <= max_label)) return std::nullopt;
    return static_cast<int32_t>(std::llround(number * kThousandthsPerUnit));
  }
  const auto it = std::find(labels.begin(), labels.end(), text);
  if (it == labels.end()) return std::nullopt;
  return static_cast<int32_t>(it - labels.begin());
}

std::string ExampleTask::text_of(int32_t label) const {
  return is_number() ? fixed_decimal(label / kThousandthsPerUnit, 3) : labels.at(static_cast<size_t>(label));
}

std::string ExampleTask::valid_labels() const {
  return is_number() ? str("a number from ", shortest_decimal(min_label), " to ", shortest_decimal(max_label))
                     : "one of: " + join(labels, ", ");
}

std::string ExampleTask::json() const {
  nlohmann::json j{{"name", name}, {"sentences", num_sentences}, {"metrics", metrics}, {"file", prediction_file}};
  if (is_number()) j["number"] = {min_label, max_label};
  else j["labels"] = labels;
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

ExampleTask task_of(const io::ShardHeader& header, const std::string& name) {
  io::require_kind(header, name, kExamplesKind);
  ExampleTask task;
  try {
    const auto j = nlohmann::json::parse(header.task);
    task.name = j.at("name").get<std::string>();
    task.num_sentences = integer_of<int64_t>(j.at("sentences"));
    task.metrics = j.at("metrics").get<std::vector<std::string>>();
    task.prediction_file = j.at("file").get<std::string>();
    if (j.contains("labels")) task.labels = j.at("labels").get<std::vector<std::string>>();
    else task.min_label = j.at("number").at(0).get<double>(), task.max_label = j.at("number").at(1).get<double>();
  } catch (const nlohmann::json::exception& error) {
    io::throw_damaged(str(name, ": header"), "the entries of a task", json_error_text(error.what()));
  }
  const bool is_valid_range =
      task.min_label >= 0 && task.max_label > task.min_label && task.max_label < INT32_MAX / kThousandthsPerUnit;
  if ((task.is_number() && !is_valid_range) || task.num_sentences < 1 || task.num_sentences > 2 ||
      header.limit_of(2) > task.label_limit())
    io::throw_damaged(str(name, ": header"),
                      "a task of one or two sentences, with a label for each value of the field 'label'", header.task);
  return task;
}

void set_examples_header(io::ShardHeader& header, const ExampleTask& task) {
  header.task = task.json();
  header.set_kind(kExamplesKind, {header.vocabulary_size, header.vocabulary_size, task.label_limit()});
}

namespace {

constexpr const char* kMalformed = "malformed";

struct EncodedExamples {
  EncodedSequences sequences;
  ExampleSummary summary;
};

class ExampleEncoder {
 public:
  ExampleEncoder(const ExampleTask& task, bool drop_malformed, const Tokenizer& tokenizer)
      : task_(task), drop_malformed_(drop_malformed), tokenizer_(tokenizer), encoder_(tokenizer.encoder()) {}

  EncodedExamples encode(const ExampleBatch& batch) {
    EncodedExamples out;
    out.sequences.tokens.reserve(batch.text.text.size() / 3);
    for (const auto& s : batch.text.segments) {
      check_text(batch.text, s, false);
      fields_ = split_columns(batch.line(s), str(batch.text.file, ":", s.line_number));
      if (has_valid_columns(batch, s)) add(batch, s, out);
      else ++out.summary.num_malformed;
    }
    out.summary.num_bytes = batch.text.input_bytes;
    return out;
  }

 private:
  // Returns whether the current line has a valid number of columns; if not, the line is to be dropped. Throws
  // Error(input) for a wrong number of columns in a line that must not be dropped.
  bool has_valid_columns(const ExampleBatch& batch, const TextBatch::Segment& s) const {
    const ExampleColumns& c = batch.columns;
    if (c.num_columns > 0 ? fields_.size() == c.num_columns : fields_.size() >= c.min_columns()) return true;
    if (drop_malformed_ && c.label != ExampleColumns::kNone) return false;
    refuse_input(
        str(batch.text.file, ":", s.line_number),
        c.num_columns > 0 ? count_of(c.num_columns, "column") : str(count_of(c.min_columns(), "column"), " or more"),
        str(fields_.size()),
        c.label != ExampleColumns::kNone ? "separate columns by single tabs, or drop the line with --malformed drop"
                                         : "separate columns by single tabs; in a file without labels no line can be "
                                           "dropped, since predictions are numbered by line");
  }

  void add(const ExampleBatch& batch, const TextBatch::Segment& s, EncodedExamples& out) {
    const ExampleColumns& c = batch.columns;
    std::vector<int32_t>& tokens = out.sequences.tokens;
    const size_t begin = tokens.size();
    encoder_->encode(fields_[c.first_text], tokens);
    out.sequences.ends.push_back(tokens.size());
    if (c.second_text != ExampleColumns::kNone) encoder_->encode(fields_[c.second_text], tokens);
    out.sequences.ends.push_back(tokens.size());
    out.summary.num_tokens += tokens.size() - begin;
    out.summary.num_unknown += count_unknown(std::span(tokens).subspan(begin), tokenizer_);
    if (c.label != ExampleColumns::kNone) {
      const auto label = task_.label_of(fields_[c.label]);
      if (!label)
        refuse_input(str(batch.text.file, ":", s.line_number, ": column ", c.label + 1), task_.valid_labels(),
                     "'" + fields_[c.label] + "'",
                     "correct the label, or select the column of the labels with --label");
      tokens.push_back(*label);
      ++out.summary.num_labelled;
    }
    out.sequences.ends.push_back(tokens.size());
    ++out.summary.num_examples;
  }

  const ExampleTask& task_;
  bool drop_malformed_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<Encoder> encoder_;
  std::vector<std::string> fields_;  // fields of the current line
};

}  // namespace

ExampleSummary encode_examples(TextBatches& text, const FindColumns& find_columns, const ExampleTask& task,
                               bool drop_malformed, const Tokenizer& tokenizer, int num_threads,
                               io::ShardWriter& writer) {
  ExampleSummary summary;
  ExampleBatches batches(text, find_columns);
  summary.seconds = encode_in_order<ExampleBatch, EncodedExamples>(
      num_threads, text.expected_bytes(), "bytes", [&](ExampleBatch& batch) { return batches.next(batch); },
      [&] {
        return [encoder = std::make_shared<ExampleEncoder>(task, drop_malformed, tokenizer)](
                   const ExampleBatch& batch) { return encoder->encode(batch); };
      },
      [&](const EncodedExamples& e) {
        e.sequences.write(writer);
        writer.add_text_bytes(e.summary.num_bytes);
        if (e.summary.num_malformed > 0) writer.add_dropped(kMalformed, e.summary.num_malformed);
        summary.num_examples += e.summary.num_examples;
        summary.num_labelled += e.summary.num_labelled;
        summary.num_malformed += e.summary.num_malformed;
        summary.num_tokens += e.summary.num_tokens;
        summary.num_unknown += e.summary.num_unknown;
        summary.num_bytes += e.summary.num_bytes;
        return summary.num_bytes;
      });
  return summary;
}

std::pair<int64_t, int64_t> truncate_lengths(int64_t first_length, int64_t second_length, int64_t max_tokens) {
  if (first_length + second_length <= max_tokens) return {first_length, second_length};
  const auto [shorter, longer] = std::minmax(first_length, second_length);
  std::pair<int64_t, int64_t> lengths{shorter, max_tokens - shorter};
  if (lengths.second < shorter) lengths = {max_tokens / 2, max_tokens - max_tokens / 2};
  if (first_length > second_length) std::swap(lengths.first, lengths.second);
  return lengths;
}

ClassificationExamples::ClassificationExamples(Sequences sequences, ExampleTask task, const Tokenizer& tokenizer,
                                               int64_t max_length)
    : sequences_(std::move(sequences)),
      task_(std::move(task)),
      special_tokens_(encoder_tokens(tokenizer, "examples")),
      max_length_(max_length) {
  if (max_length <= num_special_tokens())
    refuse_usage("train.batch.sequence_length",
                 str("more than ", num_special_tokens(), ", the number of special tokens of an input sequence"),
                 str(max_length), "raise train.batch.sequence_length");
  for (int64_t i = 0; i < size(); ++i) {
    const auto sequence = static_cast<size_t>(3 * i);
    const auto [first_length, second_length] = truncated_lengths(i);
    if (first_length + second_length < sequences_.length(sequence) + sequences_.length(sequence + 1)) ++num_truncated_;
    if (sequences_.length(sequence + 2) == 0) ++num_unlabelled_;
  }
}

std::pair<int64_t, int64_t> ClassificationExamples::truncated_lengths(int64_t i) const {
  const auto sequence = static_cast<size_t>(3 * i);
  const int64_t max_tokens = max_length_ - num_special_tokens();
  if (task_.num_sentences == 1) return {std::min(sequences_.length(sequence), max_tokens), 0};
  return truncate_lengths(sequences_.length(sequence), sequences_.length(sequence + 1), max_tokens);
}

int64_t ClassificationExamples::length(int64_t i) const {
  const auto [first_length, second_length] = truncated_lengths(i);
  return num_special_tokens() + first_length + second_length;
}

Example ClassificationExamples::make(int64_t i) const {
  const auto sequence = static_cast<size_t>(3 * i);
  const auto [first_length, second_length] = truncated_lengths(i);
  Example result;
  result.tokens.push_back(special_tokens_.begin_id);
  const auto add = [&](size_t sequence_index, int64_t count, int64_t num_separators) {
    const size_t offset = result.tokens.size();
    result.tokens.resize(offset + static_cast<size_t>(count));
    sequences_.read(sequences_.begin(sequence_index), std::span(result.tokens).subspan(offset));
    result.tokens.insert(result.tokens.end(), static_cast<size_t>(num_separators), special_tokens_.separator_id);
  };
  add(sequence, first_length, task_.num_sentences == 2 ? special_tokens_.num_pair_separators : 1);
  result.first_segment_length = static_cast<int32_t>(result.tokens.size());
  if (task_.num_sentences == 2) add(sequence + 1, second_length, 1);
  const std::vector<int32_t> label = sequences_.sequence(sequence + 2);
  result.targets.push_back(label.empty() ? -1 : label[0]);
  return result;
}

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

// The options of mh-prep glue.
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

// The options of mh-prep examples.
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
  io::ShardHeader header = header_of(*tokenizer);
  set_examples_header(header, task);
  header.provenance = provenance_of(arguments, vocabulary,
                                    {{"text", columns.text},
                                     {"text_b", columns.text_b},
                                     {"label", columns.label},
                                     {"no_header", columns.no_header},
                                     {"malformed", columns.malformed_handling}});
  ExampleSummary summary;
  write_shard(arguments, header, [&](io::ShardWriter& writer) {
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

// Prints the first text, the second text and the label of each example.
class ExampleText : public WholeShardText {
 protected:
  void print_text(const WholeShard& shard, const std::string& name, const Tokenizer& tokenizer,
                  ByteSink& sink) const override {
    const ExampleTask task = task_of(shard.header, name);
    for (size_t i = 0; i < shard.size(); ++i) {
      const auto label = shard.sequence(i, 2);
      sink.write(text_of_tokens(shard.sequence(i, 0), tokenizer, false) + "\t" +
                 text_of_tokens(shard.sequence(i, 1), tokenizer, false) + "\t" +
                 (label.empty() ? "" : task.text_of(label[0])) + "\n");
    }
  }
};

const Registration<ExampleText> text_entry(record_texts(), kExamplesKind, "texts and label, one example per line");

}  // namespace

}  // namespace mh::text
