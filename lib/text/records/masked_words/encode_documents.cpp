#include "text/records/masked_words/encode_documents.h"

#include "base/unicode.h"
#include "text/records/ordered_encoding.h"

namespace mh::text {

namespace {

// The encoded lines of a batch; a blank line becomes an empty sequence.
struct EncodedLines {
  EncodedSequences sequences;
  DocumentSummary summary;
  bool begins_file = false;
};

EncodedLines encode(const TextBatch& batch, const Tokenizer& tokenizer, Encoder& encoder) {
  check_text(batch, false);
  EncodedLines out;
  out.begins_file = batch.segments.front().line_number == 1;
  std::vector<int32_t>& tokens = out.sequences.tokens;
  tokens.reserve(batch.text.size() / 3);
  for (const auto& s : batch.segments) {
    const size_t first_token = tokens.size();
    const std::string_view line = std::string_view(batch.text).substr(s.begin, s.end - s.begin);
    encoder.encode(line, tokens);
    if (tokens.size() > first_token || is_blank(line)) out.sequences.ends.push_back(tokens.size());
    else ++out.summary.num_lines_without_tokens;
  }
  out.summary.num_tokens = tokens.size();
  out.summary.num_unknown = count_unknown(tokens, tokenizer);
  out.summary.num_bytes = batch.input_bytes;
  return out;
}

// Writes sentences to a shard. An empty sequence ends a document; documents without sentences are skipped.
class DocumentWriter {
 public:
  DocumentWriter(io::ShardWriter& writer, DocumentSummary& summary) : writer_(writer), summary_(summary) {}
  void add(std::span<const int32_t> sentence) {
    if (sentence.empty()) return close();
    writer_.add_sequence(sentence);
    ++summary_.num_sentences;
    is_document_open_ = true;
  }
  void close() {
    if (!is_document_open_) return;
    writer_.add_sequence({});
    ++summary_.num_documents;
    is_document_open_ = false;
  }

 private:
  io::ShardWriter& writer_;
  DocumentSummary& summary_;
  bool is_document_open_ = false;
};

}  // namespace

DocumentSummary encode_documents(TextBatches& text, const Tokenizer& tokenizer, int num_threads,
                                 io::ShardWriter& writer) {
  DocumentSummary summary;
  DocumentWriter documents(writer, summary);
  summary.seconds = encode_in_order<TextBatch, EncodedLines>(
      num_threads, text.expected_bytes(), "bytes", [&](TextBatch& batch) { return text.next(batch); },
      [&] {
        return [&tokenizer, encoder = std::shared_ptr(tokenizer.encoder())](const TextBatch& batch) {
          return encode(batch, tokenizer, *encoder);
        };
      },
      [&](const EncodedLines& e) {
        if (e.begins_file) documents.close();
        size_t begin = 0;
        for (size_t end : e.sequences.ends) {
          documents.add(std::span(e.sequences.tokens).subspan(begin, end - begin));
          begin = end;
        }
        writer.add_text_bytes(e.summary.num_bytes);
        summary.num_tokens += e.summary.num_tokens;
        summary.num_unknown += e.summary.num_unknown;
        summary.num_lines_without_tokens += e.summary.num_lines_without_tokens;
        summary.num_bytes += e.summary.num_bytes;
        return summary.num_bytes;
      });
  documents.close();
  return summary;
}

}  // namespace mh::text
