// The warning about other programs on the cores of this process.
#include "base/contention.h"

#include <catch2/catch.hpp>

TEST_CASE("frequent and long interruptions of several threads give a warning") {
  const std::string warning = mh::contention_warning({10, 12, 2000}, 2);
  CHECK(warning.find("the system interrupted 2 threads 200 times a second") != std::string::npos);
  CHECK(warning.find("set OMP_WAIT_POLICY=passive") != std::string::npos);
  CHECK(mh::contention_warning({10, 9, 2000}, 1) == "");     // a single thread
  CHECK(mh::contention_warning({10, 12, 20}, 2) == "");      // rare interruptions, waiting without spinning
  CHECK(mh::contention_warning({100, 120, 2000}, 2) == "");  // the same number in ten times the time
  CHECK(mh::contention_warning({10, 19.3, 4110}, 2) == "");  // another program wakes often and works little
}
