// SKIP("why") ends a test case by name without a verdict; the runner counts it.
#pragma once

#include <string>

void mh_note_skip(const std::string& reason);

#define SKIP(reason)      \
  do {                    \
    mh_note_skip(reason); \
    SUCCEED("skipped");   \
    return;               \
  } while (0)
