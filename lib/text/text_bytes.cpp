#include "text/text_bytes.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/unicode.h"
#include "io/shard_format.h"

namespace mh::text {

namespace {

std::string describe_byte(std::string_view line, size_t invalid_offset) {
  const auto byte = static_cast<unsigned char>(line[invalid_offset]);
  if (byte == 0) return "a NUL byte";
  char hex[8];
  std::snprintf(hex, sizeof hex, "0x%02X", byte);
  const bool is_truncated =
      byte >= 0xC2 && byte <= 0xF4 &&
      std::all_of(line.begin() + static_cast<ptrdiff_t>(invalid_offset) + 1, line.end(), is_continuation_byte);
  return str("the byte ", hex, is_truncated ? ", the start of a character that the end of the line cuts off" : "");
}

}  // namespace

std::string_view drop_byte_order_mark(std::string_view text, const std::string& name) {
  if (!text.starts_with(kByteOrderMark)) return text;
  log_info(name + ": the byte order mark at the start is dropped");
  return text.substr(kByteOrderMark.size());
}

size_t find_invalid_byte(std::string_view line) { return std::min(find_invalid_utf8(line), line.find('\0')); }

void refuse_invalid_byte(const std::string& name, uint64_t line_number, uint64_t line_offset, std::string_view line,
                         size_t invalid_offset, const std::string& advice) {
  if (line_number == 1 && io::has_shard_magic(line))
    refuse_input(name, "a text file", "a shard (.mhs)", "print the text of the shard with mh-prep cat");
  const bool is_nul = line[invalid_offset] == '\0';
  refuse_input(str(name, ":", line_number, ": byte ", line_offset + invalid_offset, " of the file"),
               is_nul ? "UTF-8 text without NUL bytes" : "UTF-8 text", describe_byte(line, invalid_offset),
               is_nul ? "name a text file, or remove the NUL bytes with tr -d '\\0' < FILE > NEW-FILE" : advice);
}

std::string_view validate_text(std::string_view bytes, const std::string& name, NulBytes nul_bytes) {
  const std::string_view text = drop_byte_order_mark(bytes, name);
  // A line feed is never part of a multi-byte character, so the text is valid if and only if each line is.
  const size_t invalid_offset = nul_bytes == NulBytes::allow ? find_invalid_utf8(text) : find_invalid_byte(text);
  if (invalid_offset == text.npos) return text;
  const size_t previous_line_end = invalid_offset == 0 ? text.npos : text.rfind('\n', invalid_offset - 1);
  const size_t begin = previous_line_end == text.npos ? 0 : previous_line_end + 1;
  const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  const auto line_number = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(invalid_offset), '\n');
  refuse_invalid_byte(name, static_cast<uint64_t>(line_number), begin + bytes.size() - text.size(), line,
                      invalid_offset - begin);
}

}  // namespace mh::text
