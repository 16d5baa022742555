#include "text/records/runs.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "io/shard.h"
#include "text/records/whole_shard.h"

namespace mh::text {

std::vector<int32_t> Runs::run(size_t run) const {
  std::vector<int32_t> tokens(static_cast<size_t>(length(run)));
  read(begin(run), tokens);
  return tokens;
}

Runs runs_of(const io::ShardFile& shard) {
  const std::vector<uint32_t>& lengths = shard.run_lengths();
  std::vector<uint64_t> ends(lengths.size());
  std::inclusive_scan(lengths.begin(), lengths.end(), ends.begin(), std::plus<>(), uint64_t{0});
  return {std::move(ends), [&shard](uint64_t first, std::span<int32_t> out) { shard.read(first, out); }};
}

Runs runs_of(const RunText& text) {
  return {text.ends, [&text](uint64_t first, std::span<int32_t> out) {
            std::copy_n(text.tokens.begin() + static_cast<int64_t>(first), out.size(), out.begin());
          }};
}

}  // namespace mh::text
