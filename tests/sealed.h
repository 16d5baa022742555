// Shards that are whole, every sum right, and whose runs are not what their header says.
#pragma once

#include <string>

#include "base/file.h"
#include "io/shard_format.h"

// Puts another header in front of what the shard holds.
inline void exchange_header(const std::string& path, const mh::io::ShardHeader& wanted) {
  using namespace mh::io;
  using namespace mh::text;
  std::string bytes = mh::read_text_file(path);
  const std::string payload = encode_header(wanted);
  std::string head;
  store32(head, kHeaderMagic);
  store32(head, static_cast<uint32_t>(payload.size()));
  const size_t before = 8 + load32(reinterpret_cast<const uint8_t*>(bytes.data()) + 4);
  bytes = head + payload + bytes.substr(before);
  // The first entry of the seek table is the header's size.
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const size_t entries = load32(data + bytes.size() - 9);
  std::string size;
  store32(size, static_cast<uint32_t>(8 + payload.size()));
  bytes.replace(bytes.size() - 9 - 8 * entries, 4, size);
  mh::write_file_atomically(path, bytes);
}
