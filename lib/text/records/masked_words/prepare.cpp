// mh-prep mlm: documents to a shard of their sentences, for BERT's pre-training.

#include "base/error.h"
#include "base/file.h"
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
  BertVocabulary vocabulary;
  int64_t threads = 0;
  void describe(Fields& f) {
    f.section("", vocabulary);
    f.field("threads", threads, "encoding threads; 0: all cores", between(0, 1024));
  }
};

void make_mlm(const PrepArguments& a, const MlmOptions& o) {
  o.vocabulary.check();
  std::vector<std::string> read = a.inputs;
  read.push_back(o.vocabulary.file());
  refuse_output_onto_input(a.output, read);
  const auto tokenizer = o.vocabulary.load();
  TextBatches text(a.inputs, line_ends(a, false), nullptr);
  ShardHeader header = header_of(*tokenizer);
  header.hold(kDocumentsKind);
  header.provenance = provenance_of(a, o.vocabulary, {});
  auto sink = open_sink(a.output);
  ShardWriter writer(*sink, header);
  const DocumentSummary sum = encode_documents(text, *tokenizer, threads_of(o.threads), writer);
  if (sum.sentences == 0)
    throw Error(Exit::input, Problem{join(a.inputs, " "), "sentences, one a line", "none", "check what makes it"});
  writer.finish();
  sink->close();
  report_dropped(text.normalised(), text.byte_order_marks());
  if (sum.without_tokens > 0) log_info(counted(sum.without_tokens, "lines without a token are left out"));
  if (sum.documents == 1)
    log_warning("one document: next-sentence prediction needs another; an empty line ends a document");
  log_info(str(counted(sum.documents, "documents, "), counted(sum.sentences, "sentences, "),
               counted(sum.tokens, "tokens, "), counted(sum.unknown, "unknown, "), speed(sum.bytes, sum.seconds)));
}

class Mlm : public Preparation {
 public:
  std::string inputs_help() const override { return "text files, a sentence a line, an empty line between documents"; }
  void describe(Fields& f) override { options_.describe(f); }
  void make(const PrepArguments& arguments) const override { make_mlm(arguments, options_); }

 private:
  MlmOptions options_;
};

const Registered<Mlm> mlm_entry(
    preparations(), "mlm",
    "make a shard of documents for BERT's pre-training; the pairs of sentences and the masks are not in it, training "
    "draws them anew in every epoch");

}  // namespace

}  // namespace mh::text
