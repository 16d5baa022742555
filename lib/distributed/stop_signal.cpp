#include "distributed/stop_signal.h"

#include <algorithm>

#include "base/signals.h"
#include "nn/aten.h"

namespace mh::distributed {

void set_stop_flag(const at::Tensor& flags) {
  const auto* signal = std::find(kStopSignals.begin(), kStopSignals.end(), stop_signal());
  if (signal != kStopSignals.end()) flags[signal - kStopSignals.begin()] = 1;
}

int stop_signal_in(const at::Tensor& flags) {
  for (size_t i = 0; i < kStopSignals.size(); ++i)
    if (flags[static_cast<int64_t>(i)].item<double>() > 0) return kStopSignals[i];
  return 0;
}

int agree_on_stop_signal(const Group* group) {
  if (group == nullptr || group->is_single()) return stop_signal();
  const at::Tensor flags = at::zeros({static_cast<int64_t>(kStopSignals.size())}, at::kDouble);
  set_stop_flag(flags);
  group->sum(flags);
  return stop_signal_in(flags);
}

}  // namespace mh::distributed
