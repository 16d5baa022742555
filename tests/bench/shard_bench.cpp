// Measures the mean time (µs) of reading the data of one update, ROWS random blocks of BLOCK tokens, from a shard:
// shard_bench SHARD [BLOCK [ROWS [UPDATES]]]
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/random.h"
#include "io/shard.h"

int main(int argc, char** argv) {
  auto argument = [&](int i, int64_t default_value) { return argc > i ? std::atoll(argv[i]) : default_value; };
  const int64_t block = argument(2, 256), num_rows = argument(3, 16), num_updates = argument(4, 500);
  mh::io::ShardFile shard(argv[1]);
  const auto num_blocks = static_cast<int64_t>(shard.counts().num_tokens) / block - 1;
  mh::RandomSequence random(mh::RandomStream(1, "shard_bench"));
  std::vector<int32_t> tokens(static_cast<size_t>(block) + 1);
  auto start_time = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < num_updates * num_rows; ++i)
    shard.read(random.uniform_below(static_cast<uint64_t>(num_blocks)) * static_cast<uint64_t>(block), tokens);
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_time;
  std::printf("%.2f\n", elapsed.count() * 1e6 / static_cast<double>(num_updates));
}
