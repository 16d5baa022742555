// Validates the bytes of text files: a byte order mark is dropped, and bytes that are not UTF-8 text are an error.
// Shared by the readers of batches (text_batches.h) and of whole files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mh::text {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // U+FEFF at the start of a file

// Returns the text without a byte order mark at its start; logs a dropped mark with the file's `name`.
std::string_view drop_byte_order_mark(std::string_view text, const std::string& name);

// Returns the offset of the first byte of a line that is not UTF-8 text or is NUL, or npos. As a line contains no line
// feed, a character cut off by its end is not UTF-8 text.
size_t find_bad_byte(std::string_view line);

// Throws Error(input) for byte `bad` of a line. `number` is the number of the line, from 1, `offset` is the offset of
// the line in the file, and `next` is the advice.
[[noreturn]] void refuse_bad_byte(const std::string& name, uint64_t number, uint64_t offset, std::string_view line,
                                  size_t bad, const std::string& next = "convert the file to UTF-8");

enum class NulBytes { refuse, keep };

// Returns the text of a whole file without its byte order mark. Throws Error(input) with file, line and byte for text
// that is not UTF-8 and, with NulBytes::refuse, for NUL bytes.
std::string_view checked_text(std::string_view bytes, const std::string& name, NulBytes nul = NulBytes::refuse);

}  // namespace mh::text
