// Shards (.mhs): random access, streaming, and the rules of each kind.
#include "io/shard.h"

#include <xxhash.h>
#include <zstd.h>

#include "base/json_types.h"
#include "fuzz/fuzz.h"
#include "io/shard_format.h"
#include "text/records/record_text.h"
#include "text/records/whole_shard.h"
#include "text/tokenizers.h"

using namespace mh;

namespace {

// Returns the bytes of a shard with corrected checksums of header and trailer, since a reader refuses mutations with
// wrong checksums.
std::string correct_checksums(std::string bytes) {
  for (size_t offset = 0; offset + 8 <= bytes.size();) {
    const auto* frame = reinterpret_cast<const uint8_t*>(bytes.data()) + offset;
    const size_t remaining_bytes = bytes.size() - offset;
    if (io::load32(frame) == io::kZstdMagic) {
      const size_t size = ZSTD_findFrameCompressedSize(frame, remaining_bytes);
      if (ZSTD_isError(size) != 0) break;
      offset += size;
      continue;
    }
    const size_t size = io::load32(frame + 4);
    if (size > remaining_bytes - 8) break;
    const std::string_view tag(bytes.data() + offset + 8, std::min<size_t>(size, 8));
    if (size >= 16 && (tag == io::kHeaderTag || tag == io::kTrailerTag)) {
      std::string checksum;
      io::store64(checksum, XXH64(frame + 8, size - 8, 0));
      bytes.replace(offset + size, 8, checksum);
    }
    offset += 8 + size;
  }
  return bytes;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string& path = fuzz::memory_file(correct_checksums(std::string(fuzz::text_of(data, size))));
  fuzz::check(size, fuzz::kBinaryFactor, [&] {
    const io::ShardFile shard(path);
    shard.sequence_lengths();
    text::tokenizers_of(shard.header(), "shard");
    text::verify(shard);
  });
  // Parsing the header takes most of the time, so each input is read by only one of the two readers of streams. A hash
  // of the input selects the reader, so that inputs of one size reach both.
  const bool reads_whole = XXH64(data, size, 0) % 2 == 0;
  fuzz::check(size, fuzz::kBinaryFactor, [&] {
    io::ShardStream stream(path);
    if (reads_whole) text::read_whole_shard(stream, stream.header().kind);
    else text::count_records(stream);
  });
  return 0;
}
