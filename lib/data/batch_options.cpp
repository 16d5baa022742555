#include "data/batch_options.h"

#include "base/error.h"
#include "base/text.h"

namespace mh::data {

void BatchOptions::check() const {
  const std::string at_least_length =
      str("at least ", count_of(sequence_length, "token"), ", the value of train.batch.sequence_length");
  if (tokens < sequence_length)
    refuse_usage("train.batch.tokens", at_least_length, found_value(tokens, BatchOptions{}.tokens),
                 "raise train.batch.tokens, or lower train.batch.sequence_length");
  if (micro_tokens > 0 && micro_tokens < sequence_length)
    refuse_usage("train.batch.micro_tokens", "0, or " + at_least_length, std::to_string(micro_tokens),
                 "raise train.batch.micro_tokens, or leave train.batch.micro_tokens out");
  if (micro_tokens > 0 && micro_tokens < long_sequence_length)
    refuse_usage("train.batch.micro_tokens",
                 str("0, or at least ", count_of(long_sequence_length, "token"),
                     ", the value of train.batch.long_sequence_length"),
                 str(micro_tokens), "raise train.batch.micro_tokens, or leave train.batch.micro_tokens out");
}

}  // namespace mh::data
