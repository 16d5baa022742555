#include "train/progress_log.h"

#include <chrono>

#include "base/json_types.h"
#include "base/text.h"

namespace mh::train {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void ProgressLog::start() { logged_at_ = now(); }

void ProgressLog::add(const UpdateStep::Result& sums, double seconds, const std::string& validation) {
  state_.tokens += sums.tokens;
  state_.since_log.nll += sums.nll;
  state_.since_log.smoothed += sums.smoothed;
  state_.since_log.counted += sums.tokens;
  timed_tokens_ += sums.tokens;
  const double speed = static_cast<double>(sums.tokens) / seconds;
  note_ = str("loss ", rounded(sums.smoothed / static_cast<double>(std::max<int64_t>(1, sums.tokens)), 3), "  ",
              with_commas(static_cast<int64_t>(speed)), " tok/s  ", validation);
}

void ProgressLog::write() {
  LogSums& sums = state_.since_log;
  if (sums.counted == 0) return;
  const auto counted = static_cast<double>(sums.counted);
  const double nll = sums.nll / counted;
  const double seconds = now() - logged_at_ - validation_seconds_;
  nlohmann::ordered_json line{
      {"update", state_.update},
      {"epoch", static_cast<double>(state_.update) / static_cast<double>(batches_.updates_per_epoch())},
      {"tokens", state_.tokens},
      {"loss", sums.smoothed / counted},
      {"nll", nll}};
  if (perplexity_) line["perplexity"] = std::exp(nll);
  line.update({{"lr", optimizer_.last_lr},
               {"gradient_norm", state_.norm},
               {"tokens_per_second", static_cast<double>(timed_tokens_) / std::max(seconds, 1e-9)},
               {"seconds", seconds},
               {"validation_seconds", validation_seconds_}});
  folder_.log(line);
  sums = {};
  timed_tokens_ = 0;
  logged_at_ = now();
  validation_seconds_ = 0;
}

}  // namespace mh::train
