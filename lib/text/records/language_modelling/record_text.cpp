// The text of a language-model shard, printed as a stream, since a shard may be larger than memory.
#include "text/records/record_text.h"

#include <utility>

#include "text/records/language_modelling.h"
#include "text/tokenizers.h"

namespace mh::text {

namespace {

class TextLines : public RecordText {
 public:
  void print(io::ShardStream& stream, bool as_ids, ByteSink& sink) const override {
    const auto tokenizer = parse_tokenizer(stream.header().tokenizer, stream.name());
    require_vocabulary(stream.header(), stream.name(), *tokenizer, "the tokenizer stored in the shard");
    const char* separator = has_documents(stream.header()) && !as_ids ? "\n" : "";  // between documents
    bool is_first = true;
    std::vector<int32_t> tokens(1 << 14), line;
    const auto print_line = [&] {
      if (!std::exchange(is_first, false)) sink.write(separator);
      sink.write(text_of_tokens(line, *tokenizer, as_ids));
      if (as_ids || line.back() == tokenizer->end_of_line_id()) sink.write("\n");
    };
    while (const size_t n = stream.read(tokens)) {
      for (size_t i = 0; i < n; ++i) {
        line.push_back(tokens[i]);
        if (tokens[i] != tokenizer->end_of_line_id()) continue;
        print_line();
        line.clear();
      }
    }
    if (!line.empty()) print_line();
  }
};

const Registration<TextLines> entry(record_texts(), io::kTextKind,
                                    "the text, line by line, or documents with an empty line between them");

}  // namespace

}  // namespace mh::text
