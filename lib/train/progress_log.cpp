#include "train/progress_log.h"

#include <chrono>

#include "base/json_types.h"
#include "base/text.h"

namespace mh::train {

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void ProgressLog::start() { last_log_time_ = monotonic_seconds(); }

void ProgressLog::add(const UpdateStep::Result& result, double seconds, const std::string& validation_summary) {
  state_.num_targets += result.num_targets;
  state_.sums_since_log.nll += result.nll;
  state_.sums_since_log.smoothed_loss += result.smoothed_loss;
  state_.sums_since_log.num_targets += result.num_targets;
  num_targets_since_log_ += result.num_targets;
  const double tokens_per_second = static_cast<double>(result.num_targets) / seconds;
  progress_text_ = str(
      "loss ", fixed_decimal(result.smoothed_loss / static_cast<double>(std::max<int64_t>(1, result.num_targets)), 3),
      "  ", with_commas(static_cast<int64_t>(tokens_per_second)), " tok/s  ", validation_summary);
}

void ProgressLog::write() {
  SumsSinceLog& sums = state_.sums_since_log;
  if (sums.num_targets == 0) return;
  const auto num_targets = static_cast<double>(sums.num_targets);
  const double nll = sums.nll / num_targets;
  const double seconds = monotonic_seconds() - last_log_time_ - validation_seconds_;
  nlohmann::ordered_json line{
      {"update", state_.update},
      {"epoch", static_cast<double>(state_.update) / static_cast<double>(batches_.updates_per_epoch())},
      {"tokens", state_.num_targets},
      {"loss", sums.smoothed_loss / num_targets},
      {"nll", nll}};
  if (logs_perplexity_) line["perplexity"] = std::exp(nll);
  line.update({{"lr", optimizer_.last_lr},
               {"gradient_norm", state_.gradient_norm},
               {"tokens_per_second", static_cast<double>(num_targets_since_log_) / std::max(seconds, 1e-9)},
               {"seconds", seconds},
               {"validation_seconds", validation_seconds_}});
  if (std::vector<double> epochs = batches_.shard_epochs(state_.update); !epochs.empty()) {
    for (double& epoch : epochs) epoch = std::round(epoch * 1e4) / 1e4;
    line["shard_epochs"] = epochs;
  }
  folder_.log(line);
  sums = {};
  num_targets_since_log_ = 0;
  last_log_time_ = monotonic_seconds();
  validation_seconds_ = 0;
}

}  // namespace mh::train
