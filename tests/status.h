// The exit status that an action would end a tool with.
#pragma once

#include <functional>

#include "base/error.h"

// 0 where it throws no Error.
inline int status_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const mh::Error& error) {
    return static_cast<int>(error.exit());
  }
  return 0;
}
