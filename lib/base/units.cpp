#include "base/units.h"

#include <charconv>

#include "base/error.h"

namespace mh {

Length parse_length(const std::string& text, const std::string& where) {
  auto invalid_length = [&] {
    return Error(Exit::usage,
                 Problem{where, "a length with a unit, such as 16000u (updates), 10e (epochs) or 2000000t (tokens)",
                         "'" + text + "'",
                         text.find_first_not_of("0123456789") == std::string::npos && !text.empty()
                             ? "add the unit, as in " + text + "u"
                             : "for example 16000u"});
  };
  Length length;
  const char* begin = text.data();
  const char* end = begin + text.size();
  auto [suffix, error] = std::from_chars(begin, end, length.count);
  if (error != std::errc() || length.count < 0 || suffix == end) throw invalid_length();
  int64_t factor = 1;
  if (*suffix == 'k') factor = 1000;
  if (*suffix == 'M') factor = 1000000;
  if (*suffix == 'G') factor = 1000000000;
  if (factor > 1) ++suffix;
  if (suffix + 1 != end) throw invalid_length();
  if (*suffix != 'u' && *suffix != 'e' && *suffix != 't') throw invalid_length();
  if (__builtin_mul_overflow(length.count, factor, &length.count)) throw invalid_length();
  length.unit = static_cast<Length::Unit>(*suffix);
  length.origin = where;
  return length;
}

std::string to_string(const Length& length) { return std::to_string(length.count) + static_cast<char>(length.unit); }

}  // namespace mh
