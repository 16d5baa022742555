// Finds the pieces of a list that are prefixes of a text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mh::text {

// Pieces in ascending order of their bytes, for look-ups of all pieces that are prefixes of a text. The list takes
// less memory than a trie.
class SortedPieces {
 public:
  // Adds a piece, which is not empty, with a value for for_each_prefix().
  void add(std::string_view piece, int32_t value) {
    entries_.push_back({bytes_.size(), static_cast<uint32_t>(piece.size()), value});
    bytes_ += piece;
  }
  // Reserves memory for pieces of `num_bytes` in total.
  void reserve(size_t num_pieces, size_t num_bytes) {
    entries_.reserve(num_pieces);
    bytes_.reserve(num_bytes);
  }
  // Must follow the last add() and precede the first for_each_prefix().
  void sort() {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [this](const Entry& a, const Entry& b) { return text_of(a) < text_of(b); });
    for (size_t i = entries_.size(); i-- > 0;) {
      Bucket& bucket = buckets_[static_cast<unsigned char>(text_of(entries_[i])[0])];
      if (bucket.end == 0) bucket.end = i + 1;
      bucket.begin = i;
    }
  }
  bool empty() const { return entries_.empty(); }
  // Returns the value of a piece that occurs several times, after sort(); -1: all pieces are distinct.
  int32_t find_repeated() const {
    const auto entry = std::adjacent_find(entries_.begin(), entries_.end(),
                                          [this](const Entry& a, const Entry& b) { return text_of(a) == text_of(b); });
    return entry == entries_.end() ? -1 : (entry + 1)->value;
  }
  // Returns the value of the piece `text`, which is not empty; -1: no such piece.
  int32_t find(std::string_view text) const {
    int32_t result = -1;
    for_each_prefix(text, [&](size_t length, int32_t value) {
      if (length == text.size()) result = value;
    });
    return result;
  }
  // Returns whether a piece starts with `byte`.
  bool has_first_byte(char byte) const { return buckets_[static_cast<unsigned char>(byte)].end > 0; }

  // Calls visit(length, value) for each piece that is a prefix of `text`, in ascending order of length. `text` is not
  // empty.
  template <class Visit>
  void for_each_prefix(std::string_view text, const Visit& visit) const {
    // The pieces [begin, end) start with the first `length` bytes of the text.
    const Bucket& bucket = buckets_[static_cast<unsigned char>(text[0])];
    auto begin = entries_.begin() + static_cast<ptrdiff_t>(bucket.begin);
    auto end = entries_.begin() + static_cast<ptrdiff_t>(bucket.end);
    for (size_t length = 1; begin != end; ++length) {
      for (; begin != end && begin->size == length; ++begin) visit(length, begin->value);
      if (length == text.size()) return;
      const auto next_byte = [&](const Entry& entry) {
        return static_cast<unsigned char>(bytes_[entry.offset + length]);
      };
      const auto byte = static_cast<unsigned char>(text[length]);
      begin = std::partition_point(begin, end, [&](const Entry& entry) { return next_byte(entry) < byte; });
      end = std::partition_point(begin, end, [&](const Entry& entry) { return next_byte(entry) == byte; });
    }
  }

 private:
  struct Entry {
    size_t offset;  // of the piece in `bytes_`
    uint32_t size;
    int32_t value;
  };
  struct Bucket {
    size_t begin = 0, end = 0;
  };
  std::string_view text_of(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.offset, entry.size);
  }
  std::string bytes_;
  std::vector<Entry> entries_;
  Bucket buckets_[256];  // the entries by their first byte
};

}  // namespace mh::text
