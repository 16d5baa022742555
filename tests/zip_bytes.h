// Archives made by hand, as torch.save writes them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/zip.h"

// Little-endian.
inline std::string bytes_of_number(uint64_t n, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(n >> (8 * i));
  return out;
}

struct ZipOptions {
  bool large = false;  // sizes and places in their 64-bit form
  bool sums = true;
  uint16_t method = 0, flags = 0;
};

inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& entries,
                          const ZipOptions& options = {}) {
  std::string out, directory;
  auto n = bytes_of_number;
  for (const auto& [name, data] : entries) {
    const uint64_t sum = options.sums ? mh::io::crc32({reinterpret_cast<const uint8_t*>(data.data()), data.size()}) : 0;
    const uint64_t size = options.large ? 0xFFFFFFFF : data.size(), at = options.large ? 0xFFFFFFFF : out.size();
    const std::string extra =
        options.large ? n(1, 2) + n(24, 2) + n(data.size(), 8) + n(data.size(), 8) + n(out.size(), 8) : "";
    const std::string common =
        n(options.flags, 2) + n(options.method, 2) + n(0, 4) + n(sum, 4) + n(size, 4) + n(size, 4) + n(name.size(), 2);
    directory += n(0x02014B50, 4) + n(20, 2) + n(20, 2) + common + n(extra.size(), 2) + n(0, 2) + n(0, 2) + n(0, 2) +
                 n(0, 4) + n(at, 4) + name + extra;
    out += n(0x04034B50, 4) + n(20, 2) + common + n(5, 2) + name + "extra" + data;  // the padding differs from there
  }
  const uint64_t begin = out.size(), count = entries.size();
  out += directory;
  if (options.large) {
    const uint64_t end = out.size();
    out += n(0x06064B50, 4) + n(44, 8) + n(45, 2) + n(45, 2) + n(0, 4) + n(0, 4) + n(count, 8) + n(count, 8) +
           n(directory.size(), 8) + n(begin, 8);
    out += n(0x07064B50, 4) + n(0, 4) + n(end, 8) + n(1, 4);
  }
  const auto small = [&](uint64_t value, uint64_t most) { return options.large ? most : value; };
  out += n(0x06054B50, 4) + n(0, 2) + n(0, 2) + n(small(count, 0xFFFF), 2) + n(small(count, 0xFFFF), 2) +
         n(small(directory.size(), 0xFFFFFFFF), 4) + n(small(begin, 0xFFFFFFFF), 4) + n(0, 2);
  return out;
}
