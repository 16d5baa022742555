#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/empty_input.h"
#include "base/error.h"
#include "base/text.h"
#include "io/record_kind.h"
#include "io/shard_format.h"

namespace mh::io {

namespace {

constexpr size_t kMaxCachedFrames = 16;
// Maximum total size of the cached frames, bytes. Frames that mh-prep writes have at most 128 KiB, other frames at most
// 16 MiB (kMaxFrameBytes).
constexpr size_t kMaxCacheBytes = size_t{16} << 20;

// Decodes `count` little-endian tokens to `out`. Throws Error(input) for a token that is not below `limit`.
void unpack_tokens(const uint8_t* bytes, size_t count, int token_bytes, int64_t limit, int32_t* out,
                   const std::string& name) {
  uint32_t largest_token = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t v = token_bytes == 2 ? bytes[2 * i] | uint32_t{bytes[2 * i + 1]} << 8 : load32(bytes + 4 * i);
    largest_token = std::max(largest_token, v);
    out[i] = static_cast<int32_t>(v);
  }
  if (largest_token >= limit) throw_damaged(name, str("token ids below ", limit), str("the token id ", largest_token));
}

// Appends the decompressed zstd stream `compressed_lengths` to `out`. Throws Error(input) for a damaged stream and for
// more than `limit` bytes.
void decompress_lengths(const std::string& compressed_lengths, uint64_t limit, std::string& out,
                        const std::string& name) {
  const auto context = owner_of(ZSTD_createDCtx(), ZSTD_freeDCtx);
  ZSTD_inBuffer in{compressed_lengths.data(), compressed_lengths.size(), 0};
  std::vector<char> buffer(1 << 16);
  size_t zstd_status = 1;
  for (;;) {
    ZSTD_outBuffer output{buffer.data(), buffer.size(), 0};
    zstd_status = check_zstd_memory(ZSTD_decompressStream(context.get(), &output, &in));
    if (ZSTD_isError(zstd_status) != 0)
      throw_damaged(name, "sequence lengths that zstd can decompress",
                    str("zstd's error '", ZSTD_getErrorName(zstd_status), "'"));
    if (out.size() + output.pos > limit)
      throw_damaged(name, str(count_of(limit, "byte"), " of sequence lengths, as the trailer states"), "more bytes");
    out.append(buffer.data(), output.pos);
    if (zstd_status == 0 || (in.pos == in.size && output.pos < output.size)) break;
  }
  if (zstd_status != 0 || in.pos != in.size)
    throw_damaged(name, "one complete zstd stream of sequence lengths", "an incomplete stream or trailing bytes");
}

[[noreturn]] void throw_not_a_shard(const std::string& name, const std::string& found,
                                    const std::string& advice = "make a shard with mh-prep") {
  refuse_input(name, "a shard (.mhs)", found, advice);
}

// Returns up to 8 bytes of `data` in quotes, for messages; bytes other than printable ASCII characters are escaped, as
// in 'PK\x03\x04'.
std::string quote_first_bytes(const uint8_t* data, size_t size) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(size, 8); ++i) {
    const char byte = static_cast<char>(data[i]);
    const bool is_printable = byte >= ' ' && byte <= '~';
    text += is_printable ? std::string(1, byte) : escaped_byte(byte);
  }
  return "'" + text + "'";
}

// Returns the decompressed size in bytes of a zstd frame of tokens. `frame`: at least the header of the frame;
// `offset`: offset of the frame in the shard. Throws Error(input) unless the header states a checksum and a size of
// whole tokens, at most kMaxFrameBytes.
uint64_t content_size_of(std::span<const uint8_t> frame, int token_bytes, const std::string& name, uint64_t offset) {
  constexpr size_t kDescriptorOffset = 4;  // offset of the byte after the magic number
  constexpr uint8_t kChecksumFlag = 4;
  const bool has_checksum = frame.size() > kDescriptorOffset && (frame[kDescriptorOffset] & kChecksumFlag) != 0;
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (!has_checksum || size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR || size == 0 ||
      size > kMaxFrameBytes || size % static_cast<unsigned>(token_bytes) != 0)
    throw_damaged(name, offset, "a frame of tokens with its size and a checksum",
                  "a frame that begins with " + quote_first_bytes(frame.data(), frame.size()));
  return size;
}

}  // namespace

