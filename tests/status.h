// How an action would end a tool: the exit status, and what is said.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <string>

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

// What it says where it is refused as wrong usage; "" where it throws no Error.
inline std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const mh::Error& error) {
    CHECK(error.exit() == mh::Exit::usage);
    return error.what();
  }
  return "";
}
