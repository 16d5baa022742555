// mh-prep mlm: converts documents to a shard of sentences, for BERT's pre-training.

#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "text/records/masked_words/encode_documents.h"
#include "text/records/preparation.h"
#include "text/tokenizers.h"

namespace mh::text {

using namespace mh::io;

namespace {

struct MlmOptions {
  BertVocabularyOptions vocabulary;
  EncodingThreads threads;
  void describe(Fields& f) {
    f.section("", vocabulary);
    f.section("", threads);
  }
};

void make_mlm(const PrepArguments& arguments, const MlmOptions& options) {
  const auto tokenizer = load_vocabulary(arguments, options.vocabulary);
  TextBatches text(arguments.inputs, line_ends(arguments, false), nullptr);
  ShardHeader header = header_of(*tokenizer);
  header.set_kind(kDocumentsKind);
  header.provenance = provenance_of(arguments, options.vocabulary, {});
  DocumentSummary summary;
  write_shard(arguments, header, [&](ShardWriter& writer) {
    summary = encode_documents(text, *tokenizer, options.threads.num_threads(), writer);
    if (summary.num_sentences == 0)
      refuse_inputs(arguments, "sentences, one per line", "none", "name a file with at least one sentence");
  });
  log_removed_bytes(text.num_normalised_lines(), text.num_byte_order_marks());
  if (summary.num_lines_without_tokens > 0)
    log_info("dropped " + count_with_commas(summary.num_lines_without_tokens, "line") + " without a token");
  if (summary.num_documents == 1)
    log_warning("only one document, but next-sentence prediction needs two or more; separate documents by empty lines");
  log_info(str(count_with_commas(summary.num_documents, "document"), ", ",
               count_with_commas(summary.num_sentences, "sentence"), ", ",
               count_with_commas(summary.num_tokens, "token"), ", ", format_count(summary.num_unknown, "unknown, "),
               format_throughput(summary.num_bytes, summary.seconds)));
}

class MlmPreparation : public PreparationWithOptions<MlmOptions, make_mlm> {
 public:
  std::string inputs_help() const override {
    return "text files, one sentence per line, an empty line between documents";
  }
};

const Registration<MlmPreparation> mlm_entry(
    preparations(), "mlm",
    "make a shard of documents for BERT's pre-training; training samples pairs of segments and masks in every epoch");

}  // namespace

}  // namespace mh::text
