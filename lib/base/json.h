// JSON that others wrote.
#pragma once

#include <string>
#include <string_view>

namespace mh {

// How deep arrays and objects stand within one another: 1 for "{}", 0 for a number. Whatever the text is.
int json_depth(std::string_view text);

// Deeper than any file that is read here; copying and printing a JSON value takes a call a level.
constexpr int kDeepestJson = 64;

// Checks what a parser accepts although the text is damaged: a NUL byte, where parsing ends and the rest is ignored; a
// key that its object has twice, of which the last wins; nesting deeper than kDeepestJson. Syntax is left to the
// parser. Throws Error(Exit::input) that names the byte; `next` says what to do.
void require_sound_json(std::string_view text, const std::string& name, const std::string& next);

}  // namespace mh
