#include "base/random.h"

#include <cmath>
#include <stdexcept>

namespace mh {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53} * c[0];
    uint64_t b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

uint64_t stable_hash(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3;
  return h;
}

RandomStream::RandomStream(uint64_t seed, std::string_view name) {
  // One call of Philox hashes the seed and the name to the key, so that neighbouring seeds give unrelated keys.
  uint64_t h = stable_hash(name);
  auto w = philox4x32({static_cast<uint32_t>(h), static_cast<uint32_t>(h >> 32), static_cast<uint32_t>(seed),
                       static_cast<uint32_t>(seed >> 32)},
                      {0x6d756c74, 0x69686561});  // arbitrary key: ASCII codes of "mult" and "ihea"
  key_ = {w[0], w[1]};
}

float RandomStream::uniform(uint32_t update, uint32_t site, uint64_t position) const {
  return static_cast<float>(words(update, site, position / 4)[position % 4] >> 8) * 0x1p-24F;
}

RandomSequence::RandomSequence(const RandomStream& stream, uint32_t update, uint32_t site)
    : stream_(stream), update_(update), site_(site) {}

uint32_t RandomSequence::next_u32() {
  if (word_index_ == 4) {
    words_ = stream_.words(update_, site_, block_++);
    word_index_ = 0;
  }
  return words_[word_index_++];
}

uint64_t RandomSequence::next_u64() {
  uint64_t low = next_u32();
  return low | uint64_t{next_u32()} << 32;
}

double RandomSequence::uniform() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

double RandomSequence::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_normal_;
  }
  double radius = std::sqrt(-2 * std::log(1 - uniform()));
  double angle = 2 * M_PI * uniform();
  spare_normal_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

uint64_t RandomSequence::uniform_below(uint64_t bound) {
  if (bound == 0) throw std::logic_error("RandomSequence::uniform_below: expected a bound of at least 1; found 0");
  // Lemire's multiplication method, which rejects the few low products that would favour some values.
  uint64_t threshold = -bound % bound;
  for (;;) {
    unsigned __int128 product = static_cast<unsigned __int128>(next_u64()) * bound;
    if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
  }
}

void RandomSequence::shuffle(std::vector<int64_t>& values) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[uniform_below(i)]);
}

}  // namespace mh
