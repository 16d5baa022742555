#include "train/schedule.h"

#include <algorithm>
#include <cmath>

namespace mh::train {

namespace {

// Cosine decay from `high` to `low`; t: fraction of the decay.
double cosine(double low, double high, double t) { return low + 0.5 * (high - low) * (1 + std::cos(M_PI * t)); }

// Cosine decay in cycles from the end of the warm-up.
double cosine_cycles(const TrainOptions& o, const ScheduleLengths& l, int64_t completed) {
  auto t = static_cast<double>(completed - l.warmup), period = static_cast<double>(l.period);
  double scale = 1;
  while (t >= period) {
    t -= period;
    period *= o.period_growth;
    scale *= o.period_shrink;
  }
  return cosine(scale * o.min_lr, scale * o.lr, t / period);
}

}  // namespace

int64_t warmup_of_share(const TrainOptions& o, int64_t horizon) {
  const double updates = o.warmup_share * static_cast<double>(horizon);
  return static_cast<int64_t>(o.decay_from == "start" ? std::floor(updates) : std::ceil(updates));
}

ScheduleLengths schedule_lengths(const TrainOptions& o, int64_t end,
                                 const std::function<int64_t(const Length&)>& updates) {
  ScheduleLengths lengths;
  lengths.horizon = o.horizon.count > 0 ? updates(o.horizon) : end;
  lengths.warmup = o.warmup_share > 0 ? warmup_of_share(o, lengths.horizon) : updates(o.warmup);
  lengths.period = updates(o.period);
  return lengths;
}

double learning_rate(const TrainOptions& o, const ScheduleLengths& l, int64_t completed) {
  const auto c = static_cast<double>(completed), warmup = static_cast<double>(l.warmup);
  const bool from_start = o.decay_from == "start", cyclic = o.schedule == "cyclic-cosine";
  const bool as_transformer_xl = cyclic || (from_start && o.schedule == "cosine");
  if (completed == 0 && as_transformer_xl) return o.lr;
  if (completed < l.warmup) return o.warmup_lr + c * (o.lr - o.warmup_lr) / warmup;
  if (cyclic) return cosine(0, o.lr, c / static_cast<double>(std::max<int64_t>(1, l.period)));
  if (o.schedule == "inverse-sqrt") return o.lr * std::sqrt(std::max(1.0, warmup)) / std::sqrt(std::max(1.0, c));
  if (o.schedule == "cosine" && l.period > 0) return cosine_cycles(o, l, completed);
  if (o.schedule == "constant") return o.lr;
  const int64_t origin = from_start ? 0 : l.warmup;
  const double length = static_cast<double>(std::max<int64_t>(1, l.horizon - origin));
  const double t = std::min(1.0, static_cast<double>(completed - origin) / length);
  return o.schedule == "cosine" ? cosine(o.min_lr, o.lr, t) : o.lr * (1 - t);
}

}  // namespace mh::train
