// Text functions for messages, options and tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mh {

// Returns the candidate with the smallest edit distance to `word`, or "" if this distance is too large for a typing
// error: more than 1 and more than a third of the length of `word` in bytes.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// Returns a question with the nearest candidate, such as "did you mean 'lr'?", or "" if no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
// Returns the question "did you mean …?" with the nearest candidate, or `advice` if no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates, const std::string& advice);

std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& texts, std::string_view separator);
// Returns the texts as alternatives, such as "a, b or c"; "" if there are none.
std::string join_alternatives(std::vector<std::string> texts);
std::string shape_text(std::span<const int64_t> shape);  // such as "(512, 64)"
std::string trim(std::string_view text);
// Returns the text if it has at most `max_bytes` bytes. Otherwise returns its start and "…"; the start has `max_bytes`
// bytes, or up to three fewer, so that it ends with a complete UTF-8 character.
std::string shorten(const std::string& text, size_t max_bytes);
std::string quote_start(std::string_view text);  // returns at most 40 bytes of the text in quotes, for messages
// Returns the value as 16 lower-case hexadecimal digits, the form of checksums in files.
std::string hex64(uint64_t value);

// Returns the escape sequence of a byte, such as "\x1b".
std::string escaped_byte(char byte);

// Returns the text with control characters escaped, so that a terminal shows them instead of obeying them: U+0000 to
// U+001F except line feeds and tabs, U+007F to U+009F, bytes 0x80 to 0x9F outside UTF-8 characters, and the embeddings,
// overrides and isolates that reorder text (U+202A to U+202E, U+2066 to U+2069).
std::string escape_controls(std::string_view text);

// Returns the text as one line of a message: as escape_controls() does, but with line feeds escaped, too, so that a
// value in a message, such as a file name, cannot forge a further message.
std::string escape_message(std::string_view text);

// Returns the number with separators of thousands, such as "1,234,567"; for messages only, since tables have plain
// numbers.
std::string with_commas(int64_t value);
// Returns the singular `noun` if `is_one`, otherwise its plural: "rows", "keys", "entries", "classes".
std::string plural(bool is_one, std::string_view noun);
// Returns the count with its noun, such as "1 row" or "1234 rows"; for messages only.
template <class Count>
std::string count_of(Count count, std::string_view noun) {
  return std::to_string(count) + " " + plural(count == 1, noun);
}
// Returns the count with separators of thousands and its noun, such as "1 row" or "1,234 rows"; for messages only.
template <class Count>
std::string count_with_commas(Count count, std::string_view noun) {
  return with_commas(static_cast<int64_t>(count)) + " " + plural(count == 1, noun);
}
// Returns bytes as "12.3 MB" (decimal units).
std::string human_bytes(uint64_t bytes);
// Returns seconds as "45s", "12m30s", "3h05m"; "?" for negative numbers, NaN and more than 1,000,000 hours.
std::string human_seconds(double seconds);

// Returns the value with `digits` decimals: "2.72" for 2.718 and 2 digits.
std::string fixed_decimal(double value, int digits);
// Returns the shortest decimal text that reads back as the same double ("0.1", "1e-09").
std::string shortest_decimal(double value);

// Returns the offset of the first byte that is not valid UTF-8 (overlong forms, surrogates and values above U+10FFFF
// are invalid), or npos.
size_t find_invalid_utf8(std::string_view text);

}  // namespace mh
