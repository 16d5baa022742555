// Zip archives with uncompressed entries, as torch.save writes them: an entry is a range of the mapped file, so tensors
// of any size are read in place. libzip and minizip copy entries into buffers instead; without decompression only the
// directory at the end of the file remains to be read (PKWARE's APPNOTE 6.3.10, sections 4.3.7 and 4.3.12 to 4.3.16,
// with its 64-bit form).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace mh::io {

class ZipArchive {
 public:
  // Opens a regular file. Throws Error(input) with the place for archives that are truncated or split, and for entries
  // that are compressed, encrypted, beyond the end of the file, or of equal name.
  explicit ZipArchive(const std::string& path);
  const std::string& name() const { return file_.name(); }
  // Returns the bytes of an entry, valid as long as this object. The first access verifies its checksum, unless that is
  // 0, as torch.serialization.set_crc32_options(False) writes. Throws Error(input) for a missing or damaged entry.
  std::span<const uint8_t> data(const std::string& entry) const;
  bool has(const std::string& entry) const { return entries_.count(entry) > 0; }
  // Returns the entry whose name ends with `end`, or "" if there is none or more than one.
  std::string ending_with(const std::string& end) const;

 private:
  struct Entry {
    uint64_t header = 0;  // offset of its local header, before the bytes
    uint64_t size = 0;
    uint32_t crc = 0;
  };
  struct Directory {
    uint64_t begin = 0, size = 0, entries = 0;
  };
  Error bad(const std::string& place, const std::string& expected, const std::string& found) const;
  // Returns a little-endian number of 2, 4 or 8 bytes. Throws Error(input) past the end.
  uint64_t number(uint64_t at, int bytes) const;
  Directory find_directory() const;
  uint64_t add_entry(uint64_t at);

  MappedFile file_;
  std::map<std::string, Entry> entries_;
  mutable std::set<std::string> checked_;
};

// Returns the checksum of zip (CRC-32 of ISO 3309).
uint32_t crc32(std::span<const uint8_t> bytes);

}  // namespace mh::io
