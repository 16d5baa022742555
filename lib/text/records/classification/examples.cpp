#include "text/records/classification/examples.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/json_integer.h"
#include "base/json_types.h"
#include "base/text.h"
#include "io/shard_format.h"

namespace mh::text {

using nlohmann::json;

namespace {

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
  io::require_kind(header, name, io::kExamplesKind);
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
  header.set_kind(io::kExamplesKind, {header.vocabulary_size, header.vocabulary_size, task.label_limit()});
}

}  // namespace mh::text
