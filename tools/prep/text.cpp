// mh-prep vocab and mh-prep lm: from text.
#include "base/text.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/version.h"
#include "prep.h"
#include "text/records/language_modelling.h"
#include "text/tokenizers.h"
#include "text/vocabulary.h"

namespace mh::prep {

using namespace mh::io;
using namespace mh::text;
using nlohmann::ordered_json;

namespace {

// Returns the format of a compressed file or a shard by its first bytes, or an empty text for another file.
std::string packed_as(std::string_view bytes) {
  struct Format {
    std::string_view name, begin;
  };
  using namespace std::string_view_literals;
  static constexpr Format kFormats[] = {{"gzip", "\x1F\x8B\x08"},
                                        {"zip", "PK\x03\x04"},
                                        {"zstd", "\x28\xB5\x2F\xFD"},
                                        {"bzip2", "BZh"},
                                        {"xz",
                                         "\xFD"
                                         "7zXZ\0"sv},
                                        {"shard", "\x50\x2A\x4D\x18"}};
  for (const Format& format : kFormats)
    if (bytes.starts_with(format.begin)) return std::string(format.name);
  return "";
}

// Logs a warning for each compressed input: the byte vocabulary accepts any bytes, so no later check of UTF-8 finds it.
void warn_packed(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    if (!MappedFile::possible(file)) continue;
    char begin[8];
    const size_t size = open_source(file)->read(begin, sizeof begin);
    if (const std::string format = packed_as({begin, size}); !format.empty())
      log_warning(str(file, " is a ", format,
                      " file, and its compressed bytes become the text; decompress it first to use what it holds"));
  }
}

struct LmOptions {
  std::string vocab;
  int64_t threads = 0;
  void describe(Fields& f) {
    f.field("vocab", vocab, "vocabulary made by mh-prep vocab, or a SentencePiece model");
    f.field("threads", threads, "encoding threads; 0: all cores", between(0, 1024));
  }
};

void make_vocab(const Arguments& a, const VocabularyOptions& options) {
  std::vector<std::string> read = a.inputs;
  for (const std::string& file : {options.codes, options.from})
    if (!file.empty()) read.push_back(file);
  refuse_output_onto_input(a.output, read);
  options.check();
  if (a.inputs.empty() == options.from.empty())
    throw Error(Exit::usage, Problem{"inputs", "text files, or else --from", a.inputs.empty() ? "neither" : "both",
                                     "- is standard input"});
  const bool bytes = options.type == "byte";
  if (bytes) warn_packed(a.inputs);
  TextBatches text(a.inputs, line_ends(a, bytes), [&](std::string_view t) {
    if (bytes) return t.size();
    size_t last = t.find_last_of(' ');
    return last == t.npos ? t.npos : last + 1;
  });
  auto tokenizer = make_vocabulary(options, text);
  report_dropped(text.normalised(), text.byte_order_marks());
  auto sink = open_sink(a.output);
  sink->write(tokenizer->serialize());
  sink->close();
  log_info(str(with_commas(tokenizer->size()), " entries, fingerprint ", tokenizer->fingerprint()));
}

void make_lm(const Arguments& a, const LmOptions& options) {
  if (options.vocab.empty())
    throw Error(Exit::usage, Problem{"--vocab", "a vocabulary", "none", "make one with mh-prep vocab"});
  std::vector<std::string> read = a.inputs;
  read.push_back(options.vocab);
  refuse_output_onto_input(a.output, read);
  auto tokenizer = load_tokenizer(options.vocab);
  if (tokenizer->takes_any_bytes() && a.crlf == "normalise")
    throw Error(Exit::usage,
                Problem{"--crlf", "refuse, for a vocabulary of bytes, which keeps all of them", a.crlf, ""});
  if (tokenizer->takes_any_bytes()) warn_packed(a.inputs);
  TextBatches text(a.inputs, line_ends(a, tokenizer->takes_any_bytes()),
                   [&](std::string_view t) { return tokenizer->cut(t); });
  ShardHeader header = header_of(*tokenizer);
  header.hold(kTextKind);
  header.provenance = ordered_json{{"tool", str("mh-prep ", version())},
                                   {"inputs", a.inputs},
                                   {"vocabulary", options.vocab},
                                   {"crlf", tokenizer->takes_any_bytes() ? "keep" : a.crlf}}
                          .dump(-1, ' ', false, ordered_json::error_handler_t::replace);  // a name may be any bytes
  auto sink = open_sink(a.output);
  ShardWriter writer(*sink, header);
  EncodeSummary sum = encode_lines(text, *tokenizer, threads_of(options.threads), writer);
  if (sum.tokens == 0)
    throw Error(Exit::input, Problem{join(a.inputs, " "), "text", "an empty input", "check what makes it"});
  writer.finish();
  sink->close();
  report_dropped(text.normalised(), text.byte_order_marks());
  log_info(str(counted(sum.lines, "lines, "), counted(sum.tokens, "tokens, "), counted(sum.unknown, "unknown, "),
               speed(sum.bytes, sum.seconds)));
}

}  // namespace

void add_vocab(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("vocab", "make a vocabulary: words, characters, bytes, or pieces of words");
  const auto a = std::make_shared<Arguments>();
  add_text(*sub, *a, std::string(kTexts) + "; none with --from")->required(false);
  add_job(sub, a, make_vocab, jobs);
}

void add_lm(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("lm", "make a language-model shard: one record a line");
  const auto a = std::make_shared<Arguments>();
  add_text(*sub, *a, kTexts);
  add_job(sub, a, make_lm, jobs);
}

}  // namespace mh::prep
