// Lengths of training with a unit, as in Marian's scheduling parameters: `16000u` updates, `10e` epochs, `2000000t`
// tokens.
#pragma once

#include <cstdint>
#include <string>

namespace mh {

struct Length {
  enum class Unit : char { updates = 'u', epochs = 'e', tokens = 't' };
  int64_t count = 0;  // 0: not set
  Unit unit = Unit::updates;
  std::string origin = "a length of training";  // origin of the value for messages, such as "--set train.length"

  bool operator==(const Length& o) const { return count == o.count && unit == o.unit; }
  bool operator!=(const Length& o) const { return !(*this == o); }
};

// Parses a length such as "16000u", "10e" or "2000000t"; a k, M or G before the unit multiplies by 10^3, 10^6 or 10^9
// ("16ku"). `where`: origin of the value, which the result and messages contain. Throws Error(usage) for other texts,
// including a number without a unit.
Length parse_length(const std::string& text, const std::string& where);
std::string to_string(const Length& length);

}  // namespace mh
