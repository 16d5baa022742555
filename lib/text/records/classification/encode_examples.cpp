// Encodes tab-separated examples to a shard of examples.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "text/records/classification/examples.h"
#include "text/records/ordered_encoding.h"

namespace mh::text {

namespace {

constexpr const char* kMalformed = "malformed";

struct EncodedExamples {
  EncodedSequences sequences;
  ExampleSummary summary;
};

class ExampleEncoder {
 public:
  ExampleEncoder(const ExampleTask& task, bool drop_malformed, const Tokenizer& tokenizer)
      : task_(task), drop_malformed_(drop_malformed), tokenizer_(tokenizer), encoder_(tokenizer.encoder()) {}

  EncodedExamples encode(const ExampleBatch& batch) {
    EncodedExamples out;
    out.sequences.tokens.reserve(batch.text.text.size() / 3);
    for (const auto& s : batch.text.segments) {
      check_text(batch.text, s, false);
      fields_ = split_columns(batch.line(s), str(batch.text.file, ":", s.line_number));
      if (has_valid_columns(batch, s)) add(batch, s, out);
      else ++out.summary.num_malformed;
    }
    out.summary.num_bytes = batch.text.input_bytes;
    return out;
  }

 private:
  // Returns whether the current line has a valid number of columns; if not, the line is to be dropped. Throws
  // Error(input) for a wrong number of columns in a line that must not be dropped.
  bool has_valid_columns(const ExampleBatch& batch, const TextBatch::Segment& s) const {
    const ExampleColumns& c = batch.columns;
    if (c.num_columns > 0 ? fields_.size() == c.num_columns : fields_.size() >= c.min_columns()) return true;
    if (drop_malformed_ && c.label != ExampleColumns::kNone) return false;
    refuse_input(
        str(batch.text.file, ":", s.line_number),
        c.num_columns > 0 ? count_of(c.num_columns, "column") : str(count_of(c.min_columns(), "column"), " or more"),
        str(fields_.size()),
        c.label != ExampleColumns::kNone ? "separate columns by single tabs, or drop the line with --malformed drop"
                                         : "separate columns by single tabs; in a file without labels no line can be "
                                           "dropped, since predictions are numbered by line");
  }

  void add(const ExampleBatch& batch, const TextBatch::Segment& s, EncodedExamples& out) {
    const ExampleColumns& c = batch.columns;
    std::vector<int32_t>& tokens = out.sequences.tokens;
    const size_t begin = tokens.size();
    encoder_->encode(fields_[c.first_text], tokens);
    out.sequences.ends.push_back(tokens.size());
    if (c.second_text != ExampleColumns::kNone) encoder_->encode(fields_[c.second_text], tokens);
    out.sequences.ends.push_back(tokens.size());
    out.summary.num_tokens += tokens.size() - begin;
    out.summary.num_unknown += count_unknown(std::span(tokens).subspan(begin), tokenizer_);
    if (c.label != ExampleColumns::kNone) {
      const auto label = task_.label_of(fields_[c.label]);
      if (!label)
        refuse_input(str(batch.text.file, ":", s.line_number, ": column ", c.label + 1), task_.valid_labels(),
                     "'" + fields_[c.label] + "'",
                     "correct the label, or select the column of the labels with --label");
      tokens.push_back(*label);
      ++out.summary.num_labelled;
    }
    out.sequences.ends.push_back(tokens.size());
    ++out.summary.num_examples;
  }

  const ExampleTask& task_;
  bool drop_malformed_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<Encoder> encoder_;
  std::vector<std::string> fields_;  // fields of the current line
};

}  // namespace

ExampleSummary encode_examples(TextBatches& text, const FindColumns& find_columns, const ExampleTask& task,
                               bool drop_malformed, const Tokenizer& tokenizer, int num_threads,
                               io::ShardWriter& writer) {
  ExampleSummary summary;
  ExampleBatches batches(text, find_columns);
  summary.seconds = encode_in_order<ExampleBatch, EncodedExamples>(
      num_threads, text.expected_bytes(), "bytes", [&](ExampleBatch& batch) { return batches.next(batch); },
      [&] {
        return [encoder = std::make_shared<ExampleEncoder>(task, drop_malformed, tokenizer)](
                   const ExampleBatch& batch) { return encoder->encode(batch); };
      },
      [&](const EncodedExamples& e) {
        e.sequences.write(writer);
        writer.add_text_bytes(e.summary.num_bytes);
        if (e.summary.num_malformed > 0) writer.add_dropped(kMalformed, e.summary.num_malformed);
        summary.num_examples += e.summary.num_examples;
        summary.num_labelled += e.summary.num_labelled;
        summary.num_malformed += e.summary.num_malformed;
        summary.num_tokens += e.summary.num_tokens;
        summary.num_unknown += e.summary.num_unknown;
        summary.num_bytes += e.summary.num_bytes;
        return summary.num_bytes;
      });
  return summary;
}

}  // namespace mh::text
