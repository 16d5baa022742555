// What a model is trained on or asked about: a text, or pairs of sentences.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "task/examples.h"
#include "text/records/runs.h"

namespace mh::text {
struct PairText;
struct Tokenizers;
}  // namespace mh::text

namespace mh::task {

struct ExampleOptions;  // example_options.h

// A text to read from; what it was made of must outlive it.
struct Text {
  int64_t tokens = 0;
  int32_t end_of_line = 0;
  std::function<void(int64_t first, std::span<int32_t> out)> read;  // tokens [first, first + out.size())
};
Text text_of(const io::ShardFile& shard, int32_t end_of_line);
Text text_of(const std::vector<int32_t>& tokens, int32_t end_of_line);

// Sentences and what they are in other words. Each side ends with its vocabulary's end-of-line token. The runs: the
// first source, its target, the second source, … ; of a sentence alone, which is to be translated, the target is empty.
struct Pairs : text::Runs {
  std::vector<int64_t> targets_before;  // of each pair: tokens of the targets in front of it
  int64_t targets = 0;                  // of all pairs
  int64_t longest = 0;                  // tokens of the longest side
  int32_t source_end = 0, target_end = 0;

  int64_t size() const { return static_cast<int64_t>(targets_before.size()); }
  int64_t source_length(int64_t pair) const { return length(2 * static_cast<size_t>(pair)); }
  int64_t target_length(int64_t pair) const { return length(2 * static_cast<size_t>(pair) + 1); }
  std::vector<int32_t> source(int64_t pair) const { return run(2 * static_cast<size_t>(pair)); }
  std::vector<int32_t> target(int64_t pair) const { return run(2 * static_cast<size_t>(pair) + 1); }
};
Pairs pairs_of(const io::ShardFile& shard, int32_t source_end, int32_t target_end);
Pairs pairs_of(const text::PairText& text, int32_t source_end, int32_t target_end);
Pairs pairs_of(text::Runs runs, int32_t source_end, int32_t target_end);

using Corpus = std::variant<Text, Pairs, Examples>;
// As the shard's kind says; `how` is for rows of examples. Error(input) for a shard that is damaged anywhere, but for
// one of a text, which is checked where it is read.
Corpus corpus_of(const io::ShardFile& shard, const text::Tokenizers& tokenizers, const ExampleOptions& how);
// Tokens, or rows of examples.
int64_t targets_in(const Corpus& corpus);
// Error(input) for examples, from a shard of this name, none of which has a label or an answer.
void require_targets(const Corpus& corpus, const std::string& name);

}  // namespace mh::task
