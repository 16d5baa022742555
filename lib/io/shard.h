// Shards (.mhs): files of tokenised records, described byte by byte in mh-shard(5). A shard is a valid zstd file,
// written sequentially, so that it can be written to a pipe; a mapped shard allows random access.
//
// A record has one sequence of numbers for each field of its kind (record_kind.h). The content of a shard is the
// concatenation of the sequences of all records.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace mh::io {

struct Trailer;  // shard_format.h

enum class Side { source, target };

// The header of a shard, written before the first token.
struct ShardHeader {
  std::string kind;  // set by set_kind()
  std::vector<std::string> field_names;
  int token_bytes = 2;          // size of a token: 2 or 4 bytes, little-endian
  int64_t vocabulary_size = 0;  // number of entries, the exclusive upper bound of tokens
  std::string fingerprint;      // fingerprint of the vocabulary (tokenizer.h)
  std::string tokenizer;        // contents of the vocabulary file, which decodes the tokens to text
  // Size, fingerprint and file contents of the source vocabulary, for pairs whose sides have separate vocabularies;
  // `vocabulary_size`, `fingerprint` and `tokenizer` then describe the target vocabulary. 0 and empty if the sides
  // share one vocabulary.
  int64_t source_vocabulary_size = 0;
  std::string source_fingerprint;
  std::string source_tokenizer;
  // Exclusive upper bound of the numbers of each field; the bound of a field of tokens is at most the vocabulary size
  // of its side. Empty: the bound of every field is the vocabulary size of its side.
  std::vector<int64_t> limits;
  std::string task;  // purpose of the records, a JSON object; empty if the kind determines it
  // JSON object with tool, version, inputs and options; no time of day, so that equal inputs give equal bytes.
  std::string provenance = "{}";

  // Returns whether source and target share one vocabulary.
  bool shares_vocabulary() const { return source_vocabulary_size == 0; }
  int64_t vocabulary_size_of(Side s) const { return has_own_vocabulary(s) ? source_vocabulary_size : vocabulary_size; }
  const std::string& fingerprint_of(Side s) const { return has_own_vocabulary(s) ? source_fingerprint : fingerprint; }
  const std::string& tokenizer_of(Side s) const { return has_own_vocabulary(s) ? source_tokenizer : tokenizer; }
  // Returns the side whose vocabulary the field with index `field` uses; Side::target for an unknown kind.
  Side side_of(uint64_t field) const;
  // Returns the exclusive upper bound of the numbers of the field with index `field`.
  int64_t limit_of(uint64_t field) const { return limits.empty() ? vocabulary_size_of(side_of(field)) : limits[field]; }
  // Returns the largest of the exclusive upper bounds of all fields.
  int64_t largest_limit() const;
  // Sets the kind, its fields, the limits and the size of a token in bytes. The vocabularies must be set first. Throws
  // Error(usage) for an unknown kind.
  void set_kind(const std::string& kind, std::vector<int64_t> limits = {});

 private:
  bool has_own_vocabulary(Side s) const { return s == Side::source && !shares_vocabulary(); }
};

// The counts in the trailer of a shard, written after the last token.
struct ShardCounts {
  uint64_t num_tokens = 0;
  uint64_t num_records = 0;
  // Size in bytes of the text from which the records were made, including line ends, for bits per byte; for pairs, size
  // of the target text only; for questions, without line ends and with each paragraph counted once.
  uint64_t text_bytes = 0;
  std::map<std::string, uint64_t> num_dropped;  // number of dropped pairs or lines, by reason
};

