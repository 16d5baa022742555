#include "text/records/glue.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace mh::text {

namespace {

using Strings = std::vector<std::string>;
using Columns = ExampleColumns;

const Strings kZeroOneLabels{"0", "1"}, kEntailmentLabels{"entailment", "not_entailment"},
    kNliLabels{"entailment", "neutral", "contradiction"}, kAccuracy{"accuracy"}, kAccuracyAndF1{"accuracy", "f1"};

GlueTask classification_task(const std::string& name, const Strings& labels, const Strings& metrics,
                             const std::string& file, std::vector<GlueFileLayout> layouts) {
  return {{name, layouts[0].second_text.empty() ? 1 : 2, labels, 0, 0, metrics, file}, std::move(layouts)};
}

// Joins the fields of a line with commas for a message; shortened to 200 bytes.
std::string text_of_fields(const Strings& fields) { return shorten(join(fields, ", "), 200); }

[[noreturn]] void refuse_missing_columns(const std::string& where, const Strings& missing_columns,
                                         const Strings& fields, const std::string& advice) {
  refuse_input(where,
               (missing_columns.size() == 1 ? "the column '" : "the columns '") + join(missing_columns, "', '") + "'",
               str(count_of(fields.size(), "column"), ": ", text_of_fields(fields)), advice);
}

// Returns the columns of a layout without a header, whose `first_text`, `second_text` and `label` are column numbers.
Columns numbered_columns(const GlueFileLayout& layout) {
  const auto column_index = [&](const std::string& number) {
    return number.empty() ? Columns::kNone : *column_at(number, nullptr, layout.num_columns);
  };
  return {column_index(layout.first_text), column_index(layout.second_text), column_index(layout.label),
          layout.num_columns, false};
}

}  // namespace

// The labels are in the order of Hugging Face datasets, so that class n of a published model is label n here too.
const std::vector<GlueTask>& glue_tasks() {
  static const std::vector<GlueTask> tasks{
      classification_task("cola", kZeroOneLabels, {"matthews"}, "CoLA.tsv",
                          {{"sentence", "", "label"}, {"4", "", "2", false, 4}}),
      classification_task("sst2", kZeroOneLabels, kAccuracy, "SST-2.tsv", {{"sentence", "", "label"}}),
      classification_task("mrpc", kZeroOneLabels, kAccuracyAndF1, "MRPC.tsv", {{"#1 String", "#2 String", "Quality"}}),
      {{"stsb", 2, {}, 0, 5, {"pearson", "spearman"}, "STS-B.tsv"}, {{"sentence1", "sentence2", "score"}}},
      classification_task("qqp", kZeroOneLabels, kAccuracyAndF1, "QQP.tsv",
                          {{"question1", "question2", "is_duplicate"}}),
      classification_task("mnli", kNliLabels, kAccuracy, "MNLI-m.tsv", {{"sentence1", "sentence2", "gold_label"}}),
      classification_task("mnli-mm", kNliLabels, kAccuracy, "MNLI-mm.tsv", {{"sentence1", "sentence2", "gold_label"}}),
      classification_task("qnli", kEntailmentLabels, kAccuracy, "QNLI.tsv", {{"question", "sentence", "label"}}),
      classification_task("rte", kEntailmentLabels, kAccuracy, "RTE.tsv", {{"sentence1", "sentence2", "label"}}),
      classification_task("wnli", kZeroOneLabels, kAccuracy, "WNLI.tsv", {{"sentence1", "sentence2", "label"}}),
      classification_task("ax", kNliLabels, {"matthews"}, "AX.tsv", {{"sentence1", "sentence2", "label"}}),
  };
  return tasks;
}

Strings glue_names() {
  Strings names;
  for (const GlueTask& task : glue_tasks()) names.push_back(task.example_task.name);
  return names;
}

const GlueTask& glue_task(const std::string& name) {
  for (const GlueTask& task : glue_tasks())
    if (task.example_task.name == name) return task;
  refuse_usage("--task", "one of: " + join(glue_names(), ", "), name.empty() ? "none" : name,
               did_you_mean(name, glue_names(), "name the GLUE task of the file, such as --task cola"));
}

ExampleColumns select_columns(const ColumnChoice& choice, const Strings& fields, const std::string& where) {
  Strings missing_columns;
  bool uses_only_numbers = true;
  const auto find = [&](const std::string& name, const char* option) {
    if (name.empty()) return Columns::kNone;
    if (choice.has_header && std::ranges::count(fields, name) > 1)
      refuse_input(where, str("one column '", name, "'"),
                   str(std::ranges::count(fields, name), " columns of this name"),
                   str("select one of these columns by number, such as ", option, " ",
                       1 + (std::ranges::find(fields, name) - fields.begin())));
    const auto column = column_at(name, choice.has_header ? &fields : nullptr, fields.size());
    if (!column) missing_columns.push_back(name);
    uses_only_numbers = uses_only_numbers && std::ranges::count(fields, name) == 0;
    return column.value_or(Columns::kNone);
  };
  const Columns columns{find(choice.first_text, "--text"), find(choice.second_text, "--text-b"),
                        find(choice.label, "--label"), choice.has_header ? fields.size() : 0, choice.has_header};
  if (!missing_columns.empty())
    refuse_missing_columns(
        where, missing_columns, fields,
        choice.has_header ? "name columns of this line; if this line is an example, give --no-header and column numbers"
                          : str("give column numbers from 1 to ", fields.size(),
                                "; if this line is a header, leave --no-header out"));
  if (choice.has_header && uses_only_numbers)
    log_info(where + " is read as a header, since --no-header is not given: " + text_of_fields(fields));
  return columns;
}

ExampleColumns glue_columns(const GlueTask& task, const ColumnChoice& choice, const Strings& fields,
                            const std::string& where) {
  const GlueFileLayout& named_layout = task.layouts[0];
  if (!choice.has_header) return select_columns(choice, fields, where);
  ColumnChoice expected_columns{choice.first_text.empty() ? named_layout.first_text : choice.first_text,
                                choice.second_text.empty() ? named_layout.second_text : choice.second_text,
                                choice.label.empty() ? named_layout.label : choice.label, choice.has_header};
  const auto has_column = [&](const std::string& name) {
    return name.empty() || column_at(name, &fields, fields.size()).has_value();
  };
  if (has_column(expected_columns.first_text) && has_column(expected_columns.second_text)) {
    if (choice.label.empty() && !has_column(expected_columns.label))
      expected_columns.label.clear();  // a test file has no label column
    return select_columns(expected_columns, fields, where);
  }
  if (choice.first_text.empty() && choice.second_text.empty())
    for (const GlueFileLayout& layout : task.layouts)
      if (!layout.has_header && layout.num_columns == fields.size()) return numbered_columns(layout);
  Strings missing_columns;
  for (const std::string& name : {expected_columns.first_text, expected_columns.second_text, choice.label})
    if (!has_column(name)) missing_columns.push_back(name);
  refuse_missing_columns(where, missing_columns, fields,
                         str("give the --task of this file, or name columns of this line with --text",
                             task.example_task.num_sentences == 2 ? ", --text-b" : "",
                             " and, if the file has labels, --label; if this line is an example, give --no-header and "
                             "column numbers"));
}

}  // namespace mh::text
