// Small shards of pairs, and translation models of a few numbers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "folder.h"
#include "io/shard.h"
#include "text/tokenizer.h"
#include "text/tokenizers.h"

namespace pairs {

using namespace mh;
using Sentence = std::vector<int32_t>;  // without its end
using Sentences = std::vector<std::pair<Sentence, Sentence>>;

// Of `words` words w2, w3, … behind the line's end 0 and the unknown 1.
inline std::unique_ptr<text::Tokenizer> vocabulary(int words) {
  std::vector<text::Piece> pieces{{"<eos>", 1}, {"<unk>", 0}};
  for (int i = 0; i < words; ++i) pieces.push_back({str("w", i + 2), 1});
  return text::make_word_tokenizer(pieces);
}

inline void write(const std::string& path, const Sentences& all, int source_words, int target_words) {
  const auto source = vocabulary(source_words), target = vocabulary(target_words);
  io::ShardHeader h = text::header_of(*target);
  if (source_words != target_words)
    h.source_vocabulary = source->size(), h.source_fingerprint = source->fingerprint(),
    h.source_tokenizer = source->serialize();
  h.hold(io::kPairsKind);
  auto sink = open_sink(path);
  io::ShardWriter writer(*sink, h);
  for (auto [from, to] : all) {
    from.push_back(0), to.push_back(0);
    writer.add_run(from);
    writer.add_run(to);
  }
  writer.finish();
  sink->close();
}

// Sentences of 0 to 9 words below 12; each word's translation is the word, the next word where it repeats.
inline Sentences some(int count, int target_words = 10) {
  Sentences all;
  uint32_t state = 7;
  const auto draw = [&](uint32_t below) {
    state = state * 1664525 + 1013904223;
    return static_cast<int32_t>((state >> 16) % below);
  };
  for (int i = 0; i < count; ++i) {
    Sentence from, to;
    for (int32_t n = draw(10); n > 0; --n) from.push_back(2 + draw(10));
    for (int32_t w : from) to.push_back(2 + (w - 2) % target_words);
    if (i % 3 == 0 && !to.empty()) to.push_back(to.back());
    all.emplace_back(from, to);
  }
  return all;
}

}  // namespace pairs
