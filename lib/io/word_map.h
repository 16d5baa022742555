// A hash table from byte strings to values, made for the inner loop of encoding: open addressing, keys in one arena, no
// allocation for a word that is there already.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace mh::io {

template <class Value>
class WordMap {
 public:
  WordMap() : slots_(1 << 12) {}

  Value* find(std::string_view key) {
    size_t at = locate(key, hash(key));
    return slots_[at].used ? &slots_[at].value : nullptr;
  }
  // The value of `key`, made with Value{} where it is new.
  Value& operator[](std::string_view key) {
    uint64_t h = hash(key);
    size_t at = locate(key, h);
    if (!slots_[at].used) {
      if (2 * (size_ + 1) > slots_.size()) {
        grow();
        at = locate(key, h);
      }
      slots_[at] = {static_cast<uint32_t>(h >> 32), static_cast<uint32_t>(key.size()), keys_.size(), Value{}, true};
      keys_.insert(keys_.end(), key.begin(), key.end());
      ++size_;
    }
    return slots_[at].value;
  }
  size_t size() const { return size_; }
  size_t key_bytes() const { return keys_.size(); }
  void clear() { *this = WordMap(); }
  template <class Visit>
  void each(const Visit& visit) const {
    for (const Slot& s : slots_)
      if (s.used) visit(std::string_view(keys_.data() + s.key, s.length), s.value);
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    uint32_t length = 0;
    size_t key = 0;
    Value value{};
    bool used = false;
  };
  static uint64_t hash(std::string_view key) { return XXH3_64bits(key.data(), key.size()); }
  size_t locate(std::string_view key, uint64_t h) const {
    const size_t mask = slots_.size() - 1;
    for (size_t at = h & mask;; at = (at + 1) & mask) {
      const Slot& s = slots_[at];
      if (!s.used) return at;
      if (s.tag == static_cast<uint32_t>(h >> 32) && s.length == key.size() &&
          std::memcmp(keys_.data() + s.key, key.data(), key.size()) == 0)
        return at;
    }
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& s : old)
      if (s.used) {
        std::string_view key(keys_.data() + s.key, s.length);
        slots_[locate(key, hash(key))] = s;
      }
  }
  std::vector<Slot> slots_;
  std::vector<char> keys_;
  size_t size_ = 0;
};

}  // namespace mh::io
