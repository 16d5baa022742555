// The byte format of shards, shared by the writer and the readers. mh-shard(5) is the reference.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "io/shard.h"

namespace mh::io {

constexpr uint32_t kHeaderMagic = 0x184D2A50;   // skippable zstd frame with the header
constexpr uint32_t kTrailerMagic = 0x184D2A51;  // skippable zstd frame with sequence lengths or the trailer
constexpr uint32_t kSeekMagic = 0x184D2A5E;     // skippable zstd frame with the seek table
constexpr uint32_t kSeekFooter = 0x8F92EAB1;    // last 4 bytes of the seek table
constexpr uint32_t kZstdMagic = 0xFD2FB528;     // zstd frame of tokens

constexpr std::string_view kHeaderTag = "MHSHARD1";   // first 8 bytes of the payload of a header: tag and version
constexpr std::string_view kLengthsTag = "MHLENGT1";  // first 8 bytes of a payload of sequence lengths
constexpr std::string_view kTrailerTag = "MHTRAIL1";  // first 8 bytes of the payload of a trailer

constexpr size_t kFrameTokens = 1 << 15;  // tokens of a full frame; small, since a read decompresses whole frames
constexpr uint32_t kMaxShardHeaderBytes = 256U << 20;  // a longer header is invalid
constexpr uint32_t kMaxJsonBytes = 2U << 20;           // limit of the JSON text of a header or trailer
constexpr size_t kLengthsChunkBytes = 64U << 20;       // limit of compressed sequence lengths per trailer frame
constexpr uint32_t kMaxFrameBytes = 16U << 20;         // limit of the decompressed tokens of a frame

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

// Returns whether `bytes`, the first bytes of a file, begin with the magic number of a shard, so that an error can name
// a shard in place of another file. A zstd file of another program may begin with the same number.
inline bool has_shard_magic(std::string_view bytes) {
  return bytes.size() >= sizeof kHeaderMagic && load32(reinterpret_cast<const uint8_t*>(bytes.data())) == kHeaderMagic;
}

// The content of the last frame with kTrailerMagic.
struct Trailer {
  ShardCounts counts;
  uint64_t content_hash = 0;   // XXH64 of the decompressed content
  uint64_t lengths_hash = 0;   // XXH64 of the sequence lengths, as varints
  uint64_t num_sequences = 0;  // number of records times number of fields
  uint64_t lengths_bytes = 0;  // size in bytes of the sequence lengths, as varints
};

// Returns a description of the first fault of a header, or "" if the header is valid.
std::string header_fault(const ShardHeader& header);

// Returns the payload of the header frame, without the 8-byte head of the frame. The payload ends with the XXH64 of its
// other bytes.
std::string encode_header(const ShardHeader& header);
// Returns the payload of the trailer frame, without the 8-byte head of the frame. The payload ends with the XXH64 of
// its other bytes.
std::string encode_trailer(const Trailer& trailer);
// Decodes and checks the payload of a header frame. `name`: name of the shard for messages. Throws Error(input).
ShardHeader decode_header(std::string_view payload, const std::string& name);
// Decodes and checks the payload of a trailer frame. `name`: name of the shard for messages. Throws Error(input).
Trailer decode_trailer(std::string_view payload, const std::string& name);

// Decodes the sequence lengths (LEB128 varints) in `varints`, and checks their number, sum and hash against the
// trailer. If `lengths` is null, only checks them. Throws Error(input).
void decode_lengths(const std::string& varints, const Trailer& trailer, const std::string& name,
                    std::vector<uint32_t>* lengths);

// Returns an owner of `object`, an object of zstd or xxHash that the function `free` frees. Throws std::bad_alloc if
// `object` is null.
template <class T, class Result>
std::unique_ptr<T, Result (*)(T*)> owner_of(T* object, Result (*free)(T*)) {
  if (object == nullptr) throw std::bad_alloc();
  return {object, free};
}
// Returns `result`, a return value of zstd. Throws std::bad_alloc if zstd could not allocate memory; the caller checks
// for other errors.
size_t check_zstd_memory(size_t result);

// Throws Error(input) for a damaged shard. `where`: name of the shard, and the name of the damaged part if it is known.
[[noreturn]] void throw_damaged(const std::string& where, const std::string& expected, const std::string& found);
// Throws Error(input) for a shard that is damaged at the byte `offset`.
[[noreturn]] void throw_damaged(const std::string& name, uint64_t offset, const std::string& expected,
                                const std::string& found);
// Throws Error(input) for a shard that is truncated at the byte `offset`.
[[noreturn]] void throw_truncated(const std::string& name, uint64_t offset, const std::string& expected);

}  // namespace mh::io
