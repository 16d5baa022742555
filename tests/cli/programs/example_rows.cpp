// Prints the model inputs of a shard of examples, for comparisons and benchmarks against the package `transformers`:
// example-rows SHARD LENGTH prints one line per example: label, number of tokens in the first segment, token ids.
// LENGTH: maximum number of tokens in a row, special tokens included.
#include <cstdio>
#include <string>

#include "text/records/classification.h"
#include "text/records/whole_shard.h"
#include "text/tokenizers.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const mh::io::ShardFile shard(argv[1]);
  mh::text::verify(shard);
  const auto tokenizers = mh::text::tokenizers_of(shard.header(), argv[1]);
  const mh::text::ClassificationExamples rows(mh::text::sequences_of(shard), mh::text::task_of(shard.header(), argv[1]),
                                              mh::text::require_wordpiece(*tokenizers.target, argv[1]),
                                              std::stoll(argv[2]));
  for (int64_t i = 0; i < rows.size(); ++i) {
    const mh::text::Example row = rows.make(i);
    std::printf("%lld %d", static_cast<long long>(row.targets[0]), row.first_segment_length);
    for (int32_t token : row.tokens) std::printf(" %d", token);
    std::putchar('\n');
  }
}
