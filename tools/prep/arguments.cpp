// The input and output arguments of mh-prep's subcommands, and the subcommands that write shards.
#include <utility>

#include "base/error.h"
#include "prep.h"
#include "text/records/preparation.h"

namespace mh::prep {

CLI::Option* add_inputs_argument(CLI::App& app, Arguments& args, const std::string& help) {
  return app.add_option("inputs", args.inputs, help + "; - is standard input")->required()->type_name("FILE");
}

void add_output_option(CLI::App& app, Arguments& args) {
  app.add_option("-o,--output", args.output, "output file [standard output]")->type_name("FILE");
}

CLI::Option* add_text_options(CLI::App& app, Arguments& args, const std::string& help) {
  CLI::Option* inputs = add_inputs_argument(app, args, help);
  add_output_option(app, args);
  app.add_option("--crlf", args.crlf_handling,
                 "handling of lines that end in CR LF: refuse (an error) or normalise (to LF) [refuse]")
      ->type_name("WHAT")
      ->check(one_of({"refuse", "normalise"}));
  return inputs;
}

void set_placeholders(CLI::App& app) {
  const std::pair<const char*, const char*> placeholders[] = {
      {"--vocab", "FILE"},     {"--source-vocab", "FILE"}, {"--target-vocab", "FILE"}, {"--codes", "FILE"},
      {"--wordpiece", "PATH"}, {"--from", "PATH"},         {"--text", "COLUMN"},       {"--text-b", "COLUMN"},
      {"--label", "COLUMN"},   {"--labels", "NAMES"},      {"--metrics", "NAMES"},     {"--number", "LOW,HIGH"},
      {"--task", "NAME"},      {"--name", "NAME"}};
  for (const auto& [name, placeholder] : placeholders)
    if (CLI::Option* option = app.get_option_no_throw(name)) option->type_name(placeholder);
}

namespace {

// Sets args.has_crlf_option. Throws Error(usage) for the options of --wordpiece with a vocabulary of --vocab.
void refuse_unused_options(const CLI::App& app, Arguments& args) {
  const auto has_option = [&](const char* name) {
    const CLI::Option* option = app.get_option_no_throw(name);
    return option != nullptr && option->count() > 0;
  };
  args.has_crlf_option = has_option("--crlf");
  if (app.get_option_no_throw("--wordpiece") != nullptr && !has_option("--wordpiece") && has_option("--vocab"))
    for (const char* name : {"--cased", "--strip-accents"})
      if (has_option(name))
        refuse_usage(name, "--wordpiece, since a vocabulary of --vocab states how text is normalised", "--vocab",
                     str("leave ", name, " out"));
}

}  // namespace

void add_preparation_subcommands(CLI::App& app, Jobs& jobs) {
  for (const std::string& name : text::preparations().names()) {
    const auto& entry = text::preparations().find(name, "mh-prep");
    const std::shared_ptr<text::Preparation> preparation = entry.make();
    CLI::App* sub = app.add_subcommand(name, entry.help);
    const auto args = std::make_shared<Arguments>();
    if (preparation->reads_lines()) add_text_options(*sub, *args, preparation->inputs_help());
    else add_inputs_argument(*sub, *args, preparation->inputs_help()), add_output_option(*sub, *args);
    add_job(jobs, sub, preparation, [=] {
      refuse_unused_options(*sub, *args);
      preparation->make(*args);
    });
    set_placeholders(*sub);
  }
}

}  // namespace mh::prep
