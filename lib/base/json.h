// Checks of JSON from other programs.
#pragma once

#include <string>
#include <string_view>

namespace mh {

// Returns the depth of nested arrays and objects, for any text: 1 for "{}", 0 for a number.
int json_depth(std::string_view text);

// Maximum depth, more than any supported file has; copying and printing a JSON value takes a call for each level.
constexpr int kDeepestJson = 64;

// Throws Error(Exit::input), with the byte in the file `name`, for damage that the parser accepts: a NUL byte, at which
// the parser ends and ignores the rest; a key that an object has twice, of which the parser keeps the last value;
// nesting deeper than kDeepestJson. Leaves syntax to the parser. `next`: advice.
void require_sound_json(std::string_view text, const std::string& name, const std::string& next);

}  // namespace mh
