// Preparations of shards: the subcommands of mh-prep, each in the folder of its task.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/registry.h"
#include "io/shard.h"
#include "text/bert_vocabulary.h"
#include "text/text_batches.h"

namespace mh::text {

// Inputs and output of a subcommand of mh-prep.
struct PrepArguments {
  std::vector<std::string> inputs;
  std::string output = "-";
  std::string crlf = "refuse";
};

class Preparation {
 public:
  virtual ~Preparation() = default;
  virtual std::string inputs_help() const = 0;
  virtual bool reads_lines() const { return true; }  // whether it has --crlf
  virtual void describe(Fields& f) = 0;
  // Makes the shard. Throws Error(usage) for options that exclude each other, Error(input) for invalid inputs.
  virtual void make(const PrepArguments& arguments) const = 0;
};
// Preparations by the name of the subcommand.
Registry<Preparation>& preparations();

// A preparation with these options; `kMake` makes its shard.
template <class Options, void (*kMake)(const PrepArguments&, const Options&)>
class PreparationBy : public Preparation {
 public:
  void describe(Fields& f) override { options_.describe(f); }
  void make(const PrepArguments& arguments) const override { kMake(arguments, options_); }

 private:
  Options options_;
};

// Shared by preparations.

struct EncodingThreads {
  int64_t threads = 0;
  void describe(Fields& f) { f.field("threads", threads, "encoding threads; 0: all cores", between(0, 1024)); }
  int count() const;  // 0: one for each core
};

// Throws Error(usage) if the output is one of the inputs or of these files.
void refuse_output_onto(const PrepArguments& a, const std::vector<std::string>& files);
// Loads the vocabulary, after checking its options and that the output is none of the inputs.
std::unique_ptr<WordPieceTokenizer> load_vocabulary(const PrepArguments& a, const BertVocabulary& vocabulary);
// Opens the output, calls `encode` to write the records, and closes it. Leaves no shard if `encode` throws.
void write_shard(const PrepArguments& a, const io::ShardHeader& header,
                 const std::function<void(io::ShardWriter&)>& encode);
// Throws Error(input) about all inputs.
[[noreturn]] void refuse_inputs(const PrepArguments& a, const std::string& expected, const std::string& found,
                                const std::string& next = "check what makes it");
constexpr const char* kTexts = "text files, one sentence or paragraph a line";
LineEnds line_ends(const PrepArguments& a, bool any_bytes);
// Logs the number of lines that ended in CR LF, and of byte order marks in several files (each file is logged when its
// mark is read).
void report_dropped(uint64_t line_ends, uint64_t byte_order_marks);
// "1,234 lines"
std::string counted(uint64_t count, const std::string& what);
// "12.3 MB in 2s (6.1 MB/s)"
std::string speed(uint64_t bytes, double seconds);
// Returns the provenance of a shard made with a vocabulary for BERT; `more`: options of the preparation.
std::string provenance_of(const PrepArguments& a, const BertVocabulary& vocabulary, const nlohmann::ordered_json& more);
// Warns about each compressed input: the byte vocabulary accepts any bytes, so no later check of UTF-8 detects it.
void warn_packed(const std::vector<std::string>& files);

}  // namespace mh::text
