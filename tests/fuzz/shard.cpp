// Shards (.mhs): random access, streaming, and the rules of each kind.
#include "io/shard.h"

#include "base/json_types.h"
#include "fuzz/fuzz.h"
#include "text/records/record_text.h"
#include "text/records/whole_shard.h"
#include "text/tokenizers.h"

using namespace mh;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::check(size, fuzz::kBinaryFactor, [&] {
    const io::ShardFile shard(file.path());
    shard.sequence_lengths();
    text::tokenizers_of(shard.header(), "shard");
    text::verify(shard);
  });
  fuzz::check(size, fuzz::kBinaryFactor, [&] {
    io::ShardStream stream(file.path());
    text::read_whole_shard(stream, stream.header().kind);
  });
  fuzz::check(size, fuzz::kBinaryFactor, [&] {
    io::ShardStream stream(file.path());
    text::count_records(stream);
  });
  return 0;
}
