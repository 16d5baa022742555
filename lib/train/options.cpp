#include "train/options.h"

#include "base/config.h"
#include "base/error.h"
#include "base/text.h"

namespace mh::train {

namespace {

std::string written(DecodeOptions options) {
  TomlWriter writer;
  writer.section("train.decode", options);
  return writer.text();
}

}  // namespace

void TrainOptions::check() const {
  auto refuse = [](const char* key, const std::string& expected, const std::string& found, const std::string& next) {
    throw Error(Exit::usage, Problem{key, expected, found, next});
  };
  const std::string least = str("at least a block of ", block, " tokens");
  if (batch_tokens < block)
    refuse("train.batch_tokens", least, std::to_string(batch_tokens), "raise it, or lower train.block");
  if (micro_tokens > 0 && micro_tokens < block)
    refuse("train.micro_tokens", "0, or " + least, std::to_string(micro_tokens), "");
  if (micro_tokens > 0 && micro_tokens < long_block)
    refuse("train.micro_tokens", str("0, or a row of train.long_block, ", long_block), str(micro_tokens), "");
  if (betas.size() != 2) refuse("train.betas", "two numbers", std::to_string(betas.size()), "such as [0.9, 0.98]");
  for (double beta : betas)
    if (beta >= 1) refuse("train.betas", "numbers below 1", str(beta), "such as [0.9, 0.98]");
  if (keep_by == "best" && keep == 0)
    refuse("train.keep_by", "train.keep, how many models are kept, or newest", keep_by, "such as train.keep=5");
  if (min_improvement > 0 && patience == 0)
    refuse("train.min_improvement", "train.patience, which it is for, or 0", str(min_improvement), "");
  decode.bleu.check();
  if (const auto set = changes(written({}), written(decode), {"train.decode."}); !set.empty() && validate_by != "bleu")
    refuse("train.decode", "train.validate_by=bleu, which it is for", join(set, "; "), "");
  if (warmup_share > 0 && warmup.count > 0)
    refuse("train.warmup_share", "either this or train.warmup", str(warmup_share, " and ", to_string(warmup)), "");
  if (decay_from == "start") {
    if (schedule != "linear" && schedule != "cosine")
      refuse("train.decay_from", "warmup, or train.schedule=linear or cosine", str("start with ", schedule), "");
    if (period.count > 0)
      refuse("train.decay_from", "warmup, from whose end the cycles of train.period count, or no period",
             str("start and train.period=", to_string(period)), "");
  }
  if (schedule == "cyclic-cosine" && period.count == 0)
    refuse("train.period", "half a cycle of the schedule cyclic-cosine", "nothing", "such as 16000u");
}

}  // namespace mh::train
