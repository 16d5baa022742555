// Signals that arrive in the middle of a product.
#include "base/signals.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "fixtures/aten.h"
#include "nn/product.h"

using namespace mh;

namespace {

constexpr int kSignals[5] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM};

}  // namespace

TEST_CASE("a signal in the middle of a product changes nothing but that it is noted", "[signals]") {
  const struct Restored {
    struct sigaction before[5];
    Restored() {
      for (int i = 0; i < 5; ++i) sigaction(kSignals[i], nullptr, &before[i]);
    }
    ~Restored() {
      itimerval none{};
      setitimer(ITIMER_REAL, &none, nullptr);
      catch_stop_signals();  // forgets what came
      for (int i = 0; i < 5; ++i) sigaction(kSignals[i], &before[i], nullptr);
    }
  } restored;
  catch_stop_signals();
  CHECK(stop_signal() == 0);
  // An alarm every millisecond, to the handler of a stop.
  struct sigaction noted {};
  sigaction(SIGUSR1, nullptr, &noted);
  sigaction(SIGALRM, &noted, nullptr);
  const itimerval often{{0, 900}, {0, 900}};
  setitimer(ITIMER_REAL, &often, nullptr);
  at::manual_seed(3);
  double worst = 0;
  for (int i = 0; i < 60; ++i) {
    const int64_t rows = 401 + 2 * i;  // an odd number: oneDNN's own product, by no other library
    const at::Tensor a = at::randn({rows, 384}), b = at::randn({rows, 384});
    const at::Tensor truth = at::mm(a.t().to(at::kDouble), b.to(at::kDouble));
    worst = std::max(worst, (nn::product_tn(a, b).to(at::kDouble) - truth).abs().max().item<double>());
  }
  CHECK(worst < 1e-3);
  CHECK(stop_signal() == SIGALRM);
}
