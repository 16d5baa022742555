#include "base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/unicode.h"

namespace mh {

namespace {

// Returns the edit distance in which an exchange of two adjacent characters counts as one edit (optimal string
// alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  size_t limit = std::max<size_t>(1, word.size() / 3);
  std::string best_candidate;
  for (const std::string& candidate : candidates) {
    size_t d = edit_distance(word, candidate);
    if (d <= limit) {
      best_candidate = candidate;
      if (d == 0) break;
      limit = d - 1;
    }
  }
  return best_candidate;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  return did_you_mean(word, candidates, "");
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates, const std::string& advice) {
  const std::string best_candidate = nearest_word(word, candidates);
  return best_candidate.empty() ? advice : "did you mean '" + best_candidate + "'?";
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (;;) {
    size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end == text.npos ? text.npos : end - begin));
    if (end == text.npos) return parts;
    begin = end + 1;
  }
}

std::string join(const std::vector<std::string>& texts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) text += separator;
    text += texts[i];
  }
  return text;
}

std::string join_alternatives(std::vector<std::string> texts) {
  if (texts.size() < 2) return join(texts, "");
  const std::string last = texts.back();
  texts.pop_back();
  return join(texts, ", ") + " or " + last;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::vector<std::string> dimensions;
  for (int64_t dimension : shape) dimensions.push_back(std::to_string(dimension));
  return "(" + join(dimensions, ", ") + ")";
}

std::string trim(std::string_view text) {
  const char* white_space = " \t\r\n\f\v";
  size_t begin = text.find_first_not_of(white_space);
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(white_space) - begin + 1));
}

std::string escaped_byte(char byte) {
  char text[5];
  std::snprintf(text, sizeof text, "\\x%02x", static_cast<unsigned char>(byte));
  return text;
}

namespace {

// Returns the number of bytes of the UTF-8 character at text[i], or 0 if the bytes are not valid UTF-8.
size_t character_bytes(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char c = byte(i);
  if (c < 0x80) return 1;
  const size_t length = c >= 0xC2 && c <= 0xDF ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
  if (length == 0 || i + length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k)
    if (!is_continuation_byte(text[i + k])) return 0;
  const unsigned char second_byte = byte(i + 1);
  const bool is_invalid = (c == 0xE0 && second_byte < 0xA0) || (c == 0xED && second_byte > 0x9F) ||
                          (c == 0xF0 && second_byte < 0x90) || (c == 0xF4 && second_byte > 0x8F);
  return is_invalid ? 0 : length;
}

// Returns the escape sequence of `character`, a UTF-8 character or a byte outside UTF-8, if escape_controls() escapes
// `character`; otherwise "".
std::string escaped_control(std::string_view character) {
  const auto first_byte = static_cast<unsigned char>(character[0]);
  const auto last_byte = static_cast<unsigned char>(character.back());
  const bool is_c0 = first_byte < 0x20 && first_byte != '\n' && first_byte != '\t';
  const bool is_c1 =
      (character.size() == 1 || (character.size() == 2 && first_byte == 0xC2)) && last_byte >= 0x80 && last_byte < 0xA0;
  if (is_c0 || is_c1 || first_byte == 0x7F) return escaped_byte(character.back());
  const std::string_view prefix = character.substr(0, 2);
  if (character.size() == 3 && prefix == "\xE2\x80" && last_byte >= 0xAA && last_byte <= 0xAE)
    return std::string("\\u202") + "abcde"[last_byte - 0xAA];
  if (character.size() == 3 && prefix == "\xE2\x81" && last_byte >= 0xA6 && last_byte <= 0xA9)
    return std::string("\\u206") + "6789"[last_byte - 0xA6];
  return "";
}

}  // namespace

std::string escape_controls(std::string_view text) {
  std::string escaped_text;
  escaped_text.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const std::string_view character = text.substr(i, std::max<size_t>(character_bytes(text, i), 1));
    const std::string escape = escaped_control(character);
    escaped_text += escape.empty() ? character : std::string_view(escape);
    i += character.size();
  }
  return escaped_text;
}

std::string escape_message(std::string_view text) {
  return join(split(escape_controls(text), '\n'), escaped_byte('\n'));
}

std::string shorten(const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  for (int i = 0; i < 3 && end > 0 && is_continuation_byte(text[end]); ++i) --end;
  return text.substr(0, end) + "…";
}

std::string quote_start(std::string_view text) { return "'" + shorten(std::string(text), 40) + "'"; }

std::string hex64(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  size_t first_digit = digits[0] == '-' ? 1 : 0;
  for (size_t i = digits.size(); i > first_digit + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string plural(bool is_one, std::string_view noun) {
  if (is_one) return std::string(noun);
  if (noun.ends_with("ss")) return std::string(noun) + "es";
  if (noun.ends_with("y") && !noun.ends_with("ey")) return std::string(noun.substr(0, noun.size() - 1)) + "ies";
  return std::string(noun) + "s";
}

std::string human_bytes(uint64_t bytes) {
  static const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < std::size(units)) value /= 1000, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

std::string human_seconds(double seconds) {
  if (!(seconds >= 0) || seconds > 3.6e9) return "?";
  auto s = static_cast<int64_t>(std::llround(seconds));
  char text[48];
  if (s < 60) std::snprintf(text, sizeof text, "%ds", static_cast<int>(s));
  else if (s < 3600) std::snprintf(text, sizeof text, "%dm%02ds", static_cast<int>(s / 60), static_cast<int>(s % 60));
  else std::snprintf(text, sizeof text, "%lldh%02dm", static_cast<long long>(s / 3600), static_cast<int>(s / 60 % 60));
  return text;
}

std::string fixed_decimal(double value, int digits) {
  if (std::isnan(value)) return "nan";  // printf and to_chars print the sign of NaN
  char text[400];                       // the largest double has 309 digits before the decimal point
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string shortest_decimal(double value) {
  if (std::isnan(value)) return "nan";
  char text[40];
  auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

size_t find_invalid_utf8(std::string_view text) {
  size_t i = 0;
  const size_t n = text.size();
  while (i < n) {
    if (i + 8 <= n) {  // skips eight bytes at once if all are ASCII
      uint64_t word = 0;
      std::memcpy(&word, text.data() + i, 8);
      if ((word & 0x8080808080808080) == 0) {
        i += 8;
        continue;
      }
    }
    const size_t length = character_bytes(text, i);
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

}  // namespace mh
