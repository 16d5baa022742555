// Checks and parses JSON text from files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mh {

// Returns the nesting depth of arrays and objects in any text, valid JSON or not: 0 for "7", 1 for "{}", 2 for "[{}]".
int json_depth(std::string_view text);

// Maximum nesting depth that require_sound_json() accepts; no supported file is nested as deeply. The limit protects
// the call stack, since copying and printing a JSON value recurses once per level.
constexpr int kMaxJsonDepth = 64;

// Maximum size, in bytes, of JSON that is parsed without require_sound_json(). Parsed JSON takes up to 40 times the
// size of its text in memory.
constexpr size_t kMaxUncheckedJsonBytes = size_t{1} << 20;

// Returns the maximum number of strings, objects and arrays that require_sound_json() accepts in `size` bytes of JSON.
// A string, object or array takes up to 112 bytes of memory, however short its text: 64 bytes of its own, and 48 bytes
// in the growing list that contains it. Thus size / 5 strings take at most 23 times the size of the text, and 2^18
// strings take 28 MiB.
constexpr size_t max_json_allocated_values(size_t size) { return size / 5 + (size_t{1} << 18); }

// Returns what an exception of nlohmann::json found, as part `found` of an error: "no key 'kind'" for
// "[json.exception.out_of_range.403] key 'kind' not found", "a JSON number" for "cannot use at() with number", "a JSON
// string instead of a JSON number" for "type must be number, but is string"; "the JSON error: " and the message for
// other messages.
std::string json_error_text(std::string_view message);

// Throws Error(input) for faults that the JSON parser accepts: a NUL byte (the parser ignores the rest of the text); a
// key that occurs twice in an object (the parser uses the later value); nesting deeper than kMaxJsonDepth; more
// strings, objects and arrays than max_json_allocated_values(). Does not check the syntax. `name`: name of the file for
// the message. `advice`: Problem::advice of the error.
void require_sound_json(std::string_view text, const std::string& name, const std::string& advice);

// Parses JSON text as the type Json: nlohmann::json or nlohmann::ordered_json (base/json_types.h). Throws Error(input)
// for the faults that require_sound_json() finds, and for text that is not JSON, with the offset of the byte at which
// the parser stopped: "config.json: byte 12: expected a JSON object; found a syntax error (invalid literal) near
// '{"n_head": none}'". `name`: name of the file for the message. `expected`, `advice`: parts of the error
// (base/error.h).
template <class Json>
Json parse_json(std::string_view text, const std::string& name, const std::string& expected, const std::string& advice);

// Parses a JSON object; throws the errors of parse_json(), and Error(input) for another JSON value.
template <class Json>
Json parse_json_object(std::string_view text, const std::string& name, const std::string& advice);

}  // namespace mh
