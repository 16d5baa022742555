// Ways to make shards of records: the subcommands of mh-prep, each in the folder of its task.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/registry.h"
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
  virtual bool reads_lines() const { return true; }  // takes --crlf
  virtual void describe(Fields& f) = 0;
  // Makes the shard. Throws Error(usage) for options that exclude one another, Error(input) for inputs that are not as
  // they should be.
  virtual void make(const PrepArguments& arguments) const = 0;
};
// By the name of the subcommand.
Registry<Preparation>& preparations();

// Parts that preparations share.

constexpr const char* kTexts = "text files, one sentence or paragraph a line";
LineEnds line_ends(const PrepArguments& a, bool any_bytes);
// Logs how many lines ended in CR LF, and how many of several files began with a byte order mark (each file is logged
// when its mark is read).
void report_dropped(uint64_t line_ends, uint64_t byte_order_marks);
// Returns the threads of an option, 0: one a core.
int threads_of(int64_t threads);
// "1,234 lines"
std::string counted(uint64_t count, const std::string& what);
// "12.3 MB in 2s (6.1 MB/s)"
std::string speed(uint64_t bytes, double seconds);
// Returns the provenance of a shard that is made with a vocabulary for BERT; `more`: options of its own.
std::string provenance_of(const PrepArguments& a, const BertVocabulary& vocabulary, const nlohmann::ordered_json& more);
// Logs a warning for each compressed input: the byte vocabulary accepts any bytes, so no later check of UTF-8 finds it.
void warn_packed(const std::vector<std::string>& files);

}  // namespace mh::text
