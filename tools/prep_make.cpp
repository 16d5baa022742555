// mh-prep vocab and mh-prep lm: from text.
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/tool.h"
#include "io/encode.h"
#include "prep.h"

namespace mh::prep {

using namespace mh::io;
using nlohmann::ordered_json;

namespace {

LineEnds line_ends(const Arguments& a, bool any_bytes) {
  return any_bytes ? LineEnds::keep : a.crlf == "refuse" ? LineEnds::refuse_crlf : LineEnds::normalise_crlf;
}

void report_crlf(const TextBatches& text) {
  if (text.normalised() > 0)
    log_info(with_commas(static_cast<int64_t>(text.normalised())) + " lines ended in CR LF; the CR is dropped");
}

}  // namespace

void make_vocab(const Arguments& a, const VocabularyOptions& options) {
  refuse_output_onto_input(a.output, a.inputs);
  const bool bytes = options.type == "byte";
  TextBatches text(a.inputs, line_ends(a, bytes), [&](std::string_view t) {
    if (bytes) return t.size();
    size_t last = t.find_last_of(' ');
    return last == t.npos ? t.npos : last + 1;
  });
  auto tokenizer = make_vocabulary(options, text);
  report_crlf(text);
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
  TextBatches text(a.inputs, line_ends(a, tokenizer->takes_any_bytes()),
                   [&](std::string_view t) { return tokenizer->cut(t); });
  int threads = static_cast<int>(options.threads > 0 ? options.threads : std::thread::hardware_concurrency());
  ShardHeader header;
  header.vocabulary = tokenizer->size();
  header.token_bytes = tokenizer->size() <= 65536 ? 2 : 4;
  header.fingerprint = tokenizer->fingerprint();
  header.tokenizer = tokenizer->serialize();
  header.provenance = ordered_json{{"tool", str("mh-prep ", version())},
                                   {"inputs", a.inputs},
                                   {"vocabulary", options.vocab},
                                   {"crlf", tokenizer->takes_any_bytes() ? "keep" : a.crlf}}
                          .dump(-1, ' ', false, ordered_json::error_handler_t::replace);  // a name may be any bytes
  auto sink = open_sink(a.output);
  ShardWriter writer(*sink, header);
  EncodeSummary sum = encode_lines(text, *tokenizer, threads, writer);
  if (sum.tokens == 0)
    throw Error(Exit::input, Problem{join(a.inputs, " "), "text", "an empty input", "check what makes it"});
  writer.finish();
  sink->close();
  report_crlf(text);
  log_info(str(with_commas(static_cast<int64_t>(sum.lines)), " lines, ", with_commas(static_cast<int64_t>(sum.tokens)),
               " tokens, ", with_commas(static_cast<int64_t>(sum.unknown)), " unknown, ", human_bytes(sum.bytes),
               " in ", human_seconds(sum.seconds), " (",
               human_bytes(static_cast<uint64_t>(static_cast<double>(sum.bytes) / std::max(sum.seconds, 1e-6))),
               "/s)"));
}

}  // namespace mh::prep
