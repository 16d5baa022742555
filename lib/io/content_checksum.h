// Checksums that tell whether two files have equal contents, without reading large files completely.
#pragma once

#include <string>

namespace mh::io {

// Returns a hexadecimal XXH64 of the content of a file: of a shard, the checksum of the content in the trailer; of a
// checkpoint, the checksum of the header, which contains the checksums of the tensors unless another program wrote the
// file; of other regular files, the checksum of all bytes. Returns "" for a path that is no regular file. Throws
// Error(input) for files that cannot be read and for damaged shards.
std::string content_checksum(const std::string& path);

}  // namespace mh::io
