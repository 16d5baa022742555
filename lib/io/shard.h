// Shards (.mhs): files of token records, byte by byte in mhs(5). A shard is a valid zstd file that is written to a pipe
// in one pass; any part of it is read without what stands before it.
//
// A record has one run of numbers for each field of its kind; runs stand in the content one after another, record by
// record:
//   language-model  tokens: a line of text, its end-of-line token included
//   translation     source, target: a line and its translation, either with its end
//   documents       sentence: its tokens; an empty run ends a document, of which there is a sentence at least
//   examples        first, second, label: tokens of one sentence or of two, and one number, or none if unknown
//   questions       question, context, begins, ends, text, about: questions.h
// The last three hold no special tokens: who makes rows of them puts these in.
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

// What is known before the first token.
struct ShardHeader {
  std::string kind = kTextKind;
  std::vector<std::string> fields{"tokens"};
  int token_bytes = 2;      // 2 or 4, little-endian
  int64_t vocabulary = 0;   // tokens are below it
  std::string fingerprint;  // of the vocabulary (tokenizer.h)
  std::string tokenizer;    // serialised, so that a shard can be turned back into text
  // The same of the source side, where the sides of a translation have a vocabulary each; those above are the
  // target's then. 0 and empty where one vocabulary is joint.
  int64_t source_vocabulary = 0;
  std::string source_fingerprint;
  std::string source_tokenizer;
  // A number for each field, below which its numbers are; empty: `vocabulary` for all. Of fields that hold tokens, the
  // vocabulary at most.
  std::vector<int64_t> limits;
  std::string task;  // what the records are for: a JSON object, empty where the kind says it all
  std::string provenance =
      "{}";  // JSON: tool, version, inputs, options. No clock time: the same input gives the same bytes

  // One vocabulary for every field.
  bool joint() const { return source_vocabulary == 0; }
  int64_t vocabulary_of(Side s) const { return own(s) ? source_vocabulary : vocabulary; }
  const std::string& fingerprint_of(Side s) const { return own(s) ? source_fingerprint : fingerprint; }
  const std::string& tokenizer_of(Side s) const { return own(s) ? source_tokenizer : tokenizer; }
  // Of the runs of the nth field.
  Side side_of(uint64_t field) const { return kind == kPairsKind && field == 0 ? Side::source : Side::target; }
  // The numbers of the nth field are below it.
  int64_t limit_of(uint64_t field) const { return limits.empty() ? vocabulary_of(side_of(field)) : limits[field]; }
  // All numbers are below it.
  int64_t largest_limit() const;
  // One of the kinds above, with what belongs to it: its fields, and how wide numbers are. Vocabularies come first.
  void hold(const std::string& kind, std::vector<int64_t> limits = {});

 private:
  bool own(Side s) const { return s == Side::source && !joint(); }
};

// What is known after the last one.
struct ShardCounts {
  uint64_t tokens = 0;
  uint64_t records = 0;
  // Of the text that the records come from, line ends included: for bits per byte. Of pairs, the target side's.
  uint64_t text_bytes = 0;
  std::map<std::string, uint64_t> dropped;  // pairs that a filter kept out, by reason
};

// Writes a shard in one pass and in constant memory (but for the compressed run lengths, about one byte a record).
class ShardWriter {
 public:
  // The sink must outlive the writer. Throws Error(usage) for a header that makes no sense.
  ShardWriter(ByteSink& sink, const ShardHeader& header);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Appends one run; a record is complete after as many runs as there are fields. Tokens must be below the field's
  // limit, and runs as long as the kind has them (record_kind()).
  void add_run(std::span<const int32_t> tokens);
  // The same in parts, for runs too long to hold: any number of add_tokens, then end_run.
  void add_tokens(std::span<const int32_t> tokens);
  void end_run();
  void add_text_bytes(uint64_t bytes);
  void add_dropped(const std::string& reason, uint64_t pairs);
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
  // Reads everything and checks every sum, and gives all tokens to `check` in their order, in pieces; once. What the
  // runs of a kind must be is for `check` to say (text/records/whole_shard.h): read() does not know of which field a
  // token is.
  using TokenCheck = std::function<void(std::span<const int32_t>)>;
  void verify(const TokenCheck& check) const;

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
  mutable std::atomic<bool> verified_ = false;
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
  // As ShardFile's; holds at the end.
  std::vector<uint32_t> run_lengths() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Refuses a shard of another kind, or of another vocabulary than `fingerprint` (of `owner`, such as a model's name) on
// a side, with both fingerprints and the way out. Error(input).
void require_kind(const ShardHeader& header, const std::string& name, const std::string& kind);
void require_vocabulary(const ShardHeader& header, const std::string& name, const std::string& fingerprint,
                        const std::string& owner, Side side = Side::target);
}  // namespace mh::io
