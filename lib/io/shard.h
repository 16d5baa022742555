// Shards (.mhs): files of token records, byte by byte in mhs(5). A shard is a valid zstd file that is written to a pipe
// in one pass; any part of it is read without what stands before it.
//
// A record has one run of tokens for each field of its kind: a language-model record is one line of text (field
// `tokens`, its end-of-line token included). Runs stand in the content one after another, record by record.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace mh::io {

class Tokenizer;

struct Trailer;  // shard_format.h

// What is known before the first token.
struct ShardHeader {
  std::string kind = "language-model";
  std::vector<std::string> fields{"tokens"};
  int token_bytes = 2;      // 2 or 4, little-endian
  int64_t vocabulary = 0;   // tokens are below it
  std::string fingerprint;  // of the vocabulary (tokenizer.h)
  std::string tokenizer;    // serialised, so that a shard can be turned back into text
  std::string provenance =
      "{}";  // JSON: tool, version, inputs, options. No clock time: the same input gives the same bytes
};

// What is known after the last one.
struct ShardCounts {
  uint64_t tokens = 0;
  uint64_t records = 0;
  uint64_t text_bytes = 0;  // of the source text, line ends included: for bits per byte
};

// Writes a shard in one pass and in constant memory (but for the compressed run lengths, about one byte a record).
class ShardWriter {
 public:
  // The sink must outlive the writer. Throws Error(usage) for a header that makes no sense.
  ShardWriter(ByteSink& sink, const ShardHeader& header);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Appends one run; a record is complete after as many runs as there are fields. Tokens must be in [0, vocabulary).
  void add_run(std::span<const int32_t> tokens);
  // The same in parts, for runs too long to hold: any number of add_tokens, then end_run.
  void add_tokens(std::span<const int32_t> tokens);
  void end_run();
  void add_text_bytes(uint64_t bytes);
  // Writes the trailer and the seek table; does not close the sink. Without it the shard is known to be cut off.
  void finish();
  const ShardCounts& counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A shard in a file, mapped: random access. Throws Error(input), naming the file and the place, for anything that is
// not exactly a shard. Safe to read from several threads.
class ShardFile {
 public:
  explicit ShardFile(const std::string& path);
  ~ShardFile();
  const ShardHeader& header() const { return header_; }
  const ShardCounts& counts() const { return counts_; }
  const std::string& name() const;
  // XXH64 of the tokens as stored, as the trailer says; two shards of the same content have the same.
  uint64_t content_hash() const { return content_hash_; }

  // Tokens [first, first + out.size()) of the content. Throws std::out_of_range beyond the end. The checksum of every
  // frame read is verified. The frames read last stay decompressed (a few MB).
  void read(uint64_t first, std::span<int32_t> out) const;
  // Lengths of all runs in order: records * fields of them. Read and checked at the first call.
  const std::vector<uint32_t>& run_lengths() const;
  // Reads everything and checks every sum.
  void verify() const;

 private:
  struct Frame {
    uint64_t offset;  // in the file
    uint32_t compressed;
    uint64_t first_byte;  // of the content
    uint32_t bytes;
  };
  struct Cached {
    size_t frame = SIZE_MAX;
    std::shared_ptr<const std::vector<uint8_t>> bytes;
  };
  std::shared_ptr<const std::vector<uint8_t>> frame(size_t index) const;

  MappedFile file_;
  ShardHeader header_;
  ShardCounts counts_;
  std::vector<Frame> frames_;
  std::vector<std::pair<uint64_t, uint32_t>> index_frames_;  // offset and size of payloads that hold run lengths
  uint64_t content_hash_ = 0;
  std::unique_ptr<Trailer> trailer_;
  mutable std::mutex mutex_;
  mutable std::vector<Cached> cache_;
  mutable std::vector<uint32_t> lengths_;
  mutable bool lengths_read_ = false;
};

// A shard read once from the start to the end: files and pipes. Everything is counted and checked on the way, the last
// of it by the read() that returns 0.
class ShardStream {
 public:
  // "-" is standard input.
  explicit ShardStream(const std::string& path);
  ~ShardStream();
  const ShardHeader& header() const;
  const std::string& name() const;
  // Fills up to out.size() tokens; 0 at the end, after which counts() holds.
  size_t read(std::span<int32_t> out);
  const ShardCounts& counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// All tokens of a language-model shard from a file or a pipe.
struct TokenText {
  ShardHeader header;
  ShardCounts counts;
  std::vector<int32_t> tokens;
};
TokenText read_tokens(const std::string& path);

// Refuses a shard of another kind, or of another vocabulary than `fingerprint` (of `owner`, such as a model's name),
// with both fingerprints and the way out. Error(input).
void require_kind(const ShardHeader& header, const std::string& name, const std::string& kind);
void require_vocabulary(const ShardHeader& header, const std::string& name, const std::string& fingerprint,
                        const std::string& owner);
// The same for a tokenizer at hand, whose entries must be as many as the header says: a token is then an entry of it.
void require_vocabulary(const ShardHeader& header, const std::string& name, const Tokenizer& tokenizer,
                        const std::string& owner);

}  // namespace mh::io
