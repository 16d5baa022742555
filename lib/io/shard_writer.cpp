#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "base/json_types.h"
#include "io/record_kind.h"
#include "io/shard_format.h"

namespace mh::io {

namespace {

// Returns `result`, a return value of zstd. Throws std::bad_alloc if zstd could not allocate memory, and
// std::logic_error for any other error, since the parameters are valid and the output buffers are large enough.
size_t check_zstd_result(size_t result) {
  if (ZSTD_isError(check_zstd_memory(result)) != 0) throw std::logic_error(str("zstd: ", ZSTD_getErrorName(result)));
  return result;
}

}  // namespace

struct ShardWriter::State {
  ByteSink& sink;
  ShardHeader header;
  Trailer trailer;
  std::string pending_bytes;     // tokens that are not yet in a frame
  std::string compressed_frame;  // output buffer of write_frame(), reused for every frame
  std::string seek_table;        // entries of the frames written so far
  uint32_t num_frames = 0;
  const RecordKind* kind;            // null for an unknown kind, whose sequences may have any length
  std::vector<int64_t> limits;       // exclusive upper bound of the numbers of each field
  uint64_t num_sequence_tokens = 0;  // number of tokens of the current sequence so far
  uint64_t num_previous_tokens = 0;  // number of tokens of the preceding sequence; 0 if there is none
  using Compressor = std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)>;
  Compressor token_compressor = owner_of(ZSTD_createCCtx(), ZSTD_freeCCtx);   // compresses each frame of tokens
  Compressor length_compressor = owner_of(ZSTD_createCCtx(), ZSTD_freeCCtx);  // compresses all lengths as one stream
  std::string varints;                         // sequence lengths that are not yet compressed
  std::vector<std::string> length_chunks{""};  // compressed sequence lengths, one chunk per trailer frame
  using HashState = std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)>;
  HashState content_hash = owner_of(XXH64_createState(), XXH64_freeState);
  HashState lengths_hash = owner_of(XXH64_createState(), XXH64_freeState);

  State(ByteSink& s, const ShardHeader& h) : sink(s), header(h), kind(record_kind(h.kind)) {
    check_zstd_result(ZSTD_CCtx_setParameter(token_compressor.get(), ZSTD_c_checksumFlag, 1));
    check_zstd_result(ZSTD_CCtx_setParameter(token_compressor.get(), ZSTD_c_contentSizeFlag, 1));
    check_zstd_result(ZSTD_CCtx_setParameter(token_compressor.get(), ZSTD_c_compressionLevel, 3));
    check_zstd_result(ZSTD_CCtx_setParameter(length_compressor.get(), ZSTD_c_compressionLevel, 3));
    XXH64_reset(content_hash.get(), 0);
    XXH64_reset(lengths_hash.get(), 0);
  }

  // Adds a frame to the seek table. `compressed_size`: size of the frame in the file, bytes; `content_size`: size of
  // its decompressed tokens, bytes; 0 for a frame without tokens. Throws Error(failed) for 2^32 frames.
  void add_seek_entry(uint64_t compressed_size, uint64_t content_size) {
    store32(seek_table, static_cast<uint32_t>(compressed_size));
    store32(seek_table, static_cast<uint32_t>(content_size));
    if (++num_frames == 0)
      throw Error(Exit::failed,
                  "shard: expected fewer than 2^32 frames of tokens; found more; split the text into several shards");
  }
  // Writes a skippable frame. `in_seek_table`: whether the frame is added to the seek table.
  void write_skippable(uint32_t magic, std::string_view payload, bool in_seek_table = true) {
    std::string frame_header;
    store32(frame_header, magic);
    store32(frame_header, static_cast<uint32_t>(payload.size()));
    sink.write(std::string_view(frame_header));
    sink.write(payload);
    if (in_seek_table) add_seek_entry(frame_header.size() + payload.size(), 0);
  }
  // Compresses the pending tokens to a frame and writes the frame.
  void write_frame() {
    compressed_frame.resize(ZSTD_compressBound(pending_bytes.size()));
    size_t size =
        check_zstd_result(ZSTD_compress2(token_compressor.get(), compressed_frame.data(), compressed_frame.size(),
                                         pending_bytes.data(), pending_bytes.size()));
    sink.write(compressed_frame.data(), size);
    add_seek_entry(size, pending_bytes.size());
    XXH64_update(content_hash.get(), pending_bytes.data(), pending_bytes.size());
    pending_bytes.clear();
  }
  // Compresses the sequence lengths in `varints`, and clears `varints`.
  void compress_lengths(ZSTD_EndDirective mode) {
    XXH64_update(lengths_hash.get(), varints.data(), varints.size());
    trailer.lengths_bytes += varints.size();
    ZSTD_inBuffer in{varints.data(), varints.size(), 0};
    char buffer[1 << 14];
    size_t num_unflushed_bytes = 1;
    while (in.pos < in.size || (mode == ZSTD_e_end && num_unflushed_bytes > 0)) {
      ZSTD_outBuffer out{buffer, sizeof buffer, 0};
      num_unflushed_bytes = check_zstd_result(ZSTD_compressStream2(length_compressor.get(), &out, &in, mode));
      if (length_chunks.back().size() + out.pos > kLengthsChunkBytes) length_chunks.emplace_back();
      length_chunks.back().append(buffer, out.pos);
    }
    varints.clear();
  }
};

