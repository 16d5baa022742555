#include "task/corpus.h"

#include <algorithm>

#include "io/shard.h"
#include "task/example_options.h"
#include "text/records/whole_shard.h"
#include "text/tokenizers.h"

namespace mh::task {

Text text_of(const io::ShardFile& shard, int32_t end_of_line) {
  return {static_cast<int64_t>(shard.counts().tokens), end_of_line,
          [&shard](int64_t first, std::span<int32_t> out) { shard.read(static_cast<uint64_t>(first), out); }};
}

Text text_of(const std::vector<int32_t>& tokens, int32_t end_of_line) {
  return {static_cast<int64_t>(tokens.size()), end_of_line, [&tokens](int64_t first, std::span<int32_t> out) {
            std::copy_n(tokens.begin() + first, out.size(), out.begin());
          }};
}

Pairs pairs_of(text::Runs runs, int32_t source_end, int32_t target_end) {
  Pairs p;
  static_cast<text::Runs&>(p) = std::move(runs);
  p.source_end = source_end, p.target_end = target_end;
  const size_t count = p.ends.size() / 2;
  p.targets_before.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto pair = static_cast<int64_t>(i);
    p.targets_before.push_back(p.targets);
    p.targets += p.target_length(pair);
    p.longest = std::max({p.longest, p.source_length(pair), p.target_length(pair)});
  }
  return p;
}

Pairs pairs_of(const io::ShardFile& shard, int32_t source_end, int32_t target_end) {
  return pairs_of(text::runs_of(shard), source_end, target_end);
}

Pairs pairs_of(const text::PairText& text, int32_t source_end, int32_t target_end) {
  return pairs_of(text::runs_of(text), source_end, target_end);
}

Corpus corpus_of(const io::ShardFile& shard, const text::Tokenizers& tokenizers, const ExampleOptions& how) {
  const std::string& kind = shard.header().kind;
  if (kind == io::kDocumentsKind || kind == io::kExamplesKind || kind == io::kQuestionsKind)
    return examples_of(shard, tokenizers, how);
  const int32_t end = tokenizers.target->end_of_line();
  if (kind == io::kPairsKind) {
    text::verify(shard);  // a token beyond the vocabulary of its side would be an index into nothing
    return pairs_of(shard, tokenizers.of_source().end_of_line(), end);
  }
  return text_of(shard, end);
}

void require_targets(const Corpus& corpus, const std::string& name) {
  if (const auto* examples = std::get_if<Examples>(&corpus)) require_targets(*examples, name);
}

int64_t targets_in(const Corpus& corpus) {
  if (const auto* text = std::get_if<Text>(&corpus)) return text->tokens;
  if (const auto* examples = std::get_if<Examples>(&corpus)) return examples->size();
  return std::get<Pairs>(corpus).targets;
}

}  // namespace mh::task
