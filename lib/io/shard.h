// Shards (.mhs): files of token records, described byte by byte in mh-shard(5). A shard is a valid zstd file that is
// written to a pipe in one pass; any part of it can be read without the parts before it.
//
// A record has one run of numbers for each field of its kind; the content is the runs of all records, one after
// another:
//   language-model  tokens: a line of text, its end-of-line token included
//   translation     source, target: a line and its translation, each with its end
//   documents       sentence: its tokens; an empty run ends a document, which has at least one sentence
//   examples        first, second, label: tokens of one sentence or of two, and one number, or none if unknown
//   questions       question, context, begins, ends, text, about: questions.h
// The last three contain no special tokens; rows made of them add these.
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

constexpr const char* kTextKind = "language-model";
constexpr const char* kPairsKind = "translation";
constexpr const char* kDocumentsKind = "documents";
constexpr const char* kExamplesKind = "examples";
constexpr const char* kQuestionsKind = "questions";

enum class Side { source, target };

// The header, which is known before the first token.
struct ShardHeader {
  std::string kind = kTextKind;
  std::vector<std::string> fields{"tokens"};
  int token_bytes = 2;      // 2 or 4, little-endian
  int64_t vocabulary = 0;   // tokens are less than this
  std::string fingerprint;  // fingerprint of the vocabulary (tokenizer.h)
  std::string tokenizer;    // serialised; decodes the shard to text
  // The same for the source side, if the sides of a translation have separate vocabularies; the fields above are then
  // those of the target. 0 and empty for a joint vocabulary.
  int64_t source_vocabulary = 0;
  std::string source_fingerprint;
  std::string source_tokenizer;
  // The exclusive upper bound of the numbers of each field; empty: `vocabulary` for all. For fields that hold tokens at
  // most the vocabulary.
  std::vector<int64_t> limits;
  std::string task;  // task of the records: a JSON object, empty if the kind determines it
  std::string provenance =
      "{}";  // JSON: tool, version, inputs, options. No clock time, so that the same input gives the same bytes

  // Returns whether all fields share one vocabulary.
  bool joint() const { return source_vocabulary == 0; }
  int64_t vocabulary_of(Side s) const { return own(s) ? source_vocabulary : vocabulary; }
  const std::string& fingerprint_of(Side s) const { return own(s) ? source_fingerprint : fingerprint; }
  const std::string& tokenizer_of(Side s) const { return own(s) ? source_tokenizer : tokenizer; }
  // Returns the side of the nth field.
  Side side_of(uint64_t field) const { return kind == kPairsKind && field == 0 ? Side::source : Side::target; }
  // Returns the exclusive upper bound of the numbers of the nth field.
  int64_t limit_of(uint64_t field) const { return limits.empty() ? vocabulary_of(side_of(field)) : limits[field]; }
  // Returns the exclusive upper bound of all numbers.
  int64_t largest_limit() const;
  // Sets the kind, its fields and the width of numbers. Vocabularies must be set before.
  void set_kind(const std::string& kind, std::vector<int64_t> limits = {});

 private:
  bool own(Side s) const { return s == Side::source && !joint(); }
};

// The trailer, which is known after the last token.
struct ShardCounts {
  uint64_t tokens = 0;
  uint64_t records = 0;
  // Bytes of the text of the records, line ends included, for bits per byte; for pairs, of the target side.
  uint64_t text_bytes = 0;
  std::map<std::string, uint64_t> dropped;  // pairs removed by filters, by reason
};

// Writes a shard in one pass and in constant memory, except for the compressed run lengths of about one byte a record.
class ShardWriter {
 public:
  // The sink must outlive the writer. Throws Error(usage) for an inconsistent header.
  ShardWriter(ByteSink& sink, const ShardHeader& header);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Appends one run; a record is complete after one run for each field. Tokens must be below the limit of the field,
  // and runs must have lengths that the kind allows (record_kind()).
  void add_run(std::span<const int32_t> tokens);
  // Appends a run in parts, if it is too long to hold in memory: any number of add_tokens(), then end_run().
  void add_tokens(std::span<const int32_t> tokens);
  void end_run();
  void add_text_bytes(uint64_t bytes);
  void add_dropped(const std::string& reason, uint64_t pairs);
  // Writes the trailer and the seek table; does not close the sink. A shard without them is recognised as truncated.
  void finish();
  const ShardCounts& counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A shard in a mapped file, with random access. Throws Error(input), with the file and the place, for anything that is
// not exactly a shard. Thread-safe.
class ShardFile {
 public:
  explicit ShardFile(const std::string& path);
  ~ShardFile();
  const ShardHeader& header() const { return header_; }
  const ShardCounts& counts() const { return counts_; }
  const std::string& name() const;
  // Returns the XXH64 of the stored tokens, from the trailer; equal for shards of equal content.
  uint64_t content_hash() const { return content_hash_; }

  // Reads tokens [first, first + out.size()) of the content. Throws std::out_of_range past the end. Verifies the
  // checksum of every frame read; the last frames stay decompressed (a few MB).
  void read(uint64_t first, std::span<int32_t> out) const;
  // Returns the lengths of all runs in order, records * fields of them. Read and checked at the first call.
  const std::vector<uint32_t>& run_lengths() const;
  // Reads the whole shard once, checks every checksum, and passes all tokens to `check` in order, in pieces. `check`
  // verifies the rules of the kind (text/records/whole_shard.h), since read() does not know the field of a token.
  using TokenCheck = std::function<void(std::span<const int32_t>)>;
  void verify(const TokenCheck& check) const;

 private:
  struct Frame {
    uint64_t offset;  // offset in the file
    uint32_t compressed;
    uint64_t first_byte;  // first byte in the content
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
  mutable std::atomic<bool> verified_ = false;
};

// A shard read once from start to end, from a file or a pipe. Everything is counted and checked on the way; the last
// checks happen in the read() that returns 0.
class ShardStream {
 public:
  // "-" is standard input.
  explicit ShardStream(const std::string& path);
  ~ShardStream();
  const ShardHeader& header() const;
  const std::string& name() const;
  // Reads up to out.size() tokens; returns 0 at the end, after which counts() is valid.
  size_t read(std::span<int32_t> out);
  const ShardCounts& counts() const;
  // Returns ShardFile::run_lengths(); valid at the end.
  std::vector<uint32_t> run_lengths() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Throw Error(input) for a shard of another kind, or of another vocabulary than `fingerprint` (of `owner`, such as a
// model's name) on a side, with both fingerprints and advice.
void require_kind(const ShardHeader& header, const std::string& name, const std::string& kind);
void require_vocabulary(const ShardHeader& header, const std::string& name, const std::string& fingerprint,
                        const std::string& owner, Side side = Side::target);
}  // namespace mh::io
