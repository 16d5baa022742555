#include "io/zip.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.h"

namespace mh::io {

namespace {

constexpr uint32_t kEntrySignature = 0x04034B50, kDirectorySignature = 0x02014B50, kEndSignature = 0x06054B50;
constexpr uint32_t kEnd64Signature = 0x06064B50, kLocator64Signature = 0x07064B50;
constexpr uint64_t kEntryBytes = 30, kDirectoryRecordBytes = 46, kEndBytes = 22, kLocatorBytes = 20,
                   kMaxCommentBytes = 65535;
// A field with this value is a placeholder: the number is in a ZIP64 field.
constexpr uint64_t kZip64Placeholder32 = 0xFFFFFFFF, kZip64Placeholder16 = 0xFFFF;

constexpr size_t kCrcStepBytes = 8;  // bytes per step of crc32()
// Tables of the slicing-by-8 algorithm: entry i of table t is the remainder of the byte i followed by t zero bytes.
constexpr auto kCrcTables = [] {
  std::array<std::array<uint32_t, 256>, kCrcStepBytes> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c >> 1 ^ (c & 1 ? 0xEDB88320 : 0);
    tables[0][i] = c;
  }
  for (size_t t = 1; t < kCrcStepBytes; ++t)
    for (size_t i = 0; i < 256; ++i) tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xFF];
  return tables;
}();

}  // namespace

uint32_t crc32(std::span<const uint8_t> bytes) {
  uint32_t crc = ~0U;
  for (; bytes.size() >= kCrcStepBytes; bytes = bytes.subspan(kCrcStepBytes)) {
    uint32_t next_crc = 0;
    for (size_t i = 0; i < kCrcStepBytes; ++i) {
      const uint32_t byte = bytes[i] ^ (i < 4 ? crc >> (8 * i) & 0xFF : 0);
      next_crc ^= kCrcTables[kCrcStepBytes - 1 - i][byte];
    }
    crc = next_crc;
  }
  for (uint8_t byte : bytes) crc = crc >> 8 ^ kCrcTables[0][(crc ^ byte) & 0xFF];
  return ~crc;
}

ZipArchive::ZipArchive(const std::string& path) : file_(path) {
  const CentralDirectory directory = find_central_directory();
  if (directory.offset > file_.size() || directory.size > file_.size() - directory.offset)
    throw format_error(": central directory",
                       str("a directory within the ", count_of(file_.size(), "byte"), " of the file"),
                       str(count_of(directory.size, "byte"), " at byte ", directory.offset));
  uint64_t offset = directory.offset;
  for (uint64_t i = 0; i < directory.num_entries; ++i) offset = add_entry(offset);
  if (offset != directory.offset + directory.size)
    throw format_error(str(": byte ", directory.offset), str("a directory of ", count_of(directory.size, "byte")),
                       count_of(offset - directory.offset, "byte"));
}

Error ZipArchive::format_error(const std::string& where, const std::string& expected, const std::string& found) const {
  return {Exit::input, Problem{name() + where, expected, found,
                               "copy the file again, or save the model again with PyTorch 1.6 or later"}};
}

uint64_t ZipArchive::read_number(uint64_t offset, int num_bytes) const {
  const auto size = static_cast<uint64_t>(num_bytes);
  if (file_.size() < size || offset > file_.size() - size)
    throw format_error("", str("at least ", count_of(offset, "byte")),
                       str("a truncated file of ", count_of(file_.size(), "byte")));
  uint64_t n = 0;
  for (uint64_t i = 0; i < size; ++i) n |= uint64_t{file_.data()[offset + i]} << (8 * i);
  return n;
}

ZipArchive::CentralDirectory ZipArchive::find_central_directory() const {
  const uint64_t size = file_.size();
  auto no_directory = [&] {
    return format_error("", "a zip archive of torch.save, with its central directory at the end",
                        "no central directory: the file is truncated or of another kind");
  };
  if (size < kEndBytes) throw no_directory();
  uint64_t end = size - kEndBytes;
  const uint64_t min_end = end > kMaxCommentBytes ? end - kMaxCommentBytes : 0;
  while (read_number(end, 4) != kEndSignature || read_number(end + 20, 2) != size - end - kEndBytes)
    if (end-- == min_end) throw no_directory();
  CentralDirectory directory{read_number(end + 16, 4), read_number(end + 12, 4), read_number(end + 10, 2)};
  if (read_number(end + 4, 2) != 0 && read_number(end + 4, 2) != kZip64Placeholder16)
    throw format_error(str(": byte ", end), "an archive in a single file", "a part of a split archive");
  if (end < kLocatorBytes || read_number(end - kLocatorBytes, 4) != kLocator64Signature) return directory;
  const uint64_t zip64_end = read_number(end - kLocatorBytes + 8, 8);
  if (read_number(zip64_end, 4) != kEnd64Signature)
    throw format_error(str(": byte ", zip64_end), "the end record of a ZIP64 directory", "other bytes");
  return {read_number(zip64_end + 48, 8), read_number(zip64_end + 40, 8), read_number(zip64_end + 32, 8)};
}

