// The jobs of mh-prep.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "common/job.h"
#include "text/records/preparation.h"

namespace mh::prep {

void add_vocab(CLI::App& app, Jobs& jobs);
void add_preparations(CLI::App& app, Jobs& jobs);  // those that make shards (text/records/preparation.h)
void add_info(CLI::App& app, Jobs& jobs);
void add_cat(CLI::App& app, Jobs& jobs);
void add_codes(CLI::App& app, Jobs& jobs);

using Arguments = text::PrepArguments;

// Adds the inputs, of which `help` says what they are.
CLI::Option* add_inputs(CLI::App& app, Arguments& a, const std::string& help);
void add_output(CLI::App& app, Arguments& a);
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

}  // namespace mh::prep
