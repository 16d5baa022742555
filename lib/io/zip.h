// Zip archives whose entries are stored as they are, which is how torch.save writes its files: an entry is a range of
// the mapped file, so tensors of any size are read in place. That is why no library reads them here: libzip and minizip
// unpack entries into buffers, and what is left to do without unpacking is the directory at the end of the file
// (PKWARE's APPNOTE 6.3.10, sections 4.3.7 and 4.3.12 to 4.3.16), in its 64-bit form too.
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
  // A regular file. Error(input) with the place for whatever is not such an archive: cut off, several disks, entries
  // that are compressed or encrypted, that reach beyond the file, or of one name.
  explicit ZipArchive(const std::string& path);
  const std::string& name() const { return file_.name(); }
  // The bytes of an entry, valid as long as this object; the first access checks their checksum, unless it is 0, as
  // torch.serialization.set_crc32_options(False) writes. Error(input) where it is missing or damaged.
  std::span<const uint8_t> data(const std::string& entry) const;
  bool has(const std::string& entry) const { return entries_.count(entry) > 0; }
  // The one entry whose name ends so, or "" where there is none or several.
  std::string ending_with(const std::string& end) const;

 private:
  struct Entry {
    uint64_t header = 0;  // of its own, in front of the bytes
    uint64_t size = 0;
    uint32_t crc = 0;
  };
  struct Directory {
    uint64_t begin = 0, size = 0, entries = 0;
  };
  Error bad(const std::string& place, const std::string& expected, const std::string& found) const;
  // Little-endian, of 2, 4 or 8 bytes. Error(input) beyond the end.
  uint64_t number(uint64_t at, int bytes) const;
  Directory find_directory() const;
  uint64_t add_entry(uint64_t at);

  MappedFile file_;
  std::map<std::string, Entry> entries_;
  mutable std::set<std::string> checked_;
};

// The checksum of zip (CRC-32 of ISO 3309).
uint32_t crc32(std::span<const uint8_t> bytes);

}  // namespace mh::io