uint64_t ZipArchive::add_entry(uint64_t offset) {
  const std::string where = str(": byte ", offset);
  if (read_number(offset, 4) != kDirectorySignature)
    throw format_error(where, "the signature of a directory entry", "other bytes");
  const uint64_t flags = read_number(offset + 8, 2), method = read_number(offset + 10, 2);
  Entry entry{read_number(offset + 42, 4), read_number(offset + 24, 4),
              static_cast<uint32_t>(read_number(offset + 16, 4))};
  uint64_t compressed_size = read_number(offset + 20, 4);
  const uint64_t name_size = read_number(offset + 28, 2), extra_size = read_number(offset + 30, 2),
                 comment_size = read_number(offset + 32, 2);
  uint64_t field_offset = offset + kDirectoryRecordBytes + name_size;
  const uint64_t next_offset = field_offset + extra_size + comment_size;
  if (next_offset > file_.size())
    throw format_error(where, str("a directory entry within the ", count_of(file_.size(), "byte"), " of the file"),
                       "a longer entry");
  const std::string name(reinterpret_cast<const char*>(file_.data()) + offset + kDirectoryRecordBytes, name_size);
  for (const uint64_t extra_end = field_offset + extra_size; field_offset + 4 <= extra_end;) {
    const uint64_t kind = read_number(field_offset, 2), size = read_number(field_offset + 2, 2);
    uint64_t value_offset = field_offset + 4;
    field_offset = value_offset + size;
    // Field 1 is the ZIP64 field, which contains, in the order of this loop, the numbers that need 64 bits.
    if (kind != 1) continue;
    for (uint64_t* n : {&entry.size, &compressed_size, &entry.header_offset}) {
      if (*n != kZip64Placeholder32) continue;
      if (value_offset + 8 > field_offset)
        throw format_error(where, "64-bit sizes in the ZIP64 field", "a shorter field");
      *n = read_number(value_offset, 8);
      value_offset += 8;
    }
  }
  if (method != 0 || (flags & 1) != 0 || compressed_size != entry.size)
    throw format_error(": " + name, "an uncompressed entry",
                       (flags & 1) != 0 ? "an encrypted entry" : "a compressed entry");
  if (!entries_.emplace(name, entry).second) throw format_error(where, "unique entry names", name + " twice");
  return next_offset;
}

void ZipArchive::release(std::span<const uint8_t> bytes) const {
  if (!bytes.empty()) file_.release(static_cast<size_t>(bytes.data() - file_.data()), bytes.size());
}

std::span<const uint8_t> ZipArchive::data(const std::string& name) const {
  const auto match = entries_.find(name);
  if (match == entries_.end()) throw format_error("", "the entry " + name, "no entry of this name");
  const Entry& entry = match->second;
  const std::string where = ": " + name;
  if (entry.header_offset > file_.size() || read_number(entry.header_offset, 4) != kEntrySignature)
    throw format_error(where, str("the signature of an entry at byte ", entry.header_offset), "other bytes");
  const uint64_t begin = entry.header_offset + kEntryBytes + read_number(entry.header_offset + 26, 2) +
                         read_number(entry.header_offset + 28, 2);
  if (begin > file_.size() || entry.size > file_.size() - begin)
    throw format_error(where, str(count_of(entry.size, "byte"), " at byte ", begin),
                       str("a truncated file of ", count_of(file_.size(), "byte")));
  const std::span<const uint8_t> bytes(file_.data() + begin, entry.size);
  const std::lock_guard lock(mutex_);
  if (entry.crc == 0 || verified_names_.count(name) > 0) return bytes;
  if (const uint32_t computed_crc = crc32(bytes); computed_crc != entry.crc)
    throw format_error(where, str("content with the CRC-32 checksum ", entry.crc), str("the checksum ", computed_crc));
  verified_names_.insert(name);
  return bytes;
}

std::string ZipArchive::find_by_suffix(const std::string& suffix) const {
  std::string match;
  for (const auto& [name, entry] : entries_) {
    if (!name.ends_with(suffix)) continue;
    if (!match.empty()) return "";
    match = name;
  }
  return match;
}

}  // namespace mh::io
