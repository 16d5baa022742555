#include "text/records/classification.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace mh::text {

std::pair<int64_t, int64_t> truncate_lengths(int64_t first, int64_t second, int64_t room) {
  if (first + second <= room) return {first, second};
  const auto [shorter, longer] = std::minmax(first, second);
  std::pair<int64_t, int64_t> truncated_lengths{shorter, room - shorter};
  if (truncated_lengths.second < shorter) truncated_lengths = {room / 2, room - room / 2};
  if (first > second) std::swap(truncated_lengths.first, truncated_lengths.second);
  return truncated_lengths;
}

Classification::Classification(Sequences runs, ExampleTask task, const WordPieceTokenizer& tokenizer, int64_t length)
    : runs_(std::move(runs)), task_(std::move(task)), entries_(tokenizer.special()), length_(length) {
  if (length <= special())
    throw Error(Exit::usage,
                Problem{"train.batch.block",
                        str("more than ", special(), ", the number of special tokens of an input sequence"),
                        str(length), "raise train.batch.block"});
  for (int64_t i = 0; i < size(); ++i) {
    const auto run = static_cast<size_t>(3 * i);
    const auto [first, second] = truncated_lengths(i);
    if (first + second < runs_.length(run) + runs_.length(run + 1)) ++truncated_;
    if (runs_.length(run + 2) == 0) ++unlabelled_;
  }
}

std::pair<int64_t, int64_t> Classification::truncated_lengths(int64_t i) const {
  const auto run = static_cast<size_t>(3 * i);
  const int64_t room = length_ - special();
  if (task_.sentences == 1) return {std::min(runs_.length(run), room), 0};
  return truncate_lengths(runs_.length(run), runs_.length(run + 1), room);
}

int64_t Classification::length(int64_t i) const {
  const auto [first, second] = truncated_lengths(i);
  return special() + first + second;
}

Example Classification::make(int64_t i) const {
  const auto run = static_cast<size_t>(3 * i);
  const auto [first, second] = truncated_lengths(i);
  Example result;
  result.tokens.push_back(entries_.start);
  const auto add = [&](size_t of, int64_t count) {
    const size_t at = result.tokens.size();
    result.tokens.resize(at + static_cast<size_t>(count));
    runs_.read(runs_.begin(of), std::span(result.tokens).subspan(at));
    result.tokens.push_back(entries_.separator);
  };
  add(run, first);
  result.first = static_cast<int32_t>(result.tokens.size());
  if (task_.sentences == 2) add(run + 1, second);
  const std::vector<int32_t> label = runs_.run(run + 2);
  result.targets.push_back(label.empty() ? -1 : label[0]);
  return result;
}

void write_predictions(ByteSink& sink, const ExampleTask& task, std::span<const double> predictions) {
  std::string text = "index\tprediction\n";
  for (size_t i = 0; i < predictions.size(); ++i) {
    const double value = predictions[i];
    text += std::to_string(i) + "\t";
    text += task.is_number() ? fixed_decimal(value, 3) : task.labels.at(static_cast<size_t>(value));
    text += "\n";
  }
  sink.write(text);
}

}  // namespace mh::text