ShardFile::ShardFile(const std::string& path) : file_(path) {
  const uint8_t* data = file_.data();
  const uint64_t size = file_.size();
  if (size == 0) throw empty_input_error(name(), "a shard (.mhs)", "make a shard with mh-prep");
  if (size > 8 && data[8] == '{')  // safetensors: 8 bytes of header length, then JSON
    throw_not_a_shard(name(), "a file that looks like a checkpoint",
                      "name a shard instead, or make a shard with mh-prep");
  if (size < 8 || load32(data) != kHeaderMagic)
    throw_not_a_shard(name(), "a file that begins with " + quote_first_bytes(data, size));
  uint32_t header_size = load32(data + 4);
  if (header_size > kMaxShardHeaderBytes)
    throw_damaged(name(), 4, str("a header of at most ", kMaxShardHeaderBytes, " bytes"),
                  count_of(header_size, "byte"));
  if (header_size > size - 8) throw_truncated(name(), size, str("a header of ", count_of(header_size, "byte")));
  header_ = decode_header({reinterpret_cast<const char*>(data) + 8, header_size}, name());

  // The seek table at the end of the file has the compressed and decompressed size of every frame before it. The
  // constructor compares the sizes with the header and trailer frames. For token frames the constructor checks only the
  // bounds of the sizes; load_frame() compares the sizes when it decompresses a frame.
  if (size < 8 + header_size + 17 || load32(data + size - 4) != kSeekFooter)
    throw_truncated(name(), size, "a seek table at the end");
  uint64_t num_frames = load32(data + size - 9);
  if (data[size - 5] != 0) throw_damaged(name(), size - 5, "the seek table descriptor 0", str(int{data[size - 5]}));
  uint64_t table_size = 8 * num_frames + 9;
  if (table_size + 8 > size || load32(data + size - table_size - 8) != kSeekMagic ||
      load32(data + size - table_size - 4) != table_size)
    throw_damaged(name(), size - 9, str("a seek table of ", count_of(num_frames, "frame")), "a table of another size");
  const uint8_t* entry = data + size - table_size;
  uint64_t offset = 0, content_bytes = 0;
  const uint64_t end = size - table_size - 8;
  bool has_trailer = false;
  Trailer trailer;
  frames_.reserve(std::min(num_frames, end / 8) + 1);  // the loop refuses frames of less than 8 bytes
  Frame tokens_end{0, 0};
  for (uint64_t i = 0; i < num_frames; ++i, entry += 8) {
    uint32_t compressed_bytes = load32(entry), bytes = load32(entry + 4);
    if (compressed_bytes < 8 || compressed_bytes > end - offset)
      throw_damaged(name(), static_cast<uint64_t>(entry - data),
                    str("a frame of 8 to ", count_of(end - offset, "byte")),
                    str("a frame of ", count_of(compressed_bytes, "byte")));
    const uint32_t magic = load32(data + offset);
    if (bytes > 0) {
      const bool has_lengths = lengths_end_ > 0;  // frames of sequence lengths follow all frames of tokens
      if (magic != kZstdMagic || has_trailer || has_lengths || bytes > kMaxFrameBytes ||
          bytes % header_.token_bytes != 0)
        throw_damaged(name(), offset, "a frame of tokens",
                      "a frame that begins with " + quote_first_bytes(data + offset, 8));
      frames_.push_back({offset, content_bytes});
      content_bytes += bytes;
      tokens_end = {offset + compressed_bytes, content_bytes};
    } else {
      if (load32(data + offset + 4) != compressed_bytes - 8 || has_trailer || (i == 0) != (magic == kHeaderMagic) ||
          (i > 0 && magic != kTrailerMagic))
        throw_damaged(name(), offset, "a header or trailer frame",
                      "a frame that begins with " + quote_first_bytes(data + offset, 8));
      std::string_view payload(reinterpret_cast<const char*>(data) + offset + 8, compressed_bytes - 8);
      if (payload.substr(0, 8) == kLengthsTag) {
        if (lengths_end_ == 0) lengths_begin_ = offset;
        lengths_end_ = offset + compressed_bytes;
      } else if (i > 0) {
        trailer = decode_trailer(payload, name());
        has_trailer = true;
      }
    }
    offset += compressed_bytes;
  }
  if (!has_trailer || offset != end) throw_damaged(name(), offset, "a trailer, then the seek table", "other frames");
  counts_ = trailer.counts;
  content_hash_ = trailer.content_hash;
  if (content_bytes != counts_.num_tokens * header_.token_bytes ||
      trailer.num_sequences != counts_.num_records * header_.field_names.size())
    throw_damaged(
        name(), end,
        str(count_of(counts_.num_tokens, "token"), " in ",
            count_of(counts_.num_records * header_.field_names.size(), "sequence"), ", as the trailer states"),
        str(count_of(content_bytes / header_.token_bytes, "token"), " in ",
            count_of(trailer.num_sequences, "sequence")));
  trailer_ = std::make_unique<Trailer>(trailer);
  size_t largest_frame = 1;
  frames_.push_back(tokens_end);
  for (size_t i = 0; i + 1 < frames_.size(); ++i)
    largest_frame = std::max<size_t>(largest_frame, frames_[i + 1].content_offset - frames_[i].content_offset);
  cache_.resize(std::clamp<size_t>(kMaxCacheBytes / largest_frame, 1, kMaxCachedFrames));
}

