#include "data/mixed_batches.h"

#include "base/random.h"
#include "data/corpus.h"

namespace mh::data {

int64_t seed_of_shard(int64_t seed, int64_t shard) {
  if (shard == 0) return seed;
  RandomSequence random(RandomStream(static_cast<uint64_t>(seed), "shards"), static_cast<uint32_t>(shard));
  return static_cast<int64_t>(random.next_u64() >> 1);  // a seed is not negative
}

std::unique_ptr<Batches> mix_batches(const std::vector<WeightedCorpus>& shards, const BatchOptions& options,
                                     int64_t seed) {
  std::vector<Text> texts;
  std::vector<std::string> names;
  std::vector<double> weights;
  for (const WeightedCorpus& shard : shards) {
    if (const Text* text = shard.corpus->as_text(); text != nullptr && options.order != BatchOrder::sentences)
      texts.push_back(*text);
    names.push_back(shard.name);
    weights.push_back(shard.weight);
  }
  if (!texts.empty()) return mix_texts(std::move(texts), names, weights, options, seed);
  std::vector<std::unique_ptr<Batches>> batches;
  std::vector<int64_t> num_targets;
  for (size_t i = 0; i < shards.size(); ++i) {
    batches.push_back(shards[i].corpus->batches(options, seed_of_shard(seed, static_cast<int64_t>(i))));
    num_targets.push_back(shards[i].corpus->num_targets());
  }
  return mix_updates(std::move(batches), num_targets, weights);
}

}  // namespace mh::data
