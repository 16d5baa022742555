// The examples of a shard, printed as the first text, the second text and the label of each example.
#include "text/records/record_text.h"

#include "text/records/classification/examples.h"
#include "text/tokenizer.h"

namespace mh::text {

namespace {

class ExampleText : public WholeShardText {
 protected:
  void print_text(const WholeShard& shard, const std::string& name, const Tokenizer& tokenizer,
                  ByteSink& sink) const override {
    const ExampleTask task = task_of(shard.header, name);
    for (size_t i = 0; i < shard.size(); ++i) {
      const auto label = shard.sequence(i, 2);
      sink.write(text_of_tokens(shard.sequence(i, 0), tokenizer, false) + "\t" +
                 text_of_tokens(shard.sequence(i, 1), tokenizer, false) + "\t" +
                 (label.empty() ? "" : task.text_of(label[0])) + "\n");
    }
  }
};

const Registration<ExampleText> entry(record_texts(), io::kExamplesKind, "texts and label, one example per line");

}  // namespace

}  // namespace mh::text