ShardWriter::ShardWriter(ByteSink& sink, const ShardHeader& header) : state_(std::make_unique<State>(sink, header)) {
  if (std::string fault = header_fault(header); !fault.empty())
    throw Error(Exit::usage, "shard header: expected a valid header; found " + fault + "; correct the header");
  if (header.token_bytes == 2 && header.largest_limit() > 65536)
    throw Error(Exit::usage, str("shard header: expected tokens of 4 bytes for the limit ", header.largest_limit(),
                                 "; found tokens of 2 bytes; set token_bytes = 4"));
  std::string payload = encode_header(header);
  if (payload.size() > kMaxShardHeaderBytes)
    refuse_usage("shard header", str("at most ", kMaxShardHeaderBytes, " bytes"), str(payload.size(), " bytes"),
                 "use a smaller vocabulary, which the header contains");
  for (size_t field = 0; field < header.field_names.size(); ++field) state_->limits.push_back(header.limit_of(field));
  state_->write_skippable(kHeaderMagic, payload);
}

ShardWriter::~ShardWriter() = default;

const ShardCounts& ShardWriter::counts() const { return state_->trailer.counts; }

void ShardWriter::add_text_bytes(uint64_t bytes) { state_->trailer.counts.text_bytes += bytes; }

void ShardWriter::add_dropped(const std::string& reason, uint64_t num_dropped) {
  state_->trailer.counts.num_dropped[reason] += num_dropped;
}

void ShardWriter::add_sequence(std::span<const int32_t> tokens) {
  add_tokens(tokens);
  end_sequence();
}

void ShardWriter::add_tokens(std::span<const int32_t> tokens) {
  State& s = *state_;
  const auto bytes_per_token = static_cast<size_t>(s.header.token_bytes);
  const size_t frame_bytes = kFrameTokens * bytes_per_token;
  const int64_t limit = s.limits[s.trailer.num_sequences % s.header.field_names.size()];
  while (!tokens.empty()) {
    size_t n = std::min(tokens.size(), (frame_bytes - s.pending_bytes.size()) / bytes_per_token);
    size_t offset = s.pending_bytes.size();
    s.pending_bytes.resize(offset + n * bytes_per_token);
    auto* out = reinterpret_cast<uint8_t*>(s.pending_bytes.data()) + offset;
    for (size_t i = 0; i < n; ++i) {
      auto v = static_cast<uint32_t>(tokens[i]);
      if (v >= static_cast<uint64_t>(limit))
        throw Error(Exit::failed, str("shard: expected token ids below ", limit, "; found the token id ", tokens[i],
                                      "; encode the text with the vocabulary of the shard"));
      for (size_t b = 0; b < bytes_per_token; ++b) *out++ = static_cast<uint8_t>(v >> (8 * b));
    }
    s.num_sequence_tokens += n;
    tokens = tokens.subspan(n);
    if (s.pending_bytes.size() == frame_bytes) s.write_frame();
  }
}

void ShardWriter::end_sequence() {
  State& s = *state_;
  if (s.num_sequence_tokens > UINT32_MAX)
    throw Error(Exit::input, "shard: expected fewer than 2^32 tokens in a line; found more; split the line");
  if (s.kind != nullptr && !s.kind->allows_length(s.trailer.num_sequences % s.header.field_names.size(),
                                                  s.num_sequence_tokens, s.num_previous_tokens))
    throw Error(Exit::failed,
                Problem{str(s.sink.name(), ": record ", s.trailer.num_sequences / s.header.field_names.size() + 1),
                        s.kind->length_rule(),
                        str("a sequence of ", s.num_sequence_tokens, " tokens in the field ",
                            s.header.field_names[s.trailer.num_sequences % s.header.field_names.size()]),
                        "write a sequence of a valid length"});
  s.num_previous_tokens = s.num_sequence_tokens;
  s.trailer.counts.num_tokens += s.num_sequence_tokens;
  s.trailer.counts.num_records = ++s.trailer.num_sequences / s.header.field_names.size();
  do {
    s.varints += static_cast<char>((s.num_sequence_tokens & 0x7F) | (s.num_sequence_tokens > 0x7F ? 0x80 : 0));
    s.num_sequence_tokens >>= 7;
  } while (s.num_sequence_tokens > 0);
  if (s.varints.size() > (1 << 16)) s.compress_lengths(ZSTD_e_continue);
}

void ShardWriter::finish() {
  State& s = *state_;
  if (s.num_sequence_tokens > 0 || s.trailer.num_sequences % s.header.field_names.size() != 0 ||
      (s.kind != nullptr && s.kind->ends_with_empty_sequence() && s.num_previous_tokens > 0))
    throw Error(Exit::failed,
                "shard: expected a complete last record; found missing sequences; write all fields of the record");
  if (!s.pending_bytes.empty()) s.write_frame();
  s.compress_lengths(ZSTD_e_end);
  for (const std::string& chunk : s.length_chunks) s.write_skippable(kTrailerMagic, std::string(kLengthsTag) + chunk);
  s.trailer.content_hash = XXH64_digest(s.content_hash.get());
  s.trailer.lengths_hash = XXH64_digest(s.lengths_hash.get());
  s.write_skippable(kTrailerMagic, encode_trailer(s.trailer));
  std::string seek_table = std::move(s.seek_table);
  store32(seek_table, s.num_frames);
  seek_table += '\0';  // descriptor: no checksums in the seek table, since each zstd frame has one
  store32(seek_table, kSeekFooter);
  s.write_skippable(kSeekMagic, seek_table, false);
}

}  // namespace mh::io
