// The records of the task "translation": pairs of lines, from a source file and a target file, or from one file with
// source and target separated by a tab in each line, as paste(1) writes. mh-prep translation encodes them with several
// threads, in the order of the pairs, and filters pairs by length.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fields.h"
#include "io/shard.h"
#include "text/records/whole_shard.h"
#include "text/text_batches.h"
#include "text/tokenizer.h"

namespace mh::text {

constexpr const char* kPairsKind = "translation";  // the kind of the records (io/record_kind.h)

// A batch of source lines and a batch of target lines with the same number of segments. Each segment is a whole line;
// segments i of both batches are a pair. target.input_bytes: bytes of the target file that were read for this batch; 0
// for a file of pairs.
struct PairBatch {
  TextBatch source, target;
};

// Reads batches of pairs. Throws Error(input), with file and line, if the two files have different numbers of lines, if
// a line of a file of pairs does not have exactly one tab, and for the errors of TextBatches, always after all previous
// pairs have been returned.
class PairBatches {
 public:
  // `files` are a source file and a target file, or one file of pairs. The caller checks the text with check_text().
  PairBatches(const std::vector<std::string>& files, LineEnds line_ends, ReadSizes sizes = {});
  bool next(PairBatch& batch);
  uint64_t expected_bytes() const;  // total size of the files; 0 if a file is a pipe
  uint64_t num_normalised_lines() const {
    return source_lines_.num_normalised_lines() + target_lines_.num_normalised_lines();
  }
  uint64_t num_byte_order_marks() const {
    return source_lines_.num_byte_order_marks() + target_lines_.num_byte_order_marks();
  }

 private:
  void split_at_tabs(PairBatch& batch);
  void add_targets(PairBatch& batch);
  void require_no_more_targets();
  // Returns whether the target file has another line; reads the next batch if all segments of `target_batch_` are used.
  bool has_target_line();
  [[noreturn]] void refuse_unequal_lengths(uint64_t num_common_lines, uint64_t num_first_lines,
                                           uint64_t num_second_lines);

  std::vector<std::string> files_;
  TextBatches source_lines_;             // source file, or file of pairs
  TextBatches target_lines_;             // target file; no file if `source_lines_` has pairs
  TextBatch target_batch_;               // current batch of the target file
  size_t target_index_ = 0;              // index in `target_batch_` of the next unused segment
  uint64_t uncounted_target_bytes_ = 0;  // bytes of the target file that no batch has counted yet
  uint64_t num_pairs_ = 0;               // number of pairs returned so far
  std::exception_ptr error_;             // pending error, thrown by the next call of next()
};

struct PairFilters {
  int64_t min_length = 0;
  int64_t max_length = 0;
  double max_ratio = 0;
  std::string empty_handling = "refuse";
  void describe(Fields& f) {
    f.field("min_length", min_length,
            "minimum number of tokens of source and of target, end-of-line token excluded; other pairs are dropped",
            at_least(0));
    f.field("max_length", max_length,
            "maximum number of tokens of source and of target, end-of-line token excluded; other pairs are dropped; 0: "
            "no limit",
            at_least(0));
    f.field("max_ratio", max_ratio,
            "maximum ratio of the numbers of tokens of the longer and the shorter side; other pairs are dropped; 0: no "
            "limit",
            at_least(0));
    f.field("empty", empty_handling,
            "treatment of pairs with an empty source or target; refuse: stop with an error; drop: leave the pair out",
            {"refuse", "drop"});
  }
  // Throws Error(usage) if no pair can satisfy the limits.
  void check() const;
  // Returns why a pair of `source_length` and `target_length` tokens is dropped: the first of "empty", "short", "long"
  // and "ratio" that applies; null if the filters accept the pair.
  const char* drop_reason(size_t source_length, size_t target_length) const;
};

struct PairSummary {
  uint64_t num_pairs = 0;                       // number of pairs written
  std::map<std::string, uint64_t> num_dropped;  // number of dropped pairs by reason
  std::array<uint64_t, 2> num_tokens{};         // tokens of source and target, end-of-line tokens included
  std::array<uint64_t, 2> num_unknown{};        // unknown tokens of source and target
  uint64_t num_bytes = 0;                       // bytes read, source and target together
  double seconds = 0;
};

// Writes every pair that the filters accept as a record. Source and target must be UTF-8 text; the tokens of a source
// and of a target end with the end-of-line token, whatever the type of vocabulary. Throws Error(input), with file and
// line, if a line contains the end-of-line token as text (the word <eos>), and for an empty source or target unless
// filters.empty_handling is "drop". The shard's trailer counts the dropped pairs.
PairSummary encode_pairs(PairBatches& text, const Tokenizer& source, const Tokenizer& target,
                         const PairFilters& filters, int num_threads, io::ShardWriter& writer);

// Reads the pairs of a shard from a file or a pipe, one at a time, and keeps only this pair and the lengths of all
// sources and targets in memory. A source or target ends at its end-of-line token, and its length must equal the length
// in the shard's trailer. Throws the errors of read_whole_shard().
class PairStream {
 public:
  explicit PairStream(io::ShardStream& stream);  // `stream` must be at its start
  // Reads the next pair, end-of-line tokens included. Returns false at the end, after all checksums are verified.
  bool next(std::vector<int32_t>& source, std::vector<int32_t>& target);
  const Tokenizer& tokenizer(io::Side side) const { return *tokenizers_[static_cast<int>(side)]; }

 private:
  bool read_sequence(io::Side side, std::vector<int32_t>& tokens);

  io::ShardStream& stream_;
  std::unique_ptr<Tokenizer> tokenizers_[2];  // indexed by io::Side
  std::vector<int32_t> buffer_;
  size_t buffer_position_ = 0, num_buffered_tokens_ = 0;  // read position and number of tokens in `buffer_`
  std::vector<uint32_t> lengths_;                         // lengths of the sources and targets read so far
};

}  // namespace mh::text