ShardFile::~ShardFile() = default;

const std::string& ShardFile::name() const { return file_.name(); }

std::shared_ptr<const std::vector<uint8_t>> ShardFile::load_frame(size_t index) const {
  {
    std::lock_guard lock(mutex_);
    const CachedFrame& slot = cache_[index % cache_.size()];
    if (slot.frame_index == index) return slot.bytes;
  }
  const Frame &f = frames_[index], &next = frames_[index + 1];
  const uint64_t content_bytes = next.content_offset - f.content_offset;
  const std::span<const uint8_t> compressed_frame(file_.data() + f.file_offset, next.file_offset - f.file_offset);
  if (const uint64_t content_size = content_size_of(compressed_frame, header_.token_bytes, name(), f.file_offset);
      content_size != content_bytes)
    throw_damaged(name(), f.file_offset,
                  str(count_of(content_bytes, "byte"), " of tokens in the frame, as the seek table states"),
                  count_of(content_size, "byte"));
  auto bytes = std::make_shared<std::vector<uint8_t>>(content_bytes);
  size_t n = check_zstd_memory(
      ZSTD_decompress(bytes->data(), bytes->size(), compressed_frame.data(), compressed_frame.size()));
  if (n != content_bytes)  // then `n` is an error code, since zstd refuses content whose size differs from the frame
                           // header
    throw_damaged(name(), f.file_offset, "a frame that zstd can decompress",
                  str("zstd's error '", ZSTD_getErrorName(n), "'"));
  std::lock_guard lock(mutex_);
  cache_[index % cache_.size()] = {index, bytes};
  return bytes;
}

void ShardFile::read(uint64_t first_token, std::span<int32_t> out) const {
  if (first_token + out.size() > counts_.num_tokens || first_token + out.size() < first_token)
    throw std::out_of_range("ShardFile::read");
  const auto bytes_per_token = static_cast<uint64_t>(header_.token_bytes);
  uint64_t byte = first_token * bytes_per_token;
  auto it = std::upper_bound(frames_.begin(), frames_.end(), byte,
                             [](uint64_t b, const Frame& f) { return b < f.content_offset; });
  size_t index = static_cast<size_t>(it - frames_.begin()) - (out.empty() ? 0 : 1);
  for (size_t num_read = 0; num_read < out.size(); ++index) {
    auto bytes = load_frame(index);
    uint64_t begin_byte = byte + num_read * bytes_per_token - frames_[index].content_offset;
    size_t n = std::min<size_t>(out.size() - num_read, (bytes->size() - begin_byte) / bytes_per_token);
    unpack_tokens(bytes->data() + begin_byte, n, header_.token_bytes, header_.largest_limit(), out.data() + num_read,
                  name());
    num_read += n;
  }
}

