// Text to vocabularies and shards, and back.
//
//   mh-prep vocab --type word train.txt > my.vocab
//   mh-prep lm --vocab my.vocab train.txt > train.mhs
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/command_line.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/tool.h"
#include "io/encode.h"
#include "io/shard.h"
#include "io/vocabulary.h"

using namespace mh;
using namespace mh::io;
using nlohmann::ordered_json;

namespace {

struct LmOptions {
  std::string vocab;
  int64_t threads = 0;
  void describe(Fields& f) {
    f.field("vocab", vocab, "vocabulary made by mh-prep vocab, or a SentencePiece model");
    f.field("threads", threads, "encoding threads; 0: all cores", at_least(0));
  }
};

std::vector<std::string> inputs;
std::string output = "-";
std::string crlf = "refuse";
bool ids = false;
std::string format = "table";

LineEnds line_ends(bool any_bytes) {
  return any_bytes ? LineEnds::keep : crlf == "refuse" ? LineEnds::refuse_crlf : LineEnds::normalise_crlf;
}

void report_crlf(const TextBatches& text) {
  if (text.normalised() > 0)
    log_info(with_commas(static_cast<int64_t>(text.normalised())) + " lines ended in CR LF; the CR is dropped");
}

void make_vocab(const VocabularyOptions& options) {
  refuse_output_onto_input(output, inputs);
  TextBatches text(inputs, line_ends(false), [](std::string_view t) {
    size_t last = t.find_last_of(' ');
    return last == t.npos ? t.npos : last + 1;
  });
  auto tokenizer = make_vocabulary(options, text);
  report_crlf(text);
  auto sink = open_sink(output);
  sink->write(tokenizer->serialize());
  sink->close();
  log_info(str(with_commas(tokenizer->size()), " entries, fingerprint ", tokenizer->fingerprint()));
}

void make_lm(const LmOptions& options) {
  if (options.vocab.empty())
    throw Error(Exit::usage, Problem{"--vocab", "a vocabulary", "none", "make one with mh-prep vocab"});
  refuse_output_onto_input(output, inputs);
  auto tokenizer = load_tokenizer(options.vocab);
  TextBatches text(inputs, line_ends(tokenizer->takes_any_bytes()),
                   [&](std::string_view t) { return tokenizer->cut(t); });
  int threads = static_cast<int>(options.threads > 0 ? options.threads : std::thread::hardware_concurrency());
  ShardHeader header;
  header.vocabulary = tokenizer->size();
  header.token_bytes = tokenizer->size() <= 65536 ? 2 : 4;
  header.fingerprint = tokenizer->fingerprint();
  header.tokenizer = tokenizer->serialize();
  header.provenance = ordered_json{
      {"tool", str("mh-prep ", version())},
      {"inputs", inputs},
      {"vocabulary", options.vocab},
      {"crlf", crlf}}.dump();
  auto sink = open_sink(output);
  ShardWriter writer(*sink, header);
  EncodeSummary sum = encode_lines(text, *tokenizer, threads, writer);
  if (sum.tokens == 0)
    throw Error(Exit::input, Problem{join(inputs, " "), "text", "an empty input", "check what makes it"});
  writer.finish();
  sink->close();
  report_crlf(text);
  log_info(str(with_commas(static_cast<int64_t>(sum.lines)), " lines, ", with_commas(static_cast<int64_t>(sum.tokens)),
               " tokens, ", with_commas(static_cast<int64_t>(sum.unknown)), " unknown, ", human_bytes(sum.bytes),
               " in ", human_seconds(sum.seconds), " (",
               human_bytes(static_cast<uint64_t>(static_cast<double>(sum.bytes) / std::max(sum.seconds, 1e-6))),
               "/s)"));
}

void show_info() {
  for (const std::string& input : inputs) {
    ShardStream stream(input);
    std::vector<int32_t> tokens(1 << 16);
    while (stream.read(tokens) > 0) {
    }
    const ShardHeader& h = stream.header();
    auto type = parse_tokenizer(h.tokenizer, stream.name())->type();
    ordered_json j{{"file", stream.name()},
                   {"kind", h.kind},
                   {"tokens", stream.counts().tokens},
                   {"records", stream.counts().records},
                   {"text_bytes", stream.counts().text_bytes},
                   {"vocabulary", h.vocabulary},
                   {"tokenizer", type},
                   {"token_bytes", h.token_bytes},
                   {"fingerprint", h.fingerprint},
                   {"provenance", ordered_json::parse(h.provenance)}};
    auto sink = open_sink("-");
    if (format == "json") {
      sink->write(j.dump() + "\n");
    } else {
      for (auto& [key, value] : j.items())
        sink->write(key + "\t" + (value.is_string() ? value.get<std::string>() : value.dump()) + "\n");
    }
    sink->close();
  }
}

void show_text() {
  ShardStream stream(inputs.at(0));
  auto tokenizer = parse_tokenizer(stream.header().tokenizer, stream.name());
  auto sink = open_sink("-");
  std::vector<int32_t> tokens(1 << 14), line;
  auto print = [&] {
    if (!ids) return sink->write(tokenizer->decode(line));
    for (size_t i = 0; i < line.size(); ++i) sink->write((i > 0 ? " " : "") + std::to_string(line[i]));
    sink->write("\n");
  };
  while (size_t n = stream.read(tokens)) {
    for (size_t i = 0; i < n; ++i) {
      line.push_back(tokens[i]);
      if (tokens[i] != tokenizer->end_of_line()) continue;
      print();
      line.clear();
    }
  }
  if (!line.empty()) print();
  sink->close();
}

// A printer of text whose reader has seen enough ends quietly.
void quietly(const std::function<void()>& printer) {
  try {
    printer();
  } catch (const BrokenPipe&) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  Tool tool({"mh-prep",
             "Turns text into vocabularies and shards, shows what a shard holds, and turns it back into text.",
             "  mh-prep vocab --type word train.txt > my.vocab\n"
             "  zstd -dc train.txt.zst | mh-prep lm --vocab my.vocab - > train.mhs\n"
             "  mh-prep info train.mhs; mh-prep cat train.mhs | head"});
  tool.app().require_subcommand(1);
  auto add = [&](const char* name, const char* help, bool text) {
    CLI::App* sub = tool.app().add_subcommand(name, help);
    sub->add_option(
           "inputs", inputs,
           text ? "text files, one sentence or paragraph a line; - is standard input" : "shards; - is standard input")
        ->required()
        ->type_name("FILE");
    if (text) {
      sub->add_option("-o,--output", output, "where to write [standard output]")->type_name("FILE");
      sub->add_option("--crlf", crlf, "lines that end in CR LF: refuse or normalise [refuse]")
          ->type_name("WHAT")
          ->check(CLI::IsMember({"refuse", "normalise"}));
    }
    return sub;
  };
  VocabularyOptions vocabulary;
  CLI::App* vocab = add("vocab", "make a vocabulary: words, characters, bytes, or a SentencePiece model", true);
  CommandLineFields vocab_fields(*vocab);
  vocab_fields.declare(vocabulary);
  LmOptions lm_options;
  CLI::App* lm = add("lm", "make a language-model shard: one record a line", true);
  CommandLineFields lm_fields(*lm);
  lm_fields.declare(lm_options);
  CLI::App* info = add("info", "show what shards hold, after checking every sum", false);
  info->add_option("--format", format, "table or json [table]")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"table", "json"}));
  CLI::App* cat = add("cat", "turn a shard back into text", false);
  cat->add_flag("--ids", ids, "numbers instead of text, one record a line");
  return tool.run(argc, argv, [&] {
    vocab_fields.take(vocabulary);
    lm_fields.take(lm_options);
    if (vocab->parsed()) make_vocab(vocabulary);
    if (lm->parsed()) make_lm(lm_options);
    if (info->parsed()) quietly(show_info);
    if (cat->parsed()) quietly(show_text);
  });
}
