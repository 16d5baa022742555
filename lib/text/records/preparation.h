// Interface and registry of the subcommands of mh-prep that make shards, and their shared helpers. Each subcommand is
// defined in the file of the records that it makes.
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
#include "text/bert_vocabulary_options.h"
#include "text/text_batches.h"

namespace mh::text {

// Command-line arguments of all subcommands; only subcommands for which reads_lines() is true have --crlf.
struct PrepArguments {
  std::vector<std::string> inputs;
  std::string output = "-";
  std::string crlf_handling = "refuse";
  bool has_crlf_option = false;  // whether --crlf is on the command line
};

// A subcommand of mh-prep that makes a shard.
class Preparation {
 public:
  virtual ~Preparation() = default;
  virtual std::string inputs_help() const = 0;
  virtual bool reads_lines() const { return true; }  // whether the subcommand has --crlf
  virtual void describe(Fields& f) = 0;
  // Makes the shard. Throws Error(usage) for options that exclude each other, and Error(input) for invalid inputs.
  virtual void make(const PrepArguments& arguments) const = 0;
};
// Returns the registry of preparations, by the name of the subcommand.
Registry<Preparation>& preparations();

// Implements Preparation with a struct of options and a function that makes the shard.
template <class Options, void (*kMake)(const PrepArguments&, const Options&)>
class PreparationWithOptions : public Preparation {
 public:
  void describe(Fields& f) override { options_.describe(f); }
  void make(const PrepArguments& arguments) const override { kMake(arguments, options_); }

 private:
  Options options_;
};

struct EncodingThreads {
  int64_t threads = 0;
  void describe(Fields& f) {
    f.field("threads", threads, "number of encoding threads; 0: one per core", between(0, 1024));
  }
  int num_threads() const;  // number of threads to start; one per core if `threads` is 0
};

// Throws Error(usage) if the output is one of the inputs or one of `files`.
void refuse_output_onto(const PrepArguments& arguments, const std::vector<std::string>& files);
// Loads the vocabulary that `vocabulary` selects. Throws Error(usage) for invalid options, or if the output would
// replace an input or the vocabulary.
std::unique_ptr<Tokenizer> load_vocabulary(const PrepArguments& arguments, const BertVocabularyOptions& vocabulary);
// Opens the output, calls `encode` to write the records, and closes the output. If `encode` throws, no file is created
// or replaced.
void write_shard(const PrepArguments& arguments, const io::ShardHeader& header,
                 const std::function<void(io::ShardWriter&)>& encode);
// Throws Error(input) about all inputs, with the parts of a Problem (base/error.h).
[[noreturn]] void refuse_inputs(const PrepArguments& arguments, const std::string& expected, const std::string& found,
                                const std::string& advice);
// Throws Error(input) because all input files are empty, or because standard input has no bytes.
[[noreturn]] void refuse_empty_inputs(const PrepArguments& arguments, const std::string& expected,
                                      const std::string& advice);
constexpr const char* kTextFilesHelp = "text files, one sentence or paragraph per line";
// Returns the handling of line ends that --crlf selects; LineEnds::as_text if the vocabulary accepts any bytes.
LineEnds line_ends(const PrepArguments& arguments, bool takes_any_bytes);
// Logs the number of lines that ended in CR LF, and the number of byte order marks if several files had one (the reader
// has logged each mark already).
void log_removed_bytes(uint64_t num_crlf_lines, uint64_t num_byte_order_marks);
// Returns a count and text that does not depend on the count, such as "1,234 unknown".
std::string format_count(uint64_t count, const std::string& text);
// Returns size, time and throughput, such as "12.3 MB in 2s (6.1 MB/s)".
std::string format_throughput(uint64_t bytes, double seconds);
// Returns the provenance (JSON) of a shard made with a vocabulary for BERT; `options` are options of the subcommand.
std::string provenance_of(const PrepArguments& arguments, const BertVocabularyOptions& vocabulary,
                          const nlohmann::ordered_json& options);
// Warns about each input that is a compressed file or a shard: the byte vocabulary accepts any bytes, so no later check
// detects such a file.
void warn_compressed_inputs(const std::vector<std::string>& files);

}  // namespace mh::text
