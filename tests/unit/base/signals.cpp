// Tests of install_stop_handlers(): signals that arrive during a matrix product.
#include "base/signals.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "fixtures/aten.h"
#include "fixtures/numbers.h"
#include "nn/product.h"
#include "oracle/tolerance.h"

using namespace mh;

namespace {

constexpr int kSignals[5] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM};

}  // namespace

TEST_CASE("a signal during a matrix product is stored and does not change the product", "[signals]") {
  const struct ScopedSignalActions {
    struct sigaction previous_actions[5];
    ScopedSignalActions() {
      for (int i = 0; i < 5; ++i) sigaction(kSignals[i], nullptr, &previous_actions[i]);
    }
    ~ScopedSignalActions() {
      itimerval no_timer{};
      setitimer(ITIMER_REAL, &no_timer, nullptr);
      install_stop_handlers();  // clears the stored signal
      for (int i = 0; i < 5; ++i) sigaction(kSignals[i], &previous_actions[i], nullptr);
    }
  } scoped_actions;
  install_stop_handlers();
  CHECK(stop_signal() == 0);
  // SIGALRM arrives every 0.9 ms and runs the handler that install_stop_handlers() installs.
  struct sigaction stop_action {};
  sigaction(SIGUSR1, nullptr, &stop_action);
  sigaction(SIGALRM, &stop_action, nullptr);
  const itimerval interval{{0, 900}, {0, 900}};
  setitimer(ITIMER_REAL, &interval, nullptr);
  at::manual_seed(3);
  double max_error = 0;  // largest error, divided by its bound
  for (int i = 0; i < 60; ++i) {
    const int64_t rows = 401 + 2 * i;  // odd, so that oneDNN uses its own kernel and not one of another library
    const at::Tensor a = at::randn({rows, 384}), b = at::randn({rows, 384});
    const at::Tensor x = a.t().to(at::kDouble), y = b.to(at::kDouble);
    const double bound =
        tolerance::long_sum_error_bound(rows, tolerance::kFp32, numbers::max_abs(at::mm(x.abs(), y.abs())));
    max_error = std::max(max_error, numbers::error(nn::product_tn(a, b), at::mm(x, y)) / bound);
  }
  CHECK(max_error <= 1);
  CHECK(stop_signal() == SIGALRM);
}
