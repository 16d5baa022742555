// The jobs of mh-prep.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "common/job.h"
#include "text/bert_vocabulary.h"
#include "text/text_batches.h"

namespace mh::prep {

void add_vocab(CLI::App& app, Jobs& jobs);
void add_lm(CLI::App& app, Jobs& jobs);
void add_mlm(CLI::App& app, Jobs& jobs);
void add_glue(CLI::App& app, Jobs& jobs);
void add_examples(CLI::App& app, Jobs& jobs);
void add_translation(CLI::App& app, Jobs& jobs);
void add_squad(CLI::App& app, Jobs& jobs);
void add_info(CLI::App& app, Jobs& jobs);
void add_cat(CLI::App& app, Jobs& jobs);
void add_codes(CLI::App& app, Jobs& jobs);

// What jobs read, and where they write.
struct Arguments {
  std::vector<std::string> inputs;
  std::string output = "-";
  std::string crlf = "refuse";
};

// Adds the inputs, of which `help` says what they are.
CLI::Option* add_inputs(CLI::App& app, Arguments& a, const std::string& help);
void add_output(CLI::App& app, Arguments& a);
constexpr const char* kTexts = "text files, one sentence or paragraph a line";
// Adds inputs of text, --output and --crlf.
CLI::Option* add_text(CLI::App& app, Arguments& a, const std::string& help);

// Adds the job that `make` does: its options are those of `Options`, and the arguments have been added.
template <class Options>
void add_job(CLI::App* app, const std::shared_ptr<Arguments>& a, void (*make)(const Arguments&, const Options&),
             Jobs& jobs) {
  const auto options = std::make_shared<Options>();
  const auto fields = std::make_shared<CommandLineFields>(*app);
  fields->declare(*options);
  jobs.push_back({app, [=] {
                    fields->take(*options);
                    make(*a, *options);
                  }});
}

text::LineEnds line_ends(const Arguments& a, bool any_bytes);
// Logs how many lines ended in CR LF, and how many of several files began with a byte order mark (each file is logged
// when its mark is read).
void report_dropped(uint64_t line_ends, uint64_t byte_order_marks);
// Threads of an option, 0: one a core.
int threads_of(int64_t threads);
// "1,234 lines"
std::string counted(uint64_t count, const std::string& what);
// The provenance of a shard that is made with a vocabulary for BERT; `more`: options of its own.
std::string provenance_of(const Arguments& a, const text::BertVocabulary& vocabulary,
                          const nlohmann::ordered_json& more);
// "12.3 MB in 2s (6.1 MB/s)"
std::string speed(uint64_t bytes, double seconds);

}  // namespace mh::prep
