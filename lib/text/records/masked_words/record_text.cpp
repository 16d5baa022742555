// The documents of a shard, printed one sentence per line.
#include "text/records/record_text.h"

#include "base/json_types.h"
#include "text/tokenizer.h"

namespace mh::text {

namespace {

class DocumentText : public WholeShardText {
 protected:
  nlohmann::ordered_json count_shard(const WholeShard& shard, const std::string&) const override {
    uint64_t num_documents = 0;  // number of empty sequences, one at the end of each document
    for (size_t i = 0; i < shard.size(); ++i) num_documents += shard.sequence(i, 0).empty() ? 1 : 0;
    return {{"documents", num_documents}, {"sentences", shard.size() - num_documents}};
  }
  // Prints an empty line between documents; the empty sequence that ends the last document is not printed.
  void print_text(const WholeShard& shard, const std::string&, const Tokenizer& tokenizer,
                  ByteSink& sink) const override {
    for (size_t i = 0; i + 1 < shard.size(); ++i)
      sink.write(text_of_tokens(shard.sequence(i, 0), tokenizer, false) + "\n");
  }
};

const Registration<DocumentText> entry(record_texts(), io::kDocumentsKind,
                                       "one sentence per line, an empty line between documents");

}  // namespace

}  // namespace mh::text
