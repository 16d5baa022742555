// Reads zip archives with uncompressed entries, as torch.save writes them. An entry is a range of the mapped file, so
// tensors of any size are read in place, whereas libzip and minizip copy entries into buffers. Without decompression,
// only the directory at the end of the file and the header of each entry have to be decoded (APPNOTE 6.3.10 of PKWARE,
// sections 4.3.7 and 4.3.12 to 4.3.16, including ZIP64).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace mh::io {

class ZipArchive {
 public:
  // Opens a regular file. Throws Error(input) for archives that are truncated or split, and for entries that are
  // compressed or encrypted, or that have the same name.
  explicit ZipArchive(const std::string& path);
  const std::string& name() const { return file_.name(); }
  // Returns the bytes of an entry, valid for the lifetime of this object. The first access verifies the CRC-32 of the
  // entry, unless the archive stores 0 as the CRC-32, as after torch.serialization.set_crc32_options(False). Throws
  // Error(input) for an entry that is missing, damaged or beyond the end of the file.
  std::span<const uint8_t> data(const std::string& entry) const;
  // Throws Error(input) if another program has shortened the file, see MappedFile::require_full_size(). A caller that
  // has read the bytes of an entry calls this function afterwards.
  void require_full_size() const { file_.require_full_size(); }
  // Releases the memory of the mapped pages of an entry. Bytes that data() returned stay valid.
  void release(std::span<const uint8_t> bytes) const;
  bool has(const std::string& entry) const { return entries_.count(entry) > 0; }
  // Returns the name of the only entry whose name ends with `suffix`; "" if there is none or more than one.
  std::string find_by_suffix(const std::string& suffix) const;

 private:
  struct Entry {
    uint64_t header_offset = 0;  // offset of the local header, which precedes the bytes of the entry
    uint64_t size = 0;
    uint32_t crc = 0;
  };
  struct CentralDirectory {  // the central directory: offset and size in bytes, number of entries
    uint64_t offset = 0, size = 0, num_entries = 0;
  };
  Error format_error(const std::string& where, const std::string& expected, const std::string& found) const;
  // Returns the little-endian number of `num_bytes` (2, 4 or 8) bytes at the offset `offset`. Throws Error(input)
  // beyond the end of the file.
  uint64_t read_number(uint64_t offset, int num_bytes) const;
  // Returns the central directory. Throws Error(input) if the file has none.
  CentralDirectory find_central_directory() const;
  // Adds the entry that the directory lists at the offset `offset`; returns the offset of the next entry in the
  // directory.
  uint64_t add_entry(uint64_t offset);

  MappedFile file_;
  std::map<std::string, Entry> entries_;
  mutable std::mutex mutex_;  // guards `verified_names_`
  mutable std::set<std::string> verified_names_;
};

// Returns the CRC-32 (ISO 3309), the checksum of zip archives.
uint32_t crc32(std::span<const uint8_t> bytes);

}  // namespace mh::io
