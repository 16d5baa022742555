#include "metrics/ngrams.h"

#include <algorithm>
#include <bit>

namespace mh::metrics {

namespace {

constexpr uint32_t kNone = UINT32_MAX;

uint64_t key_of(uint32_t prefix, uint32_t token) { return uint64_t{prefix} << 32 | token; }

}  // namespace

void NgramMatcher::NgramIds::clear(size_t capacity) {
  const size_t slots = std::bit_ceil(2 * capacity + 2);
  slots_.assign(slots, {0, kNone});
  shift_ = 64 - std::countr_zero(slots);
  size_ = 0;
}

size_t NgramMatcher::NgramIds::locate(uint64_t key) const {
  size_t index = (key * 0x9E3779B97F4A7C15) >> shift_;  // the high bits of the product depend on all bits of the key
  while (slots_[index].id != kNone && slots_[index].key != key) index = (index + 1) & (slots_.size() - 1);
  return index;
}

uint32_t NgramMatcher::NgramIds::add(uint64_t key) {
  Slot& slot = slots_[locate(key)];
  if (slot.id == kNone) slot = {key, size_++};
  return slot.id;
}

uint32_t NgramMatcher::NgramIds::find(uint64_t key) const { return slots_[locate(key)].id; }

void NgramMatcher::assign_reference_ids(std::span<const TokenIds> references, size_t n) {
  size_t num_tokens = 0;
  for (TokenIds reference : references) num_tokens += reference.size();
  ngram_ids_.clear(num_tokens);
  max_counts_.assign(num_tokens, 0);
  counts_.assign(num_tokens, 0);
  for (size_t r = 0; r < references.size(); ++r) {
    const TokenIds tokens = references[r];
    std::vector<uint32_t>& ids = reference_ids_[r];
    ids.resize(tokens.size() < n ? 0 : tokens.size() - n + 1);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = ngram_ids_.add(key_of(ids[i], tokens[i + n - 1]));
      ++counts_[ids[i]];
    }
    for (uint32_t id : ids) max_counts_[id] = std::max(max_counts_[id], counts_[id]);
    for (uint32_t id : ids) counts_[id] = 0;
  }
}

void NgramMatcher::match(TokenIds hypothesis, std::span<const TokenIds> references, std::span<int64_t> matches) {
  reference_ids_.resize(references.size());
  for (size_t r = 0; r < references.size(); ++r) reference_ids_[r].assign(references[r].size(), 0);
  starts_.clear();
  for (size_t i = 0; i < hypothesis.size(); ++i) starts_.push_back({i, 0});
  // If no reference contains an n-gram of the hypothesis, no reference contains a longer n-gram with the same start, so
  // the start is removed from `starts_`.
  for (size_t n = 1; n <= matches.size() && !starts_.empty(); ++n) {
    assign_reference_ids(references, n);
    size_t num_matching_starts = 0;
    for (NgramStart start : starts_) {
      if (start.position + n > hypothesis.size()) break;
      start.id = ngram_ids_.find(key_of(start.id, hypothesis[start.position + n - 1]));
      if (start.id == kNone) continue;
      if (counts_[start.id]++ < max_counts_[start.id]) ++matches[n - 1];
      starts_[num_matching_starts++] = start;
    }
    starts_.resize(num_matching_starts);
  }
}

}  // namespace mh::metrics
