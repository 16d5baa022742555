// JSON that others wrote.
#pragma once

#include <string_view>

namespace mh {

// How deep arrays and objects stand within one another: 1 for "{}", 0 for a number. Whatever the text is.
int json_depth(std::string_view text);

// Deeper than any file that is read here; copying and printing a JSON value takes a call a level.
constexpr int kDeepestJson = 64;

}  // namespace mh
