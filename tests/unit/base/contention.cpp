// The warning about other programs on the cores of this process.
#include "base/contention.h"

#include <catch2/catch.hpp>

TEST_CASE("frequent interruptions of several threads give a warning, and rare ones or a single thread do not") {
  const std::string warning = mh::contention_warning(10, 2000, 2);
  CHECK(warning.find("the system interrupted 2 threads 200 times a second") != std::string::npos);
  CHECK(warning.find("set OMP_WAIT_POLICY=passive") != std::string::npos);
  CHECK(mh::contention_warning(10, 2000, 1) == "");
  CHECK(mh::contention_warning(10, 20, 2) == "");
  CHECK(mh::contention_warning(100, 2000, 2) == "");
}
