// Interface to the records of a shard, which is a file or was read from a pipe into memory.
#pragma once

#include <string>

#include "io/shard.h"
#include "text/records/sequences.h"
#include "text/records/whole_shard.h"

namespace mh::text {

class ShardRecords {
 public:
  virtual ~ShardRecords() = default;
  virtual const io::ShardHeader& header() const = 0;
  virtual const io::ShardCounts& counts() const = 0;
  virtual const std::string& name() const = 0;
  // Verifies all checksums and sequences, as read_whole_shard() does. Throws Error(input) for a damaged shard.
  virtual void verify() const = 0;
  // Returns the token sequences; this object must outlive the result.
  virtual Sequences sequences() const = 0;
  // Returns a function that reads tokens; this object must outlive the function.
  virtual ReadTokens reader() const = 0;
};

// Records of a shard file, which must outlive this object and its results.
class FileRecords : public ShardRecords {
 public:
  explicit FileRecords(const io::ShardFile& shard) : shard_(shard) {}
  const io::ShardHeader& header() const override { return shard_.header(); }
  const io::ShardCounts& counts() const override { return shard_.counts(); }
  const std::string& name() const override { return shard_.name(); }
  void verify() const override { text::verify(shard_); }
  Sequences sequences() const override { return sequences_of(shard_); }
  ReadTokens reader() const override { return token_reader(shard_); }

 private:
  const io::ShardFile& shard_;
};

// Records of a shard that is read from a pipe into memory.
class InMemoryRecords : public ShardRecords {
 public:
  explicit InMemoryRecords(io::ShardStream& stream)  // `stream` must be at its start
      : name_(stream.name()), shard_(read_whole_shard(stream, stream.header().kind)) {}
  InMemoryRecords(const InMemoryRecords&) = delete;  // results of sequences() and reader() refer to `shard_`
  InMemoryRecords& operator=(const InMemoryRecords&) = delete;
  const io::ShardHeader& header() const override { return shard_.header; }
  const io::ShardCounts& counts() const override { return shard_.counts; }
  const std::string& name() const override { return name_; }
  void verify() const override {}  // the constructor has verified the records
  Sequences sequences() const override { return sequences_of(shard_); }
  ReadTokens reader() const override { return token_reader(shard_.tokens); }

 private:
  std::string name_;
  WholeShard shard_;
};

}  // namespace mh::text
