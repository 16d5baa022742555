#include "data/batch_options.h"

#include "base/error.h"
#include "base/text.h"

namespace mh::data {

void BatchOptions::check() const {
  const std::string at_least_block = str("at least ", count_of(block, "token"), ", the value of train.batch.block");
  if (tokens < block)
    refuse_usage("train.batch.tokens", at_least_block, found_value(tokens, BatchOptions{}.tokens),
                 "raise train.batch.tokens, or lower train.batch.block");
  if (micro_tokens > 0 && micro_tokens < block)
    refuse_usage("train.batch.micro_tokens", "0, or " + at_least_block, std::to_string(micro_tokens),
                 "raise train.batch.micro_tokens, or leave train.batch.micro_tokens out");
  if (micro_tokens > 0 && micro_tokens < long_block)
    refuse_usage("train.batch.micro_tokens",
                 str("0, or at least ", count_of(long_block, "token"), ", the value of train.batch.long_block"),
                 str(micro_tokens), "raise train.batch.micro_tokens, or leave train.batch.micro_tokens out");
}

}  // namespace mh::data
