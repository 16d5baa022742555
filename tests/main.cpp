// Runs the tests of one program and counts those that were skipped by name (Catch2 2 has no SKIP of its own).
// The last line is `mh-tests: N passed, N failed, N skipped`, which ./run test adds up.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>

#include "device.h"
#include "skip.h"

namespace {

std::vector<std::string> skipped_names, failed_names;
int passed = 0;
bool current_skipped = false;
std::string device = "cpu";

struct Counter : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo&) override { current_skipped = false; }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (stats.totals.assertions.failed > 0) failed_names.push_back(stats.testInfo.name);
    else if (!current_skipped) ++passed;
  }
};
CATCH_REGISTER_LISTENER(Counter)

}  // namespace

void mh_note_skip(const std::string& reason) {
  current_skipped = true;
  std::string name = Catch::getResultCapture().getCurrentTestName();
  skipped_names.push_back(name);
  std::printf("skipped: %s (%s)\n", name.c_str(), reason.c_str());
}

const std::string& test_device() { return device; }

int main(int argc, char** argv) {
  Catch::Session session;
  session.cli(session.cli() | Catch::clara::Opt(device, "cpu|cuda")["--device"]("where the tests of device code run"));
  int status = session.applyCommandLine(argc, argv);
  if (status == 0) status = session.run();
  for (const std::string& name : failed_names) std::printf("failed: %s\n", name.c_str());
  std::printf("mh-tests: %d passed, %zu failed, %zu skipped\n", passed, failed_names.size(), skipped_names.size());
  return status;
}
