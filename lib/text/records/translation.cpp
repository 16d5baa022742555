#include "text/records/translation.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "io/record_kind.h"
#include "text/records/ordered_encoding.h"

namespace mh::text {

namespace {

class PairsKind : public io::RecordKind {
 public:
  int list_position() const override { return 2; }
  std::vector<std::string> preparations() const override { return {"translation"}; }
  std::vector<std::string> field_names() const override { return {"source", "target"}; }
  size_t num_token_fields() const override { return 2; }
  size_t num_source_fields() const override { return 1; }
  const char* length_rule() const override {
    return "pairs whose source and target each have at least an end-of-line token";
  }
  bool allows_length(size_t, uint64_t length, uint64_t) const override { return length > 0; }
  bool ends_with_end_of_line() const override { return true; }
};
const Registration<PairsKind> kind_entry(io::record_kinds(), io::kPairsKind, "A line and its translation.");

struct EncodedPairs {
  EncodedSequences sequences;
  PairSummary summary;
  uint64_t target_bytes = 0;
};

// The tokenizer of the source or of the target, with an encoder for one thread.
struct SentenceEncoder {
  const Tokenizer& tokenizer;
  std::unique_ptr<Encoder> encoder = tokenizer.encoder();

  // Appends the tokens of a line and the end-of-line token; returns the number of tokens without the end-of-line token.
  size_t add(const TextBatch& batch, const TextBatch::Segment& s, std::vector<int32_t>& out) {
    const size_t begin = out.size();
    encoder->encode(std::string_view(batch.text).substr(s.begin, s.end - s.begin), out);
    const int32_t end = tokenizer.end_of_line_id();
    if (std::find(out.begin() + static_cast<int64_t>(begin), out.end(), end) != out.end())
      refuse_input(str(batch.file, ":", s.line_number), "text without the end-of-line token",
                   "'" + tokenizer.piece(end) + "' in the text", "remove the token from the text");
    out.push_back(end);
    return out.size() - begin - 1;
  }
};

class PairEncoder {
 public:
  PairEncoder(const Tokenizer& source, const Tokenizer& target, const PairFilters& filters)
      : source_{source}, target_{target}, filters_(filters) {}

  EncodedPairs encode(const PairBatch& batch) {
    EncodedPairs out;
    std::vector<int32_t>& tokens = out.sequences.tokens;
    tokens.reserve((batch.source.text.size() + batch.target.text.size()) / 3);
    for (size_t i = 0; i < batch.source.segments.size(); ++i) {
      const TextBatch::Segment &s = batch.source.segments[i], &t = batch.target.segments[i];
      check_text(batch.source, s, false);
      check_text(batch.target, t, false);
      const size_t begin = tokens.size();
      const size_t source_length = source_.add(batch.source, s, tokens), source_end = tokens.size();
      const size_t target_length = target_.add(batch.target, t, tokens);
      if (const char* reason = filters_.drop_reason(source_length, target_length)) {
        if (source_length * target_length == 0 && filters_.empty_handling == "refuse")
          refuse_empty(batch, i, source_length == 0);
        ++out.summary.num_dropped[reason];
        tokens.resize(begin);
        continue;
      }
      out.sequences.ends.insert(out.sequences.ends.end(), {source_end, tokens.size()});
      const auto pair = std::span(tokens).subspan(begin);
      out.summary.num_unknown[0] += count_unknown(pair.first(source_length), source_.tokenizer);
      out.summary.num_unknown[1] += count_unknown(pair.last(target_length + 1), target_.tokenizer);
      out.summary.num_tokens[0] += source_length + 1;
      out.summary.num_tokens[1] += target_length + 1;
      out.target_bytes += t.end - t.begin + 1;
      ++out.summary.num_pairs;
    }
    out.summary.num_bytes = batch.source.input_bytes + batch.target.input_bytes;
    return out;
  }

 private:
  [[noreturn]] static void refuse_empty(const PairBatch& batch, size_t i, bool is_source) {
    const TextBatch& batch_side = is_source ? batch.source : batch.target;
    refuse_input(str(batch_side.file, ":", batch_side.segments[i].line_number),
                 "a pair with non-empty source and target", str("an empty ", is_source ? "source" : "target"),
                 "fill the empty line, or drop the pair with --empty drop");
  }
  SentenceEncoder source_, target_;
  PairFilters filters_;
};

}  // namespace

void PairFilters::check() const {
  if (max_length > 0 && min_length > max_length)
    refuse_usage("--min-length", str("at most --max-length ", max_length), str(min_length),
                 "lower --min-length, or raise --max-length");
  if (max_ratio > 0 && max_ratio < 1)
    refuse_usage("--max-ratio",
                 "at least 1 (length of the longer text divided by length of the shorter text), or 0 for no limit",
                 shortest_decimal(max_ratio), "raise --max-ratio to 1 or more");
}

const char* PairFilters::drop_reason(size_t source_length, size_t target_length) const {
  const auto [shorter, longer] = std::minmax(source_length, target_length);
  if (shorter == 0) return "empty";
  if (shorter < static_cast<size_t>(min_length)) return "short";
  if (max_length > 0 && longer > static_cast<size_t>(max_length)) return "long";
  if (max_ratio > 0 && static_cast<double>(longer) > max_ratio * static_cast<double>(shorter)) return "ratio";
  return nullptr;
}

PairSummary encode_pairs(PairBatches& text, const Tokenizer& source, const Tokenizer& target,
                         const PairFilters& filters, int num_threads, io::ShardWriter& writer) {
  filters.check();
  PairSummary summary;
  summary.seconds = encode_in_order<PairBatch, EncodedPairs>(
      num_threads, text.expected_bytes(), "bytes", [&](PairBatch& batch) { return text.next(batch); },
      [&] {
        return [encoder = std::make_shared<PairEncoder>(source, target, filters)](const PairBatch& batch) {
          return encoder->encode(batch);
        };
      },
      [&](const EncodedPairs& e) {
        e.sequences.write(writer);
        writer.add_text_bytes(e.target_bytes);
        for (const auto& [reason, num_pairs] : e.summary.num_dropped) {
          writer.add_dropped(reason, num_pairs);
          summary.num_dropped[reason] += num_pairs;
        }
        for (size_t side : {0, 1}) {
          summary.num_tokens[side] += e.summary.num_tokens[side];
          summary.num_unknown[side] += e.summary.num_unknown[side];
        }
        summary.num_pairs += e.summary.num_pairs;
        summary.num_bytes += e.summary.num_bytes;
        return summary.num_bytes;
      });
  return summary;
}

}  // namespace mh::text
