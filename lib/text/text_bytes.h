// Validates text, in batches (text_batches.h) or whole files (validate_text()): removes a byte order mark, and rejects
// bytes that are not UTF-8 and, by default, NUL bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mh::text {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // U+FEFF in UTF-8, at the start of a file

// Returns `text` without a byte order mark at the start. Logs the removal of a mark with the file name `name`.
std::string_view drop_byte_order_mark(std::string_view text, const std::string& name);

// Returns the offset in `line` of the first byte that is NUL or not valid UTF-8; npos if there is none. A multi-byte
// character that the end of the line truncates is invalid.
size_t find_invalid_byte(std::string_view line);

// Throws an Error(input) that reports byte `invalid_offset` of `line` as invalid. `name` is the file name,
// `line_number` the line number from 1, `line_offset` the offset of the line in the file in bytes, and `advice` the
// advice to the user about a byte other than NUL.
[[noreturn]] void refuse_invalid_byte(const std::string& name, uint64_t line_number, uint64_t line_offset,
                                      std::string_view line, size_t invalid_offset,
                                      const std::string& advice = "convert the file to UTF-8");

enum class NulBytes { refuse, allow };

// Returns a view of `bytes`, the content of the file `name`, without a byte order mark. Throws Error(input), with file,
// line and byte offset, for bytes that are not UTF-8 and, with NulBytes::refuse, for NUL bytes.
std::string_view validate_text(std::string_view bytes, const std::string& name, NulBytes nul_bytes = NulBytes::refuse);

}  // namespace mh::text
