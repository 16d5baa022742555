// Lengths of training carry a unit, after Marian's scheduling parameters: `16000u` updates, `10e` epochs,
// `2000000t` tokens.
#pragma once

#include <cstdint>
#include <string>

namespace mh {

struct Length {
  enum class Unit : char { updates = 'u', epochs = 'e', tokens = 't' };
  int64_t count = 0;  // 0: none
  Unit unit = Unit::updates;

  bool operator==(const Length& o) const { return count == o.count && unit == o.unit; }
  bool operator!=(const Length& o) const { return !(*this == o); }
};

// "16000u", "10e", "2000000t"; a k, M or G before the unit multiplies by 10^3, 10^6, 10^9 ("16ku"). `where` names the
// option in the message. Throws Error(usage) for anything else, a missing unit included.
Length parse_length(const std::string& text, const std::string& where);
std::string to_string(const Length& length);

}  // namespace mh
