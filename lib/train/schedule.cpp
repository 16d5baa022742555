#include "train/schedule.h"

#include <cmath>

namespace mh::train {

namespace {

double cosine(const TrainOptions& o, const ScheduleLengths& l, int64_t n) {
  double t = static_cast<double>(n - l.warmup);
  double period = static_cast<double>(l.period > 0 ? l.period : std::max<int64_t>(1, l.horizon - l.warmup));
  double scale = 1;
  if (l.period > 0)
    while (t >= period) {
      t -= period;
      period *= o.period_growth;
      scale *= o.period_shrink;
    }
  else if (t > period) t = period;
  double low = scale * o.min_lr, high = scale * o.lr;
  return low + 0.5 * (high - low) * (1 + std::cos(M_PI * t / period));
}

}  // namespace

double learning_rate(const TrainOptions& o, const ScheduleLengths& l, int64_t n) {
  const auto x = static_cast<double>(n), warmup = static_cast<double>(l.warmup);
  if (o.schedule == "cyclic-cosine") {
    const auto period = static_cast<double>(std::max<int64_t>(1, l.period));
    if (n < l.warmup) return o.lr * x / warmup;
    return 0.5 * o.lr * (1 + std::cos(M_PI * x / period));
  }
  if (n < l.warmup) return o.warmup_lr + x * (o.lr - o.warmup_lr) / warmup;
  if (o.schedule == "inverse-sqrt") return o.lr * std::sqrt(std::max(1.0, warmup)) / std::sqrt(std::max(1.0, x));
  if (o.schedule == "cosine") return cosine(o, l, n);
  if (o.schedule == "linear") {
    double left = static_cast<double>(l.horizon - n) / static_cast<double>(std::max<int64_t>(1, l.horizon - l.warmup));
    return o.lr * std::max(0.0, left);
  }
  return o.lr;
}

}  // namespace mh::train
