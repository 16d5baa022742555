// Words the error numbers of system calls for messages.
#pragma once

#include <cctype>
#include <cerrno>
#include <cstring>
#include <string>

namespace mh {

// Returns the text of an errno for the part `found` of a message: "no such file" for ENOENT, otherwise the system's
// text with a lower-case first letter, such as "no space left on device".
inline std::string system_message(int error_number) {
  if (error_number == ENOENT) return "no such file";
  std::string text = std::strerror(error_number);
  // Abbreviations such as "I/O error" keep their capitals.
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])))
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace mh