const std::vector<uint32_t>& ShardFile::sequence_lengths() const {
  std::lock_guard lock(mutex_);
  if (!are_lengths_decoded_) {
    std::string compressed_lengths, varints;
    for (uint64_t offset = lengths_begin_; offset < lengths_end_;) {
      // The constructor has checked these sizes, but another program may have written to the file since.
      const uint64_t payload_bytes = load32(file_.data() + offset + 4);
      if (payload_bytes < kLengthsTag.size() || payload_bytes + 8 > lengths_end_ - offset)
        throw_damaged(name(), offset, "a frame of sequence lengths",
                      "a frame that begins with " + quote_first_bytes(file_.data() + offset, 8));
      compressed_lengths.append(reinterpret_cast<const char*>(file_.data()) + offset + 8 + kLengthsTag.size(),
                                payload_bytes - kLengthsTag.size());
      offset += 8 + payload_bytes;
    }
    decompress_lengths(compressed_lengths, trailer_->lengths_bytes, varints, name());
    decode_lengths(varints, *trailer_, name(), &lengths_);
    are_lengths_decoded_ = true;
  }
  return lengths_;
}

void ShardFile::verify(const TokenCheck& check) const {
  if (is_verified_) return;
  const auto state = owner_of(XXH64_createState(), XXH64_freeState);
  XXH64_state_t* hash = state.get();
  XXH64_reset(hash, 0);
  for (size_t i = 0; i + 1 < frames_.size(); ++i) {
    auto bytes = load_frame(i);
    XXH64_update(hash, bytes->data(), bytes->size());
    std::vector<int32_t> tokens(bytes->size() / header_.token_bytes);
    unpack_tokens(bytes->data(), tokens.size(), header_.token_bytes, header_.largest_limit(), tokens.data(), name());
    check(tokens);
  }
  if (XXH64_digest(hash) != content_hash_)
    throw_damaged(name(), "content with a matching checksum", "a different checksum");
  is_verified_ = true;
}

struct ShardStream::State {
  std::unique_ptr<ByteSource> source;
  ShardHeader header;
  Trailer trailer;
  uint64_t offset = 0;                 // bytes of the file read so far
  std::vector<uint8_t> frame_content;  // decompressed bytes of the current frame
  size_t num_returned_bytes = 0;       // bytes of the current frame that read() has returned
  uint64_t content_bytes = 0;          // decompressed bytes of all frames so far
  std::string compressed_lengths;
  std::string seek_table;  // entries of the frames read so far; at the end equal to the seek table in the file
  uint32_t num_frames = 0;
  std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> hash = owner_of(XXH64_createState(), XXH64_freeState);
  bool is_at_end = false;

  explicit State(const std::string& path) : source(open_source(path)) { XXH64_reset(hash.get(), 0); }

  // Reads exactly `size` bytes. Throws Error(input) if the shard is truncated; `description`: name of the bytes for the
  // message.
  void read_bytes(void* data, size_t size, const char* description) {
    if (!source->read_exactly(data, size)) throw_truncated(source->name(), offset, description);
    offset += size;
  }
  // Reads exactly `size` bytes, in steps of 64 KiB, so that a false size allocates no memory for bytes that do not
  // exist.
  std::string read_text(size_t size, const char* description) {
    std::string text;
    while (text.size() < size) {
      size_t step = std::min<size_t>(size - text.size(), 1 << 16);
      text.resize(text.size() + step);
      read_bytes(text.data() + text.size() - step, step, description);
    }
    return text;
  }
  // Adds a frame to `seek_table`. `compressed_size`: size of the frame in the file, bytes; `content_size`: size of its
  // decompressed tokens, bytes; 0 for a frame without tokens.
  void add_seek_entry(uint64_t compressed_size, uint64_t content_size) {
    store32(seek_table, static_cast<uint32_t>(compressed_size));
    store32(seek_table, static_cast<uint32_t>(content_size));
    ++num_frames;
  }
  void read_frame(const uint8_t* magic);
  void read_seek_table(uint32_t size);
  bool read_next_frame();
};

