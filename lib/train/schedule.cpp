#include "train/schedule.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace mh::train {

namespace {

// Returns the cosine decay from `high` (t = 0) to `low` (t = 1).
double cosine(double low, double high, double t) { return low + 0.5 * (high - low) * (1 + std::cos(M_PI * t)); }

// Returns the learning rate of the cosine schedule with cycles, after `num_completed` updates; cycles start at the end
// of the warm-up.
double cosine_cycles(const TrainOptions& o, const ScheduleLengths& lengths, int64_t num_completed) {
  auto t = static_cast<double>(num_completed - lengths.warmup), period = static_cast<double>(lengths.period);
  double scale = 1;
  while (t >= period) {
    t -= period;
    period *= o.schedule.period_growth;
    scale *= o.schedule.period_shrink;
  }
  return cosine(scale * o.schedule.min_lr, scale * o.lr, t / period);
}

// Throws Error(usage) unless a restart is after the first warm-up and leaves updates for the second schedule. Lengths
// that are unknown without data are 0 and are not checked.
void check_restart(const TrainOptions& o, const ScheduleLengths& lengths) {
  if (lengths.restart == 0) return;
  if (lengths.restart <= lengths.warmup)
    refuse_usage("train.schedule.restart", str("more than the warm-up, ", count_of(lengths.warmup, "update")),
                 to_string(o.schedule.restart), "raise train.schedule.restart, or shorten the warm-up");
  if (lengths.total_updates > 0 && lengths.restart_warmup >= lengths.total_updates - lengths.restart)
    refuse_usage(
        "train.schedule.restart",
        str("a start of the second schedule whose warm-up ends before the end of the schedule, ",
            count_of(lengths.total_updates, "update")),
        str(to_string(o.schedule.restart), " and train.schedule.restart_warmup=", to_string(o.schedule.restart_warmup)),
        str("lower train.schedule.restart or train.schedule.restart_warmup, or raise ",
            o.schedule.length.count > 0 ? "train.schedule.length" : "train.length"));
}

}  // namespace

int64_t warmup_from_ratio(const TrainOptions& o, int64_t total_updates) {
  const double num_updates = o.schedule.warmup_ratio * static_cast<double>(total_updates);
  return static_cast<int64_t>(o.schedule.decay_from == "start" ? std::floor(num_updates) : std::ceil(num_updates));
}

ScheduleLengths schedule_lengths(const TrainOptions& o, int64_t end,
                                 const std::function<int64_t(const Length&)>& to_updates) {
  ScheduleLengths lengths;
  lengths.total_updates = o.schedule.length.count > 0 ? to_updates(o.schedule.length) : end;
  lengths.restart = to_updates(o.schedule.restart);
  lengths.restart_warmup = to_updates(o.schedule.restart_warmup);
  const int64_t first_length = lengths.restart > 0 ? lengths.restart : lengths.total_updates;
  lengths.warmup = o.schedule.warmup_ratio > 0 ? warmup_from_ratio(o, first_length) : to_updates(o.schedule.warmup);
  lengths.period = to_updates(o.schedule.period);
  check_restart(o, lengths);
  return lengths;
}

double learning_rate(const TrainOptions& o, const ScheduleLengths& lengths, int64_t num_completed) {
  if (lengths.restart > 0) {
    if (num_completed < lengths.restart)
      return learning_rate(o, {lengths.warmup, lengths.restart, lengths.period}, num_completed);
    return learning_rate(o, {lengths.restart_warmup, lengths.total_updates - lengths.restart, lengths.period},
                         num_completed - lengths.restart);
  }
  const auto c = static_cast<double>(num_completed), warmup = static_cast<double>(lengths.warmup);
  const bool decays_from_start = o.schedule.decay_from == "start", is_cyclic = o.schedule.rule == "cyclic-cosine";
  const bool starts_at_peak = is_cyclic || (decays_from_start && o.schedule.rule == "cosine");
  if (num_completed == 0 && starts_at_peak) return o.lr;
  if (num_completed < lengths.warmup) return o.schedule.warmup_lr + c * (o.lr - o.schedule.warmup_lr) / warmup;
  if (is_cyclic) return cosine(0, o.lr, c / static_cast<double>(std::max<int64_t>(1, lengths.period)));
  if (o.schedule.rule == "inverse-sqrt") return o.lr * std::sqrt(std::max(1.0, warmup)) / std::sqrt(std::max(1.0, c));
  if (o.schedule.rule == "cosine" && lengths.period > 0) return cosine_cycles(o, lengths, num_completed);
  if (o.schedule.rule == "constant") return o.lr;
  const int64_t origin = decays_from_start ? 0 : lengths.warmup;
  const double length = static_cast<double>(std::max<int64_t>(1, lengths.total_updates - origin));
  const double t = std::min(1.0, static_cast<double>(num_completed - origin) / length);
  return o.schedule.rule == "cosine" ? cosine(o.schedule.min_lr, o.lr, t) : o.lr * (1 - t);
}

}  // namespace mh::train
