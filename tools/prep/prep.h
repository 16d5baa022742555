// The jobs of mh-prep, and the arguments that they share.
#pragma once

#include <string>

#include "common/job.h"
#include "text/records/preparation.h"

namespace mh::prep {

void add_vocab_subcommand(CLI::App& app, Jobs& jobs);
void add_preparation_subcommands(CLI::App& app, Jobs& jobs);  // the subcommands that write shards
void add_info_subcommand(CLI::App& app, Jobs& jobs);
void add_cat_subcommand(CLI::App& app, Jobs& jobs);
void add_codes_subcommand(CLI::App& app, Jobs& jobs);

using Arguments = text::PrepArguments;

// Adds the positional argument of the input files. `help`: help text of the argument, such as "shards".
CLI::Option* add_inputs_argument(CLI::App& app, Arguments& args, const std::string& help);
void add_output_option(CLI::App& app, Arguments& args);
// Adds the positional argument of the text files, --output and --crlf. `help`: help text of the argument.
CLI::Option* add_text_options(CLI::App& app, Arguments& args, const std::string& help);
// Sets the placeholders, in the help, of the options of `app` that take files, columns, names or bounds.
void set_placeholders(CLI::App& app);

}  // namespace mh::prep
