// The byte format of shards, shared by the writer and the readers. mh-shard(5) is the reference.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/shard.h"

namespace mh::io {

constexpr uint32_t kHeaderMagic = 0x184D2A50;  // skippable frames of zstd
constexpr uint32_t kTrailerMagic = 0x184D2A51;
constexpr uint32_t kSeekMagic = 0x184D2A5E;
constexpr uint32_t kSeekFooter = 0x8F92EAB1;
constexpr uint32_t kZstdMagic = 0xFD2FB528;

constexpr std::string_view kHeaderTag = "MHSHARD1";  // tag and version of each payload
constexpr std::string_view kLengthsTag = "MHLENGT1";
constexpr std::string_view kTrailerTag = "MHTRAIL1";

constexpr size_t kFrameTokens = 1 << 15;        // small enough that reading one random block costs microseconds
constexpr uint32_t kMaxHeader = 256U << 20;     // a larger header is not that of a shard
constexpr uint32_t kMaxTrailer = 1U << 20;      // the JSON of the last trailer
constexpr size_t kLengthsChunk = 64U << 20;     // compressed run lengths of one trailer frame
constexpr uint32_t kMaxFrameBytes = 16U << 20;  // a larger data frame is not ours

inline uint32_t load32(const uint8_t* p) {
  return p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}
inline uint64_t load64(const uint8_t* p) { return load32(p) | uint64_t{load32(p + 4)} << 32; }
inline void store32(std::string& out, uint32_t v) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>(v >> (8 * i));
}
inline void store64(std::string& out, uint64_t v) {
  for (int i = 0; i < 8; ++i) out += static_cast<char>(v >> (8 * i));
}

// The parts of the last trailer frame.
struct Trailer {
  ShardCounts counts;
  uint64_t content_hash = 0;  // xxh64 of the uncompressed content
  uint64_t lengths_hash = 0;  // xxh64 of the run lengths as varints
  uint64_t runs = 0;
  uint64_t lengths_bytes = 0;  // bytes of the run lengths as varints
};

// Returns why a header is invalid; "" if it is valid.
std::string header_fault(const ShardHeader& header);

// Return payloads without the 8-byte head of the skippable frame; both end with the xxh64 of the bytes before it.
std::string encode_header(const ShardHeader& header);
std::string encode_trailer(const Trailer& trailer);
// Decode payloads; `name`: name of the shard for messages. Throw Error(input).
ShardHeader decode_header(std::string_view payload, const std::string& name);
Trailer decode_trailer(std::string_view payload, const std::string& name);

// Decodes run lengths (LEB128 varints) and checks count, sum and hash against the trailer. `lengths` may be null to
// check only.
void decode_lengths(const std::string& packed, const Trailer& trailer, const std::string& name,
                    std::vector<uint32_t>* lengths);

[[noreturn]] void damaged(const std::string& name, uint64_t offset, const std::string& expected,
                          const std::string& found);
[[noreturn]] void cut_off(const std::string& name, uint64_t offset, const std::string& expected);

}  // namespace mh::io