// Writes a shard sequentially and in constant memory, except for about one byte per record for the compressed lengths
// of the sequences.
class ShardWriter {
 public:
  // Writes the header. `sink` must outlive the writer. Throws Error(usage) for an inconsistent header.
  ShardWriter(ByteSink& sink, const ShardHeader& header);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Appends a sequence; a record is complete after one sequence for each field. Throws Error(failed) for a token that
  // is negative or not below the limit of the field, and for a length that the kind does not allow (record_kind()).
  void add_sequence(std::span<const int32_t> tokens);
  // Appends a sequence that is too long for memory, by any number of calls of add_tokens() and then one call of
  // end_sequence(), which throws Error(input) for 2^32 tokens or more.
  void add_tokens(std::span<const int32_t> tokens);
  void end_sequence();
  void add_text_bytes(uint64_t bytes);
  // Adds to the number of pairs or lines that were dropped for `reason`.
  void add_dropped(const std::string& reason, uint64_t num_dropped);
  // Writes the remaining tokens, the trailer and the seek table; does not close the sink. Without finish(), readers
  // report the shard as truncated. Throws Error(failed) if the last record is not complete.
  void finish();
  const ShardCounts& counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A shard in a mapped file, with random access. Thread-safe. Throws Error(input), with the file and, if it is known,
// the byte offset, for files that are not valid shards.
class ShardFile {
 public:
  explicit ShardFile(const std::string& path);
  ~ShardFile();
  const ShardHeader& header() const { return header_; }
  const ShardCounts& counts() const { return counts_; }
  const std::string& name() const;
  // Returns the XXH64 of the decompressed content, from the trailer; equal for shards with equal content.
  uint64_t content_hash() const { return content_hash_; }

  // Reads the tokens [first_token, first_token + out.size()) of the content. Throws std::out_of_range beyond the end of
  // the content. Verifies the checksum of every decompressed frame, and throws Error(input) for a frame without a
  // checksum. Caches up to 16 frames (at most 2 MiB for a shard of ShardWriter).
  void read(uint64_t first_token, std::span<int32_t> out) const;
  // Returns the lengths of all sequences in order, one for each field of each record. The first call reads and checks
  // the lengths.
  const std::vector<uint32_t>& sequence_lengths() const;
  using TokenCheck = std::function<void(std::span<const int32_t>)>;
  // Reads the content once from start to end, verifies its checksums, and passes all tokens to `check`, one frame per
  // call. Does not verify the sequence lengths. `check` verifies the rules of the kind (text/records/whole_shard.h),
  // since this class compares tokens only with the largest limit of all fields. Does nothing after a successful call.
  void verify(const TokenCheck& check) const;

 private:
  // Begin of a frame of tokens, which ends at the begin of the next frame.
  struct Frame {
    uint64_t file_offset;     // offset in the file, in bytes
    uint64_t content_offset;  // offset in the decompressed content, in bytes
  };
  struct CachedFrame {
    size_t frame_index = SIZE_MAX;
    std::shared_ptr<const std::vector<uint8_t>> bytes;
  };
  std::shared_ptr<const std::vector<uint8_t>> load_frame(size_t index) const;

  MappedFile file_;
  ShardHeader header_;
  ShardCounts counts_;
  // The frames of tokens, then the end of the last frame. A damaged shard may have a frame for every 16 bytes of the
  // file, so that a larger entry would take more memory than twice the size of the file.
  std::vector<Frame> frames_;
  uint64_t lengths_begin_ = 0, lengths_end_ = 0;  // range in the file, in bytes, of the frames of sequence lengths
  uint64_t content_hash_ = 0;
  std::unique_ptr<Trailer> trailer_;
  mutable std::mutex mutex_;
  mutable std::vector<CachedFrame> cache_;
  mutable std::vector<uint32_t> lengths_;
  mutable bool are_lengths_decoded_ = false;
  mutable std::atomic<bool> is_verified_ = false;
};

// Reads a shard once from start to end, from a file or a pipe, and checks all counts and checksums; read() returns
// 0 only after the last check.
class ShardStream {
 public:
  // Opens a shard, or standard input for "-", and reads its header. Throws Error(input) if opening fails or the header
  // is invalid.
  explicit ShardStream(const std::string& path);
  ~ShardStream();
  const ShardHeader& header() const;
  const std::string& name() const;
  // Reads up to out.size() tokens and returns their number; returns 0 at the end of the shard. Throws Error(input) for
  // a damaged shard.
  size_t read(std::span<int32_t> out);
  const ShardCounts& counts() const;  // valid after read() has returned 0
  // Returns the lengths of all sequences in order; valid after read() has returned 0.
  std::vector<uint32_t> sequence_lengths() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Throws Error(input) unless the shard `name` has the kind `kind`.
void require_kind(const ShardHeader& header, const std::string& name, const std::string& kind);
// Throws Error(input) unless the vocabulary of `side` in the shard `name` has the fingerprint `fingerprint`. `owner`:
// file that has the expected vocabulary, such as a checkpoint, for the message.
void require_vocabulary(const ShardHeader& header, const std::string& name, const std::string& fingerprint,
                        const std::string& owner, Side side = Side::target);
}  // namespace mh::io
