// mh-prep lm: converts text to a language-model shard.
#include <iterator>

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

constexpr size_t kMaxJsonLineBytes = size_t{64} << 20;  // a line is held as text and as a JSON value

struct LmOptions {
  std::string vocabulary_path;
  std::string document = kDocumentUnits[0];
  EncodingThreads threads;
  void describe(Fields& f) {
    f.field(
        "vocab", vocabulary_path,
        "vocabulary made by mh-prep vocab, a SentencePiece model, a tokenizer.json, a checkpoint, or a model folder of "
        "Hugging Face");
    f.field("document", document,
            "unit of text that the end-of-line token follows; blank-line: the lines between blank lines; jsonl: the "
            "string at the key text of the JSON object in each line; all units but line encode the line ends within a "
            "document as text, and need a vocabulary that does so, such as the type byte-bpe or tokenizer-json",
            {std::begin(kDocumentUnits), std::end(kDocumentUnits)});
    f.section("", threads);
  }
};

void make_lm(const PrepArguments& arguments, const LmOptions& options) {
  if (options.vocabulary_path.empty())
    refuse_usage("--vocab", "a vocabulary", "none", "make a vocabulary with mh-prep vocab, and give --vocab FILE");
  refuse_output_onto(arguments, {options.vocabulary_path});
  auto tokenizer = load_tokenizer(options.vocabulary_path);
  const DocumentUnit unit = document_unit(options.document);
  if (unit != DocumentUnit::line && !tokenizer->encodes_line_feeds())
    refuse_usage("--document " + options.document,
                 "a vocabulary that encodes line ends within a document, such as the type byte-bpe or tokenizer-json",
                 "a vocabulary of the type " + tokenizer->type(),
                 "leave --document out, or make a vocabulary with mh-prep vocab --type byte-bpe");
  if (tokenizer->takes_any_bytes() && arguments.has_crlf_option)
    refuse_usage("--crlf", "no --crlf with a vocabulary of the type byte, which keeps all bytes",
                 "--crlf " + arguments.crlf_handling, "leave --crlf out");
  if (tokenizer->takes_any_bytes()) warn_compressed_inputs(arguments.inputs);
  const TextBatches::FindSplit find_split = [&](std::string_view t) { return tokenizer->find_split(t); };
  ReadSizes sizes;
  if (unit == DocumentUnit::jsonl) sizes.max_line_bytes = kMaxJsonLineBytes;
  TextBatches text(arguments.inputs, line_ends(arguments, tokenizer->takes_any_bytes()),
                   unit == DocumentUnit::jsonl ? nullptr : find_split, sizes);
  DocumentBatches documents(text, unit, find_split);
  ShardHeader header = header_of(*tokenizer);
  header.set_kind(kTextKind);
  header.provenance =
      ordered_json{{"tool", str("mh-prep ", version())},
                   {"inputs", arguments.inputs},
                   {"vocabulary", options.vocabulary_path},
                   {"crlf", tokenizer->takes_any_bytes() ? "keep" : arguments.crlf_handling},
                   {"document", options.document}}
          .dump(-1, ' ', false, ordered_json::error_handler_t::replace);  // file names may contain any bytes
  LineSummary summary;
  write_shard(arguments, header, [&](ShardWriter& writer) {
    const int num_threads = options.threads.num_threads();
    summary = unit == DocumentUnit::line ? encode_lines(text, *tokenizer, num_threads, writer)
                                         : encode_lm_documents(documents, *tokenizer, num_threads, writer);
    if (summary.num_tokens == 0) refuse_empty_inputs(arguments, "text", "name a file with text");
  });
  log_removed_bytes(text.num_normalised_lines(), text.num_byte_order_marks());
  if (documents.num_empty_documents() > 0)
    log_info("dropped " + count_with_commas(documents.num_empty_documents(), "document") + " without text");
  log_info(str(count_with_commas(summary.num_lines, unit == DocumentUnit::line ? "line" : "document"), ", ",
               count_with_commas(summary.num_tokens, "token"), ", ", format_count(summary.num_unknown, "unknown, "),
               format_throughput(summary.num_bytes, summary.seconds), ", --document ", options.document));
}

class LanguageModelPreparation : public PreparationWithOptions<LmOptions, make_lm> {
 public:
  std::string inputs_help() const override { return kTextFilesHelp; }
};

const Registration<LanguageModelPreparation> lm_entry(preparations(), "lm",
                                                      "make a language-model shard: one record per line or document");

}  // namespace

}  // namespace mh::text
