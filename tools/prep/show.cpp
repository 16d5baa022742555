// mh-prep info prints the header and the counts of shards, mh-prep cat decodes shards to text, and mh-prep codes
// converts a vocabulary to the file format of subword-nmt or WordPiece.

#include "base/error.h"
#include "base/json_types.h"
#include "base/table.h"
#include "prep.h"
#include "text/merges.h"
#include "text/records/record_text.h"
#include "text/wordpiece.h"

namespace mh::prep {

using namespace mh::io;
using namespace mh::text;
using nlohmann::ordered_json;

namespace {

std::string tokenizer_type(const ShardHeader& header, Side side, const std::string& name) {
  return parse_tokenizer(header.tokenizer_of(side), name)->type();
}

void show_info(const std::vector<std::string>& inputs, const std::string& format) {
  refuse_output_onto_input("-", inputs);
  for (const std::string& input : inputs) {
    ShardStream stream(input);
    const ShardHeader& header = stream.header();
    const ordered_json kind_counts = text::count_records(stream);
    ordered_json columns{{"file", stream.name()},
                         {"kind", header.kind},
                         {"tokens", stream.counts().num_tokens},
                         {"records", stream.counts().num_records},
                         {"text_bytes", stream.counts().text_bytes},
                         {"vocabulary", header.vocabulary_size},
                         {"tokenizer", tokenizer_type(header, Side::target, stream.name())},
                         {"token_bytes", header.token_bytes},
                         {"fingerprint", header.fingerprint}};
    if (!header.shares_vocabulary()) {
      columns["source_vocabulary"] = header.source_vocabulary_size;
      columns["source_tokenizer"] = tokenizer_type(header, Side::source, stream.name());
      columns["source_fingerprint"] = header.source_fingerprint;
    }
    if (!header.limits.empty()) columns["limits"] = header.limits;
    if (!header.task.empty()) columns["task"] = ordered_json::parse(header.task);
    columns.update(kind_counts);
    columns["provenance"] = ordered_json::parse(header.provenance);
    auto sink = open_sink("-");
    if (format == "json") {
      sink->write(columns.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    } else {
      for (auto& [key, value] : columns.items()) sink->write(key_value_line(key, value));
    }
    sink->close();
  }
}

std::string codes_of(const std::string& bytes, const std::string& name) {
  if (is_vocabulary_file(bytes)) {
    const VocabularyFile file = read_vocabulary(bytes, name);
    if (file.type == WordPieceTokenizer::kType) return serialize_wordpieces(file.pieces, name);
  }
  return serialize_codes(read_codes(bytes, name), name);
}

void show_codes(const std::vector<std::string>& inputs) {
  refuse_output_onto_input("-", inputs);
  auto sink = open_sink("-");
  for (const std::string& input : inputs) sink->write(codes_of(read_text_file(input), input_name(input)));
  sink->close();
}

void show_text(const std::vector<std::string>& inputs, bool prints_ids) {
  refuse_output_onto_input("-", inputs);
  auto sink = open_sink("-");
  for (const std::string& input : inputs) {
    ShardStream stream(input);
    text::show_records(stream, prints_ids, *sink);
  }
  sink->close();
}

struct ShowArguments {
  Arguments args;
  std::string format = "table";
  bool prints_ids = false;
};

// Adds the input files and the job of a subcommand that prints these files with `show`. `inputs_help`: help text of the
// input files, such as "shards". Returns the arguments of the subcommand, to which the caller can bind further options.
std::shared_ptr<ShowArguments> add_show_job(CLI::App* app, const char* inputs_help, void (*show)(const ShowArguments&),
                                            Jobs& jobs) {
  const auto arguments = std::make_shared<ShowArguments>();
  add_inputs_argument(*app, arguments->args, inputs_help);
  jobs.push_back({app, [=] { ignore_broken_pipe([&] { show(*arguments); }); }});
  return arguments;
}

}  // namespace

void add_info_subcommand(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("info", "verify the checksums of shards and describe their content");
  const auto arguments = add_show_job(
      sub, "shards", [](const ShowArguments& s) { show_info(s.args.inputs, s.format); }, jobs);
  add_format_option(*sub, arguments->format);
}

void add_cat_subcommand(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("cat", "decode shards to text");
  const auto arguments = add_show_job(
      sub, "shards", [](const ShowArguments& s) { show_text(s.args.inputs, s.prints_ids); }, jobs);
  sub->add_flag("--ids", arguments->prints_ids, "print token ids instead of text, one record per line");
}

void add_codes_subcommand(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("codes",
                                     "print the merges of a subword-nmt vocabulary in the file format of subword-nmt, "
                                     "or the pieces of a wordpiece vocabulary in the format of BERT's vocab.txt");
  add_show_job(
      sub, "vocabularies", [](const ShowArguments& s) { show_codes(s.args.inputs); }, jobs);
}

}  // namespace mh::prep
