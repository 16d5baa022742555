#include "text/records/classification.h"

#include <algorithm>

#include "base/error.h"

namespace mh::text {

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

}  // namespace mh::text
