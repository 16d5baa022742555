// JSON that others wrote.
#pragma once

#include <string>
#include <string_view>

namespace mh {

// How deep arrays and objects stand within one another: 1 for "{}", 0 for a number. Whatever the text is.
int json_depth(std::string_view text);

// Deeper than any file that is read here; copying and printing a JSON value takes a call a level.
constexpr int kDeepestJson = 64;

// Refuses damage that the parser accepts: a NUL byte, where the parser ends and ignores the rest; a key that its object
// has twice, of which the parser keeps the last value; nesting deeper than kDeepestJson. Leaves syntax to the parser.
// Throws Error(Exit::input) that names the byte in the file `name`; `next` is the advice.
void require_sound_json(std::string_view text, const std::string& name, const std::string& next);

}  // namespace mh
