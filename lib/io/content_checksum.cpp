#include "io/content_checksum.h"

#include <xxhash.h>

#include <algorithm>
#include <string_view>

#include "base/file.h"
#include "base/text.h"
#include "io/checkpoint.h"
#include "io/shard.h"
#include "io/shard_format.h"

namespace mh::io {

namespace {

// Returns whether the file begins with the header frame of a shard. The magic number alone does not suffice: a zstd
// file of another program that begins with the number is no damaged shard, and has a checksum, too.
bool has_shard_header(const MappedFile& file) {
  constexpr size_t kHeadBytes = 8;  // magic number and size of the frame of the header
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  return has_shard_magic(bytes) && bytes.size() > kHeadBytes && bytes.substr(kHeadBytes).starts_with(kHeaderTag);
}

// Returns the size in bytes of the header of a safetensors file, with the 8 bytes of its length; 0 for other files.
size_t checkpoint_header_bytes(const MappedFile& file) {
  if (file.size() <= 8 || file.data()[8] != '{') return 0;
  const uint64_t length = load64(file.data());
  return length <= std::min<uint64_t>(kMaxHeaderBytes, file.size() - 8) ? static_cast<size_t>(8 + length) : 0;
}

}  // namespace

std::string content_checksum(const std::string& path) {
  if (!MappedFile::is_mappable(path)) return "";
  const MappedFile file(path);
  if (has_shard_header(file)) return hex64(ShardFile(path).content_hash());
  const size_t header_bytes = checkpoint_header_bytes(file);
  return hex64(XXH64(file.data(), header_bytes > 0 ? header_bytes : file.size(), 0));
}

}  // namespace mh::io
