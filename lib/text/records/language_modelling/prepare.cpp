// mh-prep lm: converts text to a language-model shard.

#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "text/records/language_modelling.h"
#include "text/records/preparation.h"
#include "text/tokenizers.h"
#include "text/vocabulary.h"

namespace mh::text {

using namespace mh::io;
using nlohmann::ordered_json;

namespace {

struct LmOptions {
  std::string vocabulary_path;
  EncodingThreads threads;
  void describe(Fields& f) {
    f.field("vocab", vocabulary_path, "vocabulary made by mh-prep vocab, or a SentencePiece model");
    f.section("", threads);
  }
};

void make_lm(const PrepArguments& arguments, const LmOptions& options) {
  if (options.vocabulary_path.empty())
    refuse_usage("--vocab", "a vocabulary", "none", "make a vocabulary with mh-prep vocab, and give --vocab FILE");
  refuse_output_onto(arguments, {options.vocabulary_path});
  auto tokenizer = load_tokenizer(options.vocabulary_path);
  if (tokenizer->takes_any_bytes() && arguments.crlf_handling == "normalise")
    refuse_usage("--crlf", "no --crlf normalise with a vocabulary of the type byte, which keeps all bytes",
                 "--crlf " + arguments.crlf_handling, "leave --crlf out");
  if (tokenizer->takes_any_bytes()) warn_compressed_inputs(arguments.inputs);
  TextBatches text(arguments.inputs, line_ends(arguments, tokenizer->takes_any_bytes()),
                   [&](std::string_view t) { return tokenizer->find_split(t); });
  ShardHeader header = header_of(*tokenizer);
  header.set_kind(kTextKind);
  header.provenance =
      ordered_json{{"tool", str("mh-prep ", version())},
                   {"inputs", arguments.inputs},
                   {"vocabulary", options.vocabulary_path},
                   {"crlf", tokenizer->takes_any_bytes() ? "keep" : arguments.crlf_handling}}
          .dump(-1, ' ', false, ordered_json::error_handler_t::replace);  // file names may contain any bytes
  LineSummary summary;
  write_shard(arguments, header, [&](ShardWriter& writer) {
    summary = encode_lines(text, *tokenizer, options.threads.num_threads(), writer);
    if (summary.num_tokens == 0) refuse_empty_inputs(arguments, "text", "name a file with text");
  });
  log_removed_bytes(text.num_normalised_lines(), text.num_byte_order_marks());
  log_info(str(count_with_commas(summary.num_lines, "line"), ", ", count_with_commas(summary.num_tokens, "token"), ", ",
               format_count(summary.num_unknown, "unknown, "), format_throughput(summary.num_bytes, summary.seconds)));
}

class LanguageModelPreparation : public PreparationWithOptions<LmOptions, make_lm> {
 public:
  std::string inputs_help() const override { return kTextFilesHelp; }
};

const Registration<LanguageModelPreparation> lm_entry(preparations(), "lm",
                                                      "make a language-model shard: one record per line");

}  // namespace

}  // namespace mh::text
