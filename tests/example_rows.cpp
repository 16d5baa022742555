// The rows that a model reads of a shard of examples, for the check against the package transformers:
// example-rows SHARD LENGTH prints a line for each: its label, how many tokens are of the first segment, its tokens.
#include <cstdio>
#include <string>

#include "io/tokenizers.h"
#include "task/classification.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const mh::io::ShardFile shard(argv[1]);
  shard.verify();
  const auto tokenizers = mh::io::tokenizers_of(shard.header(), argv[1]);
  const mh::task::Classification rows(mh::task::runs_of(shard), mh::io::task_of(shard.header(), argv[1]),
                                      mh::io::require_wordpiece(*tokenizers.target, argv[1]), std::stoll(argv[2]));
  for (int64_t i = 0; i < rows.size(); ++i) {
    const mh::task::Example row = rows.make(i);
    std::printf("%lld %d", static_cast<long long>(row.targets[0]), row.first);
    for (int32_t token : row.tokens) std::printf(" %d", token);
    std::putchar('\n');
  }
}
