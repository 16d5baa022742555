// Counter-based random numbers: a number is a pure function of (seed, stream name, update, site, position), where the
// site is a number that distinguishes the users of a stream, such as a layer. Dropout therefore draws the same bits in
// the composed and in the fused path, with any number of threads, and after a resume, and no generator state is saved.
//
// Source: Philox-4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace mh {

// Applies ten rounds of Philox to a 128-bit counter, with a 64-bit key.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Returns the 64-bit FNV-1a hash, stable across machines and versions; used for stream names.
uint64_t stable_hash(std::string_view text);

// A named stream of random numbers. Streams with different names or seeds are independent.
class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view name);

  // Returns the four 32-bit words at (update, site, block); block b holds the words of positions 4b … 4b+3.
  std::array<uint32_t, 4> words(uint32_t update, uint32_t site, uint64_t block) const {
    return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), site, update}, key_);
  }
  // Returns a uniform number in [0, 1) with 24 bits.
  float uniform(uint32_t update, uint32_t site, uint64_t position) const;
  std::array<uint32_t, 2> key() const { return key_; }

 private:
  std::array<uint32_t, 2> key_;
};

// A sequence drawn from one (update, site) of a stream, for shuffles, initial values and sampling.
class RandomSequence {
 public:
  explicit RandomSequence(const RandomStream& stream, uint32_t update = 0, uint32_t site = 0);
  uint32_t next_u32();
  uint64_t next_u64();
  double uniform();  // [0, 1), 53 bits
  double normal();   // mean 0, standard deviation 1 (Box–Muller)
  // Returns a uniform integer in [0, bound), without bias. Throws std::logic_error if `bound` is 0.
  uint64_t uniform_below(uint64_t bound);
  void shuffle(std::vector<int64_t>& values);  // in place, Fisher–Yates

 private:
  RandomStream stream_;
  uint32_t update_, site_;
  uint64_t block_ = 0;
  int word_index_ = 4;
  std::array<uint32_t, 4> words_{};
  bool has_spare_ = false;
  double spare_normal_ = 0;
};

}  // namespace mh