// Reads one zstd frame of tokens. Takes the sizes of the frame header and of the blocks from the stream, so that no
// byte of the next frame is read. `magic`: the first 4 bytes of the frame, which are already read.
void ShardStream::State::read_frame(const uint8_t* magic) {
  const std::string& name = source->name();
  const uint64_t frame_offset = offset - 4;
  std::string bytes(reinterpret_cast<const char*>(magic), 4);
  auto read_more = [&](size_t n) {
    bytes.resize(bytes.size() + n);
    read_bytes(bytes.data() + bytes.size() - n, n, "the rest of a frame");
  };
  // The byte after the magic number determines the length of the frame header, at most 14 bytes.
  read_more(1);
  auto descriptor = static_cast<uint8_t>(bytes[4]);
  const bool is_single_segment = (descriptor & 0x20) != 0;
  static const int dictionary_id_bytes[4] = {0, 1, 2, 4}, content_size_bytes[4] = {0, 2, 4, 8};
  int remaining_bytes = (is_single_segment ? 0 : 1) + dictionary_id_bytes[descriptor & 3] +
                        content_size_bytes[descriptor >> 6] + (is_single_segment && descriptor >> 6 == 0 ? 1 : 0);
  read_more(static_cast<size_t>(remaining_bytes));
  const uint64_t content_size = content_size_of({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                                                header.token_bytes, name, frame_offset);
  for (bool is_last_block = false; !is_last_block;) {  // the 3 bytes of a block header: last-block flag, type, size
    read_more(3);
    const auto* block_header = reinterpret_cast<const uint8_t*>(bytes.data()) + bytes.size() - 3;
    uint32_t block = block_header[0] | uint32_t{block_header[1]} << 8 | uint32_t{block_header[2]} << 16;
    is_last_block = (block & 1) != 0;
    size_t block_bytes = (block >> 1 & 3) == 1 ? 1 : block >> 3;
    if (bytes.size() + block_bytes > ZSTD_compressBound(kMaxFrameBytes))
      throw_damaged(name, frame_offset,
                    str("a compressed frame of at most ", ZSTD_compressBound(kMaxFrameBytes), " bytes"),
                    "a larger frame");
    read_more(block_bytes);
  }
  read_more(4);  // checksum
  frame_content.resize(content_size);
  num_returned_bytes = 0;
  size_t n = check_zstd_memory(ZSTD_decompress(frame_content.data(), frame_content.size(), bytes.data(), bytes.size()));
  if (n != content_size)  // an error code: zstd refuses content of another size than the frame header states
    throw_damaged(name, frame_offset, "a frame that zstd can decompress",
                  str("zstd's error '", ZSTD_getErrorName(n), "'"));
  XXH64_update(hash.get(), frame_content.data(), frame_content.size());
  content_bytes += n;
  add_seek_entry(bytes.size(), n);
}

// Reads the seek table of `size` bytes, the last frame of a shard, and checks the seek table and all counts and
// checksums of the shard.
void ShardStream::State::read_seek_table(uint32_t size) {
  const std::string& name = source->name();
  store32(seek_table, num_frames);
  seek_table += '\0';
  store32(seek_table, kSeekFooter);
  if (size != seek_table.size() || read_text(size, "the seek table") != seek_table)
    throw_damaged(name, offset, "a seek table that lists the frames of the shard", "a different seek table");
  char next_byte = 0;
  if (source->read(&next_byte, 1) != 0) throw_damaged(name, offset, "the end of the shard", "more bytes");
  std::string varints;
  decompress_lengths(compressed_lengths, trailer.lengths_bytes, varints, name);
  decode_lengths(varints, trailer, name, nullptr);
  if (content_bytes != trailer.counts.num_tokens * static_cast<uint64_t>(header.token_bytes) ||
      trailer.num_sequences != trailer.counts.num_records * header.field_names.size())
    throw_damaged(
        name, offset,
        str(count_of(trailer.counts.num_tokens, "token"), " in ",
            count_of(trailer.counts.num_records * header.field_names.size(), "sequence"), ", as the trailer states"),
        str(count_of(content_bytes / static_cast<uint64_t>(header.token_bytes), "token"), " in ",
            count_of(trailer.num_sequences, "sequence")));
  if (XXH64_digest(hash.get()) != trailer.content_hash)
    throw_damaged(name, offset, "content with a matching checksum", "a different checksum");
  is_at_end = true;
}

// Reads frames until the next frame of tokens. Returns false at the end of the shard, after all checks.
bool ShardStream::State::read_next_frame() {
  bool has_trailer = false;
  for (;;) {
    uint8_t frame_header[8];
    read_bytes(frame_header, 4, has_trailer ? "the seek table" : "the next frame");
    uint32_t magic = load32(frame_header);
    if (magic == kZstdMagic && !has_trailer && compressed_lengths.empty()) {
      read_frame(frame_header);
      return true;
    }
    read_bytes(frame_header + 4, 4, "the size of a frame");
    uint32_t size = load32(frame_header + 4);
    if (magic == kSeekMagic && has_trailer) {
      read_seek_table(size);
      return false;
    }
    if (magic != kTrailerMagic || size < 8 || has_trailer || size > kLengthsChunkBytes + 8)
      throw_damaged(source->name(), offset - 8, "a frame of tokens or a trailer",
                    "a frame that begins with " + quote_first_bytes(frame_header, 8));
    std::string payload = read_text(size, "a trailer");
    add_seek_entry(size + 8, 0);
    if (payload.compare(0, 8, kLengthsTag) == 0) {
      compressed_lengths.append(payload, 8, std::string::npos);
    } else {
      trailer = decode_trailer(payload, source->name());
      has_trailer = true;
    }
  }
}

ShardStream::ShardStream(const std::string& path) : state_(std::make_unique<State>(path)) {
  State& s = *state_;
  uint8_t frame_header[8];
  size_t num_read_bytes = 0;
  while (num_read_bytes < 8) {
    size_t n = s.source->read(frame_header + num_read_bytes, 8 - num_read_bytes);
    if (n == 0) break;
    num_read_bytes += n;
  }
  s.offset = num_read_bytes;
  if (num_read_bytes == 0) throw empty_input_error(name(), "a shard (.mhs)", "make a shard with mh-prep");
  if (num_read_bytes < 4 || load32(frame_header) != kHeaderMagic)
    throw_not_a_shard(name(), "a file that begins with " + quote_first_bytes(frame_header, num_read_bytes));
  if (num_read_bytes < 8) throw_truncated(name(), num_read_bytes, "a header");
  uint32_t size = load32(frame_header + 4);
  if (size > kMaxShardHeaderBytes)
    throw_damaged(name(), 4, str("a header of at most ", kMaxShardHeaderBytes, " bytes"), count_of(size, "byte"));
  s.header = decode_header(s.read_text(size, "the header"), name());
  s.add_seek_entry(size + 8, 0);
}

ShardStream::~ShardStream() = default;
const ShardHeader& ShardStream::header() const { return state_->header; }
const std::string& ShardStream::name() const { return state_->source->name(); }
const ShardCounts& ShardStream::counts() const { return state_->trailer.counts; }

size_t ShardStream::read(std::span<int32_t> out) {
  State& s = *state_;
  const auto bytes_per_token = static_cast<size_t>(s.header.token_bytes);
  size_t num_read = 0;
  while (num_read < out.size() && !s.is_at_end) {
    if (s.num_returned_bytes == s.frame_content.size() && !s.read_next_frame()) break;
    size_t n = std::min(out.size() - num_read, (s.frame_content.size() - s.num_returned_bytes) / bytes_per_token);
    unpack_tokens(s.frame_content.data() + s.num_returned_bytes, n, s.header.token_bytes, s.header.largest_limit(),
                  out.data() + num_read, name());
    s.num_returned_bytes += n * bytes_per_token;
    num_read += n;
  }
  return num_read;
}

std::vector<uint32_t> ShardStream::sequence_lengths() const {
  std::string varints;
  std::vector<uint32_t> lengths;
  decompress_lengths(state_->compressed_lengths, state_->trailer.lengths_bytes, varints, name());
  decode_lengths(varints, state_->trailer, name(), &lengths);
  return lengths;
}

void require_kind(const ShardHeader& header, const std::string& name, const std::string& kind) {
  if (header.kind != kind)
    refuse_input(name, "a shard of the kind " + kind, "the kind " + header.kind,
                 "make a shard of the kind " + kind + " with " + prep_commands_for(kind));
}

void require_vocabulary(const ShardHeader& header, const std::string& name, const std::string& fingerprint,
                        const std::string& owner, Side side) {
  const std::string& shard_fingerprint = header.fingerprint_of(side);
  if (shard_fingerprint == fingerprint) return;
  const bool are_sides_swapped =
      header.fingerprint_of(side == Side::source ? Side::target : Side::source) == fingerprint;
  const char* vocabulary_name = header.shares_vocabulary() ? "vocabulary"
                                : side == Side::source     ? "source vocabulary"
                                                           : "target vocabulary";
  refuse_input(name, str("the ", vocabulary_name, " ", fingerprint, " of ", owner),
               str("the ", vocabulary_name, " ", shard_fingerprint),
               are_sides_swapped ? "source and target of the shard are exchanged: make the shard again with "
                                   "the two texts in the other order"
                                 : "make the shard again from the same text with the vocabulary of " + owner);
}

}  // namespace mh::io
