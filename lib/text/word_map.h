// The inner loop of encoding: finds the words of a text, eight bytes at a time, and looks up each word in a hash map.
// The map uses open addressing; a slot holds the first 16 bytes of its key, so most look-ups access no memory besides
// the slot, and looking up an existing word never allocates memory.
#pragma once

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace mh::text {

// Returns the eight bytes at `p` as a little-endian integer.
inline uint64_t load_eight_bytes(const char* p) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, p, 8);
  if constexpr (std::endian::native == std::endian::big) bytes = __builtin_bswap64(bytes);
  return bytes;
}

// A word with its hash and its first 16 bytes, stored as two integers and padded with zeros. The two integers and the
// length identify a word of up to 16 bytes.
struct WordKey {
  static constexpr size_t kPrefixBytes = 16;
  std::string_view text;
  uint64_t prefix_low = 0, prefix_high = 0;
  uint64_t hash = 0;

  WordKey() = default;
  // `readable_end` is the end of the memory that may be read, at or after the end of `word`. If 16 bytes are readable,
  // they are loaded without a copy of the word.
  WordKey(std::string_view word, const char* readable_end) : text(word) {
    const size_t size = text.size();
    if (readable_end - text.data() >= static_cast<ptrdiff_t>(kPrefixBytes)) {
      prefix_low = first_bytes(load_eight_bytes(text.data()), size);
      prefix_high = size <= 8 ? 0 : first_bytes(load_eight_bytes(text.data() + 8), size - 8);
    } else if (size > 0) {
      char copy[kPrefixBytes] = {};
      std::memcpy(copy, text.data(), size);
      prefix_low = load_eight_bytes(copy);
      prefix_high = load_eight_bytes(copy + 8);
    }
    hash = size <= kPrefixBytes ? mix_hash(prefix_low, prefix_high ^ size) : XXH3_64bits(text.data(), size);
  }
  explicit WordKey(std::string_view word) : WordKey(word, word.data() + word.size()) {}

 private:
  // Returns the first `n` of eight bytes, followed by zeros.
  static uint64_t first_bytes(uint64_t bytes, size_t n) {
    return n >= 8 ? bytes : bytes & ((uint64_t{1} << (8 * n)) - 1);
  }
  // Mixes two integers as wyhash does: XOR of both halves of a 128-bit product.
  static uint64_t mix_hash(uint64_t a, uint64_t b) {
    auto product = static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15) * (b ^ 0xBF58476D1CE4E5B9);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
};

// Returns the end of the word that starts at `p`: the next byte for which is_space() holds, or `end`. is_space() must
// be false for bytes above 0x20.
template <class IsSpace>
const char* word_end(const char* p, const char* end, const IsSpace& is_space) {
  for (; end - p >= 8; p += 8) {
    uint64_t bytes = load_eight_bytes(p);
    // Sets the high bit of every byte whose value is at most 0x20 and, owing to borrows, of some bytes after such a
    // byte. The loop below therefore checks each candidate with is_space().
    uint64_t hits = (bytes - 0x2121212121212121) & ~bytes & 0x8080808080808080;
    for (; hits != 0; hits &= hits - 1)
      if (const char* hit = p + std::countr_zero(hits) / 8; is_space(*hit)) return hit;
  }
  while (p < end && !is_space(*p)) ++p;
  return p;
}

// Calls visit(WordKey) for every word of `text`, in order; is_space() must be false for bytes above 0x20.
template <class IsSpace, class Visit>
void for_each_word(std::string_view text, const IsSpace& is_space, const Visit& visit) {
  const char* p = text.data();
  const char* end = p + text.size();
  for (;;) {
    while (p < end && is_space(*p)) ++p;
    if (p == end) return;
    const char* begin = p;
    p = word_end(p, end, is_space);
    visit(WordKey({begin, static_cast<size_t>(p - begin)}, end));
  }
}
template <class Visit>
void for_each_word(std::string_view text, const Visit& visit) {
  for_each_word(
      text, [](char c) { return is_word_space(c); }, visit);
}

template <class Value>
class WordMap {
 public:
  WordMap() : slots_(1) {}

  Value* find(const WordKey& key) {
    Slot& s = slots_[locate(key)];
    return s.is_used() ? &s.value : nullptr;
  }
  const Value* find(const WordKey& key) const { return const_cast<WordMap*>(this)->find(key); }
  Value* find(std::string_view key) { return find(WordKey(key)); }
  // Prefetches the slot of `key`, so that the memory accesses of several look-ups overlap.
  void prefetch(const WordKey& key) const { __builtin_prefetch(&slots_[key.hash & (slots_.size() - 1)]); }
  // Returns the value of `key`; inserts Value{} for a new key.
  Value& operator[](const WordKey& key) {
    size_t index = locate(key);
    if (!slots_[index].is_used()) {
      if (!has_room_for(size_ + 1)) {
        resize(std::max(2 * slots_.size(), kMinGrownSlots));
        index = locate(key);
      }
      slots_[index] = {key.prefix_low, key.prefix_high, static_cast<uint32_t>(key.text.size()), Value{}, keys_.size()};
      keys_.insert(keys_.end(), key.text.begin(), key.text.end());
      ++size_;
    }
    return slots_[index].value;
  }
  Value& operator[](std::string_view key) { return (*this)[WordKey(key)]; }
  size_t size() const { return size_; }
  void clear() { *this = WordMap(); }
  void reserve(size_t num_entries) {
    if (!has_room_for(num_entries)) resize(std::bit_ceil(num_entries / 3 * 4 + 4));
  }
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const Slot& s : slots_)
      if (s.is_used()) visit(text_of(s), s.value);
  }

 private:
  static constexpr uint32_t kFreeLength = UINT32_MAX;  // Slot::length of a free slot
  static constexpr size_t kMinGrownSlots = 1 << 12;  // minimum number of slots after an insertion has enlarged the map
  // Slots with small values are 32 bytes, two in a cache line, so that no slot crosses the end of a cache line.
  struct alignas(sizeof(Value) <= 4 ? 32 : 8) Slot {
    uint64_t prefix_low = 0, prefix_high = 0;
    uint32_t length = kFreeLength;
    Value value{};
    size_t key_offset = 0;  // offset of the key's bytes in `keys_`
    bool is_used() const { return length != kFreeLength; }
  };
  std::string_view text_of(const Slot& s) const { return {keys_.data() + s.key_offset, s.length}; }
  // Returns whether the load factor with `num_entries` keys is at most 3/4. This limit costs little, since vocabularies
  // insert frequent words first, so that frequent words usually occupy the first slot of their probe sequence.
  bool has_room_for(size_t num_entries) const { return 4 * num_entries <= 3 * slots_.size(); }
  // Returns the index of the slot of `key`, or of the free slot that an insertion of `key` would use.
  size_t locate(const WordKey& key) const {
    const size_t mask = slots_.size() - 1;
    for (size_t index = key.hash & mask;; index = (index + 1) & mask) {
      const Slot& s = slots_[index];
      if (!s.is_used()) return index;
      if (s.prefix_low == key.prefix_low && s.prefix_high == key.prefix_high && s.length == key.text.size() &&
          (s.length <= WordKey::kPrefixBytes || text_of(s) == key.text))
        return index;
    }
  }
  void resize(size_t num_slots) {
    std::vector<Slot> old_slots(num_slots);
    old_slots.swap(slots_);
    for (const Slot& s : old_slots)
      if (s.is_used()) slots_[locate(WordKey(text_of(s)))] = s;
  }
  std::vector<Slot> slots_;
  std::vector<char> keys_;
  size_t size_ = 0;
};

}  // namespace mh::text
