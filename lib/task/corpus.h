// What a model is trained on or asked about: a text, or pairs of sentences.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace mh::io {
class ShardFile;
struct PairText;
struct Tokenizers;
}  // namespace mh::io

namespace mh::task {

// A text to read from; what it was made of must outlive it.
struct Text {
  int64_t tokens = 0;
  int32_t end_of_line = 0;
  std::function<void(int64_t first, std::span<int32_t> out)> read;  // tokens [first, first + out.size())
};
Text text_of(const io::ShardFile& shard, int32_t end_of_line);
Text text_of(const std::vector<int32_t>& tokens, int32_t end_of_line);

// Sentences and what they are in other words, to read from; what they were made of must outlive them. Each side ends
// with its vocabulary's end-of-line token.
struct Pairs {
  // Where each run ends among all tokens: the first source, its target, the second source, … ; of a sentence alone,
  // which is to be translated, the target is empty.
  std::vector<uint64_t> ends;
  std::vector<int64_t> targets_before;  // of each pair: tokens of the targets in front of it
  int64_t targets = 0;                  // of all pairs
  int64_t longest = 0;                  // tokens of the longest side
  int32_t source_end = 0, target_end = 0;
  std::function<void(uint64_t first, std::span<int32_t> out)> read;

  int64_t size() const { return static_cast<int64_t>(targets_before.size()); }
  int64_t source_length(int64_t pair) const { return length(2 * static_cast<size_t>(pair)); }
  int64_t target_length(int64_t pair) const { return length(2 * static_cast<size_t>(pair) + 1); }
  std::vector<int32_t> source(int64_t pair) const { return run(2 * static_cast<size_t>(pair)); }
  std::vector<int32_t> target(int64_t pair) const { return run(2 * static_cast<size_t>(pair) + 1); }

 private:
  uint64_t begin(size_t run) const { return run == 0 ? 0 : ends[run - 1]; }
  int64_t length(size_t run) const { return static_cast<int64_t>(ends[run] - begin(run)); }
  std::vector<int32_t> run(size_t run) const;
};
Pairs pairs_of(const io::ShardFile& shard, int32_t source_end, int32_t target_end);
Pairs pairs_of(const io::PairText& text, int32_t source_end, int32_t target_end);
Pairs pairs_of(std::vector<uint64_t> ends, std::function<void(uint64_t first, std::span<int32_t> out)> read,
               int32_t source_end, int32_t target_end);

using Corpus = std::variant<Text, Pairs>;
// As the shard's kind says. Error(input) for a shard of pairs that is damaged anywhere.
Corpus corpus_of(const io::ShardFile& shard, const io::Tokenizers& tokenizers);
int64_t targets_in(const Corpus& corpus);

}  // namespace mh::task
