// mh-prep vocab: makes a vocabulary from text, or converts an existing vocabulary.
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "prep.h"
#include "text/byte_bpe.h"
#include "text/vocabulary.h"

namespace mh::prep {

using namespace mh::text;

namespace {

// Throws Error(usage) for options on the command line that the type or the conversion of the vocabulary does not use.
void refuse_unused_options(const VocabularyOptions& options, const CommandLineFields& fields, CLI::Option* crlf) {
  for (const VocabularyOptions::UnusedOption& unused : options.unused_options())
    refuse_options({fields.option(unused.key)}, unused.expected, unused.found);
  if (options.type == "byte")
    refuse_options({crlf}, "no --crlf with --type byte, which keeps all bytes", "--type byte");
  if (!options.source_path.empty())
    refuse_options({crlf}, "text files with this option", "--from, which reads no text");
}

void make_vocab(const Arguments& args, const VocabularyOptions& options, const CommandLineFields& fields,
                CLI::Option* crlf) {
  refuse_output_onto(args, {options.codes_path, options.source_path});
  options.check();
  refuse_unused_options(options, fields, crlf);
  if (const bool has_text = !args.inputs.empty(); has_text != options.source_path.empty())
    refuse_usage("inputs", has_text ? "either text files or --from" : "text files", has_text ? "both" : "none",
                 has_text ? "leave the text files out, since --from converts a vocabulary without text"
                          : "name text files, or - for standard input");
  const bool is_byte_type = options.type == "byte";
  if (is_byte_type) warn_compressed_inputs(args.inputs);
  TextBatches text(args.inputs, line_ends(args, is_byte_type), [&](std::string_view t) {
    if (is_byte_type) return t.size();
    if (options.type == ByteBpeTokenizer::kType) return find_byte_bpe_split(t);
    size_t last_space = t.find_last_of(' ');
    return last_space == t.npos ? t.npos : last_space + 1;
  });
  auto tokenizer = make_vocabulary(options, text);
  log_removed_bytes(text.num_normalised_lines(), text.num_byte_order_marks());
  // Computed before the output file is opened: the fingerprint needs memory for the whole vocabulary, and a failure
  // must not replace an old file.
  const std::string summary =
      str(count_with_commas(tokenizer->size(), "entry"), ", fingerprint ", tokenizer->fingerprint());
  auto sink = open_sink(args.output);
  sink->write(tokenizer->serialize());
  sink->close();
  log_info(summary);
}

}  // namespace

void add_vocab_subcommand(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("vocab", "build a vocabulary of words, characters, bytes or subwords");
  const auto args = std::make_shared<Arguments>();
  add_text_options(*sub, *args, std::string(kTextFilesHelp) + "; not allowed with --from")->required(false);
  const auto options = std::make_shared<VocabularyOptions>();
  CLI::Option* crlf = sub->get_option("--crlf");
  const auto fields = std::make_shared<CommandLineFields>(*sub);
  fields->declare(*options);
  jobs.push_back({sub, [=] {
                    fields->store_values(*options);
                    make_vocab(*args, *options, *fields, crlf);
                  }});
  set_placeholders(*sub);
}

}  // namespace mh::prep
