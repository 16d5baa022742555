#include "text/records/classification/glue.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace mh::text {

namespace {

using Words = std::vector<std::string>;
using Columns = ExampleColumns;

const Words kNumbered{"0", "1"}, kEntailed{"entailment", "not_entailment"},
    kInferred{"entailment", "neutral", "contradiction"}, kAccuracy{"accuracy"}, kAccuracyAndF1{"accuracy", "f1"};

GlueTask classification_task(const std::string& name, const Words& labels, const Words& metrics,
                             const std::string& file, std::vector<GlueFileLayout> layouts) {
  return {{name, layouts[0].second.empty() ? 1 : 2, labels, 0, 0, metrics, file}, std::move(layouts)};
}

// Returns the fields of a line separated by commas, truncated to 200 bytes, for messages.
std::string text_of_fields(const Words& fields) {
  constexpr size_t kMaxShownBytes = 200;
  std::string text = join(fields, ", ");
  if (text.size() <= kMaxShownBytes) return text;
  size_t end = kMaxShownBytes;
  while ((text[end] & 0xC0) == 0x80) --end;  // does not split a multi-byte character
  return text.substr(0, end) + "…";
}

[[noreturn]] void refuse_missing_columns(const std::string& where, const Words& missing, const Words& fields,
                                         const std::string& next) {
  throw Error(
      Exit::input,
      Problem{where, (missing.size() == 1 ? "the column " : "the columns ") + join(missing, ", "),
              str(fields.size(), fields.size() == 1 ? " column: " : " columns: ", text_of_fields(fields)), next});
}

Columns numbered_columns(const GlueFileLayout& layout) {
  const auto number = [](const std::string& name) {
    return name.empty() ? Columns::kNone : *column_at(name, nullptr, 99);
  };
  return {number(layout.first), number(layout.second), number(layout.label), layout.count, false};
}

}  // namespace

// The order of labels is that of Hugging Face datasets, so that the classes of published models are the same.
const std::vector<GlueTask>& glue_tasks() {
  static const std::vector<GlueTask> tasks{
      classification_task("cola", kNumbered, {"matthews"}, "CoLA.tsv",
                          {{"sentence", "", "label"}, {"4", "", "2", false, 4}}),
      classification_task("sst2", kNumbered, kAccuracy, "SST-2.tsv", {{"sentence", "", "label"}}),
      classification_task("mrpc", kNumbered, kAccuracyAndF1, "MRPC.tsv", {{"#1 String", "#2 String", "Quality"}}),
      {{"stsb", 2, {}, 0, 5, {"pearson", "spearman"}, "STS-B.tsv"}, {{"sentence1", "sentence2", "score"}}},
      classification_task("qqp", kNumbered, kAccuracyAndF1, "QQP.tsv", {{"question1", "question2", "is_duplicate"}}),
      classification_task("mnli", kInferred, kAccuracy, "MNLI-m.tsv", {{"sentence1", "sentence2", "gold_label"}}),
      classification_task("mnli-mm", kInferred, kAccuracy, "MNLI-mm.tsv", {{"sentence1", "sentence2", "gold_label"}}),
      classification_task("qnli", kEntailed, kAccuracy, "QNLI.tsv", {{"question", "sentence", "label"}}),
      classification_task("rte", kEntailed, kAccuracy, "RTE.tsv", {{"sentence1", "sentence2", "label"}}),
      classification_task("wnli", kNumbered, kAccuracy, "WNLI.tsv", {{"sentence1", "sentence2", "label"}}),
      classification_task("ax", kInferred, {"matthews"}, "AX.tsv", {{"sentence1", "sentence2", "label"}}),
  };
  return tasks;
}

Words glue_names() {
  Words names;
  for (const GlueTask& task : glue_tasks()) names.push_back(task.task.name);
  return names;
}

const GlueTask& glue_task(const std::string& name) {
  for (const GlueTask& task : glue_tasks())
    if (task.task.name == name) return task;
  throw Error(Exit::usage, Problem{"--task", "one of: " + join(glue_names(), ", "), name.empty() ? "none" : name,
                                   did_you_mean(name, glue_names())});
}

ExampleColumns select_columns(const ColumnChoice& choice, const Words& fields, const std::string& where) {
  Words missing;
  bool all_by_number = true;
  const auto find = [&](const std::string& name, const char* option) {
    if (name.empty()) return Columns::kNone;
    if (choice.header && std::ranges::count(fields, name) > 1)
      throw Error(Exit::input, Problem{where, str("one column '", name, "'"),
                                       str(std::ranges::count(fields, name), " columns of this name"),
                                       str("select one of these columns by number, such as ", option, " ",
                                           1 + (std::ranges::find(fields, name) - fields.begin()))});
    const auto column = column_at(name, choice.header ? &fields : nullptr, fields.size());
    if (!column) missing.push_back(name);
    all_by_number = all_by_number && std::ranges::count(fields, name) == 0;
    return column.value_or(Columns::kNone);
  };
  const Columns columns{find(choice.first, "--text"), find(choice.second, "--text-b"), find(choice.label, "--label"),
                        choice.header ? fields.size() : 0, choice.header};
  if (!missing.empty())
    refuse_missing_columns(
        where, missing, fields,
        choice.header ? "name columns of this line; if this line is an example, give --no-header and column numbers"
                      : str("give column numbers from 1 to ", fields.size(),
                            "; if this line is a header, leave --no-header out"));
  if (choice.header && all_by_number)
    log_info(where + " is read as a header, since --no-header is not given: " + text_of_fields(fields));
  return columns;
}

ExampleColumns glue_columns(const GlueTask& task, const ColumnChoice& choice, const Words& fields,
                            const std::string& where) {
  const GlueFileLayout& named_layout = task.layouts[0];
  if (!choice.header) return select_columns(choice, fields, where);
  ColumnChoice expected{choice.first.empty() ? named_layout.first : choice.first,
                        choice.second.empty() ? named_layout.second : choice.second,
                        choice.label.empty() ? named_layout.label : choice.label, choice.header};
  const auto has_column = [&](const std::string& name) {
    return name.empty() || column_at(name, &fields, fields.size()).has_value();
  };
  if (has_column(expected.first) && has_column(expected.second)) {
    if (choice.label.empty() && !has_column(expected.label)) expected.label.clear();  // a test file has no label column
    return select_columns(expected, fields, where);
  }
  if (choice.first.empty() && choice.second.empty())
    for (const GlueFileLayout& layout : task.layouts)
      if (!layout.header && layout.count == fields.size()) return numbered_columns(layout);
  Words missing;
  for (const std::string& name : {expected.first, expected.second, choice.label})
    if (!has_column(name)) missing.push_back(name);
  refuse_missing_columns(where, missing, fields,
                         str("give the --task of this file, or name columns of this line with --text",
                             task.task.sentences == 2 ? ", --text-b" : "",
                             " and, if the file has labels, --label; if this line is an example, give --no-header and "
                             "column numbers"));
}

}  // namespace mh::text
