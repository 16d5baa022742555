#include "io/zip.h"

#include <algorithm>
#include <array>
#include <vector>

namespace mh::io {

namespace {

constexpr uint32_t kEntry = 0x04034B50, kDirectoryRecord = 0x02014B50, kEnd = 0x06054B50;
constexpr uint32_t kEnd64 = 0x06064B50, kLocator64 = 0x07064B50;
constexpr uint64_t kEntryBytes = 30, kDirectoryRecordBytes = 46, kEndBytes = 22, kLocatorBytes = 20,
                   kLongestComment = 65535;
constexpr uint64_t kLarge32 = 0xFFFFFFFF, kLarge16 = 0xFFFF;  // value that refers to a number in the ZIP64 field

constexpr size_t kStep = 8;  // bytes per step of crc32()
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, kStep> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c >> 1 ^ (c & 1 ? 0xEDB88320 : 0);
    tables[0][i] = c;
  }
  for (size_t t = 1; t < kStep; ++t)
    for (size_t i = 0; i < 256; ++i) tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xFF];
  return tables;
}();

}  // namespace

uint32_t crc32(std::span<const uint8_t> bytes) {
  uint32_t c = ~0U;
  for (; bytes.size() >= kStep; bytes = bytes.subspan(kStep)) {
    uint32_t next = 0;
    for (size_t i = 0; i < kStep; ++i) {
      const uint32_t byte = bytes[i] ^ (i < 4 ? c >> (8 * i) & 0xFF : 0);
      next ^= kTables[kStep - 1 - i][byte];
    }
    c = next;
  }
  for (uint8_t byte : bytes) c = c >> 8 ^ kTables[0][(c ^ byte) & 0xFF];
  return ~c;
}

ZipArchive::ZipArchive(const std::string& path) : file_(path) {
  const Directory directory = find_directory();
  if (directory.begin > file_.size() || directory.size > file_.size() - directory.begin)
    throw bad(": central directory", str("a range within ", file_.size(), " bytes"),
              str(directory.size, " bytes at ", directory.begin));
  uint64_t at = directory.begin;
  for (uint64_t i = 0; i < directory.entries; ++i) at = add_entry(at);
  if (at != directory.begin + directory.size)
    throw bad(str(": byte ", directory.begin), str("a directory of ", directory.size, " bytes"),
              str(at - directory.begin));
}

Error ZipArchive::bad(const std::string& place, const std::string& expected, const std::string& found) const {
  return {Exit::input, Problem{name() + place, expected, found, "the file is damaged, or torch.save did not write it"}};
}

uint64_t ZipArchive::number(uint64_t at, int bytes) const {
  const auto size = static_cast<uint64_t>(bytes);
  if (file_.size() < size || at > file_.size() - size)
    throw bad("", str("at least ", at, " bytes"), str("a truncated file of ", file_.size(), " bytes"));
  uint64_t n = 0;
  for (uint64_t i = 0; i < size; ++i) n |= uint64_t{file_.data()[at + i]} << (8 * i);
  return n;
}

ZipArchive::Directory ZipArchive::find_directory() const {
  const uint64_t size = file_.size();
  auto none = [&] {
    return bad("", "a zip archive with its directory at the end", "none: the file is truncated or of another kind");
  };
  if (size < kEndBytes) throw none();
  uint64_t end = size - kEndBytes;
  const uint64_t first = end > kLongestComment ? end - kLongestComment : 0;
  while (number(end, 4) != kEnd || number(end + 20, 2) != size - end - kEndBytes)
    if (end-- == first) throw none();
  Directory found{number(end + 16, 4), number(end + 12, 4), number(end + 10, 2)};
  if (number(end + 4, 2) != 0 && number(end + 4, 2) != kLarge16)
    throw bad(str(": byte ", end), "an archive in a single file", "a part of a split archive");
  if (end < kLocatorBytes || number(end - kLocatorBytes, 4) != kLocator64) return found;
  const uint64_t large = number(end - kLocatorBytes + 8, 8);
  if (number(large, 4) != kEnd64)
    throw bad(str(": byte ", large), "the end record of a ZIP64 directory", "other bytes");
  return {number(large + 48, 8), number(large + 40, 8), number(large + 32, 8)};
}

uint64_t ZipArchive::add_entry(uint64_t at) {
  const std::string place = str(": byte ", at);
  if (number(at, 4) != kDirectoryRecord) throw bad(place, "an entry of the directory", "other bytes");
  const uint64_t flags = number(at + 8, 2), method = number(at + 10, 2);
  Entry entry{number(at + 42, 4), number(at + 24, 4), static_cast<uint32_t>(number(at + 16, 4))};
  uint64_t packed = number(at + 20, 4);
  const uint64_t name_size = number(at + 28, 2), extra = number(at + 30, 2), comment = number(at + 32, 2);
  uint64_t field = at + kDirectoryRecordBytes + name_size;
  const uint64_t next = field + extra + comment;
  if (next > file_.size()) throw bad(place, str("an entry within ", file_.size(), " bytes"), "a longer entry");
  const std::string name(reinterpret_cast<const char*>(file_.data()) + at + kDirectoryRecordBytes, name_size);
  for (const uint64_t fields_end = field + extra; field + 4 <= fields_end;) {
    const uint64_t kind = number(field, 2), size = number(field + 2, 2);
    uint64_t value = field + 4;
    field = value + size;
    if (kind != 1) continue;  // the ZIP64 field has the values that need 64 bits, in this order
    for (uint64_t* n : {&entry.size, &packed, &entry.header}) {
      if (*n != kLarge32) continue;
      if (value + 8 > field) throw bad(place, "64-bit sizes", "fewer bytes");
      *n = number(value, 8);
      value += 8;
    }
  }
  if (method != 0 || (flags & 1) != 0 || packed != entry.size)
    throw bad(": " + name, "an uncompressed entry", (flags & 1) != 0 ? "an encrypted entry" : "a compressed entry");
  if (!entries_.emplace(name, entry).second) throw bad(place, "unique entry names", name + " twice");
  return next;
}

std::span<const uint8_t> ZipArchive::data(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw bad("", "the entry " + name, "no entry of this name");
  const Entry& entry = found->second;
  const std::string place = ": " + name;
  if (entry.header > file_.size() || number(entry.header, 4) != kEntry)
    throw bad(place, str("an entry at byte ", entry.header), "other bytes");
  const uint64_t begin = entry.header + kEntryBytes + number(entry.header + 26, 2) + number(entry.header + 28, 2);
  if (begin > file_.size() || entry.size > file_.size() - begin)
    throw bad(place, str(entry.size, " bytes at ", begin), str("a truncated file of ", file_.size(), " bytes"));
  const std::span<const uint8_t> bytes(file_.data() + begin, entry.size);
  if (entry.crc == 0 || checked_.count(name) > 0) return bytes;
  if (const uint32_t sum = crc32(bytes); sum != entry.crc) throw bad(place, str("the checksum ", entry.crc), str(sum));
  checked_.insert(name);
  return bytes;
}

std::string ZipArchive::find_by_suffix(const std::string& end) const {
  std::string found;
  for (const auto& [name, entry] : entries_) {
    if (!name.ends_with(end)) continue;
    if (!found.empty()) return "";
    found = name;
  }
  return found;
}

}  // namespace mh::io
