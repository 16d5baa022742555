// The pairs of a translation shard, printed as a stream, since a shard may be larger than memory.
#include "text/records/record_text.h"

#include "base/json_types.h"
#include "text/records/translation/pair_stream.h"

namespace mh::text {

namespace {

class PairLines : public RecordText {
 public:
  nlohmann::ordered_json count(io::ShardStream& stream) const override {
    uint64_t num_source_tokens = 0;
    std::vector<int32_t> source, target;
    for (PairStream pairs(stream); pairs.next(source, target);) num_source_tokens += source.size();
    return {{"source_tokens", num_source_tokens},
            {"target_tokens", stream.counts().num_tokens - num_source_tokens},
            {"dropped", stream.counts().num_dropped}};
  }
  void print(io::ShardStream& stream, bool as_ids, ByteSink& sink) const override {
    PairStream pairs(stream);
    const Tokenizer &source = pairs.tokenizer(io::Side::source), &target = pairs.tokenizer(io::Side::target);
    for (std::vector<int32_t> source_ids, target_ids; pairs.next(source_ids, target_ids);)
      sink.write(text_of_tokens(source_ids, source, as_ids) + "\t" + text_of_tokens(target_ids, target, as_ids) + "\n");
  }
};

const Registration<PairLines> entry(record_texts(), io::kPairsKind, "source, tab, target, one pair per line");

}  // namespace

}  // namespace mh::text
