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

GlueTask classes(const std::string& name, const Words& labels, const Words& metrics, const std::string& file,
                 std::vector<GlueFileLayout> forms) {
  return {{name, forms[0].second.empty() ? 1 : 2, labels, 0, 0, metrics, file}, std::move(forms)};
}

// Returns the fields of a line separated by commas, truncated to 200 bytes, for messages.
std::string text_of_fields(const Words& fields) {
  constexpr size_t kShown = 200;
  std::string all = join(fields, ", ");
  if (all.size() <= kShown) return all;
  size_t end = kShown;
  while ((all[end] & 0xC0) == 0x80) --end;  // does not split a multi-byte character
  return all.substr(0, end) + "…";
}

[[noreturn]] void missing(const std::string& where, const Words& expected, const Words& fields,
                          const std::string& next) {
  throw Error(Exit::input, Problem{where, "the columns " + join(expected, ", "), text_of_fields(fields), next});
}

Columns without_header(const GlueFileLayout& form) {
  const auto number = [](const std::string& name) {
    return name.empty() ? Columns::kNone : *column_at(name, nullptr, 99);
  };
  return {number(form.first), number(form.second), number(form.label), form.count, false};
}

}  // namespace

// The order of labels is that of Hugging Face datasets, so that the classes of published models are the same.
const std::vector<GlueTask>& glue_tasks() {
  static const std::vector<GlueTask> tasks{
      classes("cola", kNumbered, {"matthews"}, "CoLA.tsv", {{"sentence", "", "label"}, {"4", "", "2", false, 4}}),
      classes("sst2", kNumbered, kAccuracy, "SST-2.tsv", {{"sentence", "", "label"}}),
      classes("mrpc", kNumbered, kAccuracyAndF1, "MRPC.tsv", {{"#1 String", "#2 String", "Quality"}}),
      {{"stsb", 2, {}, 0, 5, {"pearson", "spearman"}, "STS-B.tsv"}, {{"sentence1", "sentence2", "score"}}},
      classes("qqp", kNumbered, kAccuracyAndF1, "QQP.tsv", {{"question1", "question2", "is_duplicate"}}),
      classes("mnli", kInferred, kAccuracy, "MNLI-m.tsv", {{"sentence1", "sentence2", "gold_label"}}),
      classes("mnli-mm", kInferred, kAccuracy, "MNLI-mm.tsv", {{"sentence1", "sentence2", "gold_label"}}),
      classes("qnli", kEntailed, kAccuracy, "QNLI.tsv", {{"question", "sentence", "label"}}),
      classes("rte", kEntailed, kAccuracy, "RTE.tsv", {{"sentence1", "sentence2", "label"}}),
      classes("wnli", kNumbered, kAccuracy, "WNLI.tsv", {{"sentence1", "sentence2", "label"}}),
      classes("ax", kInferred, {"matthews"}, "AX.tsv", {{"sentence1", "sentence2", "label"}}),
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

ExampleColumns chosen_columns(const ColumnChoice& given, const Words& fields, const std::string& where) {
  Words expected;
  bool found = true, by_number = true;
  const auto find = [&](const std::string& name) {
    if (name.empty()) return Columns::kNone;
    expected.push_back(name);
    if (given.header && std::ranges::count(fields, name) > 1)
      throw Error(Exit::input, Problem{where, str("one column '", name, "'"),
                                       str(std::ranges::count(fields, name), " columns of this name"),
                                       "name another column, or give the number with --text, --text-b or --label"});
    const auto at = column_at(name, given.header ? &fields : nullptr, fields.size());
    found = found && at.has_value();
    by_number = by_number && std::ranges::count(fields, name) == 0;
    return at.value_or(Columns::kNone);
  };
  const Columns columns{find(given.first), find(given.second), find(given.label), given.header ? fields.size() : 0,
                        given.header};
  if (!found)
    missing(where, expected, fields,
            given.header ? "with --no-header, columns are numbers and the first line is an example"
                         : "without a header, columns are numbers from 1");
  if (given.header && by_number)
    log_info(where + " is read as a header, since --no-header is not given: " + text_of_fields(fields));
  return columns;
}

ExampleColumns glue_columns(const GlueTask& task, const ColumnChoice& given, const Words& fields,
                            const std::string& where) {
  const GlueFileLayout& named = task.forms[0];
  if (!given.header) return chosen_columns(given, fields, where);
  ColumnChoice expected{given.first.empty() ? named.first : given.first,
                        given.second.empty() ? named.second : given.second,
                        given.label.empty() ? named.label : given.label, given.header};
  const auto has = [&](const std::string& name) {
    return name.empty() || column_at(name, &fields, fields.size()).has_value();
  };
  if (has(expected.first) && has(expected.second)) {
    if (given.label.empty() && !has(expected.label)) expected.label.clear();  // a test file has no label column
    return chosen_columns(expected, fields, where);
  }
  if (given.first.empty() && given.second.empty())
    for (const GlueFileLayout& form : task.forms)
      if (!form.header && form.count == fields.size()) return without_header(form);
  Words names{expected.first};
  for (const std::string& name : {expected.second, expected.label})
    if (!name.empty()) names.push_back(name);
  missing(where, names, fields,
          str("a test file has no ", expected.label,
              "; name other columns with --text, --text-b and --label, as numbers with --no-header"));
}

}  // namespace mh::text
