#include "text/records/language_modelling.h"

#include "base/json_types.h"
#include "io/record_kind.h"
#include "text/records/ordered_encoding.h"

namespace mh::text {

namespace {

class TextKind : public io::RecordKind {
 public:
  int list_position() const override { return 1; }
  std::vector<std::string> preparations() const override { return {"lm"}; }
  std::vector<std::string> field_names() const override { return {"tokens"}; }
  size_t num_token_fields() const override { return 1; }
  bool allows_any_tokens() const override { return true; }
};
const Registration<TextKind> kind_entry(io::record_kinds(), io::kTextKind, "A line of text, or a document.");

struct EncodedLines {
  EncodedSequences sequences;
  uint64_t num_unknown = 0;
  uint64_t num_bytes = 0;
};

EncodedLines encode(const TextBatch& batch, const Tokenizer& tokenizer, Encoder& encoder) {
  if (!tokenizer.takes_any_bytes()) check_text(batch);
  EncodedLines out;
  std::vector<int32_t>& tokens = out.sequences.tokens;
  tokens.reserve(batch.text.size() / 3);
  for (const auto& s : batch.segments) {
    encoder.encode(std::string_view(batch.text).substr(s.begin, s.end - s.begin), tokens);
    if (!s.ends_line) continue;
    if (s.has_newline || !tokenizer.takes_any_bytes()) tokens.push_back(tokenizer.end_of_line_id());
    out.sequences.ends.push_back(tokens.size());
  }
  out.num_unknown = count_unknown(tokens, tokenizer);
  out.num_bytes = batch.input_bytes;
  return out;
}

// Encodes the batches of a TextBatches or DocumentBatches and writes their sequences.
template <class Batches>
LineSummary encode_batches(Batches& batches, const Tokenizer& tokenizer, int num_threads, io::ShardWriter& writer) {
  LineSummary summary;
  summary.seconds = encode_in_order<TextBatch, EncodedLines>(
      num_threads, batches.expected_bytes(), "bytes", [&](TextBatch& batch) { return batches.next(batch); },
      [&] {
        return [&tokenizer, encoder = std::shared_ptr(tokenizer.encoder())](const TextBatch& batch) {
          return encode(batch, tokenizer, *encoder);
        };
      },
      [&](const EncodedLines& e) {
        e.sequences.write(writer);
        summary.num_lines += e.sequences.ends.size();
        summary.num_tokens += e.sequences.tokens.size();
        summary.num_unknown += e.num_unknown;
        summary.num_bytes += e.num_bytes;
        return summary.num_bytes;
      });
  return summary;
}

}  // namespace

LineSummary encode_lines(TextBatches& text, const Tokenizer& tokenizer, int num_threads, io::ShardWriter& writer) {
  const LineSummary summary = encode_batches(text, tokenizer, num_threads, writer);
  writer.add_text_bytes(summary.num_bytes);
  return summary;
}

LineSummary encode_lm_documents(DocumentBatches& documents, const Tokenizer& tokenizer, int num_threads,
                                io::ShardWriter& writer) {
  const LineSummary summary = encode_batches(documents, tokenizer, num_threads, writer);
  writer.add_text_bytes(documents.text_bytes());
  return summary;
}

bool has_documents(const io::ShardHeader& header) {
  const auto provenance = nlohmann::json::parse(header.provenance, nullptr, false);
  if (!provenance.is_object()) return false;
  const auto unit = provenance.find("document");
  return unit != provenance.end() && *unit != kDocumentUnits[static_cast<size_t>(DocumentUnit::line)];
}

}  // namespace mh::text
