#include "cpu/dropout.h"

#include "cpu/target.h"

namespace mh::kernels {

namespace {

constexpr int kBlocks = 64;  // Philox blocks at once: 256 positions

}  // namespace

MH_VECTOR_LOOP
static void words(const DropoutPlan& plan, uint64_t block, uint32_t* out) {
  uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (int i = 0; i < kBlocks; ++i) {
    uint64_t b = block + static_cast<uint64_t>(i);
    c0[i] = static_cast<uint32_t>(b);
    c1[i] = static_cast<uint32_t>(b >> 32);
    c2[i] = plan.site;
    c3[i] = plan.update;
  }
  uint32_t k0 = plan.key[0], k1 = plan.key[1];
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kBlocks; ++i) {
      uint64_t a = uint64_t{0xD2511F53} * c0[i];
      uint64_t b = uint64_t{0xCD9E8D57} * c2[i];
      uint32_t n0 = static_cast<uint32_t>(b >> 32) ^ c1[i] ^ k0;
      uint32_t n2 = static_cast<uint32_t>(a >> 32) ^ c3[i] ^ k1;
      c0[i] = n0;
      c1[i] = static_cast<uint32_t>(b);
      c2[i] = n2;
      c3[i] = static_cast<uint32_t>(a);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int i = 0; i < kBlocks; ++i) {
    out[4 * i] = c0[i];
    out[4 * i + 1] = c1[i];
    out[4 * i + 2] = c2[i];
    out[4 * i + 3] = c3[i];
  }
}

void dropout(const DropoutPlan& plan, uint64_t first, int64_t count, const float* x, float* out) {
  uint32_t w[4 * kBlocks];
  int64_t done = 0;
  while (done < count) {
    uint64_t position = first + static_cast<uint64_t>(done);
    words(plan, position / 4, w);
    const auto skip = static_cast<int64_t>(position % 4);
    int64_t n = 4 * kBlocks - skip;
    if (n > count - done) n = count - done;
    for (int64_t i = 0; i < n; ++i) out[done + i] = w[skip + i] >= plan.threshold ? x[done + i] * plan.scale : 0.0F;
    done += n;
  }
}

}  // namespace mh::kernels
