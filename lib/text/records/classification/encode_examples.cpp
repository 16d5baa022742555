// Encodes tab-separated examples to a shard of examples.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "text/records/classification/examples.h"
#include "text/records/ordered_encoding.h"

namespace mh::text {

namespace {

constexpr const char* kMalformed = "malformed";
// Maximum number of columns of a line. Bounds the memory, since a string for a column of one byte takes 32 bytes.
constexpr int64_t kMaxColumns = 1 << 16;

// Lines of one file, without its header.
struct ExampleBatch {
  TextBatch text;
  ExampleColumns columns;
};

std::string_view text_of(const ExampleBatch& batch, const TextBatch::Segment& segment) {
  return std::string_view(batch.text.text).substr(segment.begin, segment.end - segment.begin);
}

struct EncodedExamples {
  EncodedSequences sequences;
  ExampleSummary summary;
};

// Returns the fields of a line. `where`: file and line for the message.
std::vector<std::string> split_columns(std::string_view line, const std::string& where) {
  if (const auto num_columns = 1 + std::ranges::count(line, '\t'); num_columns > kMaxColumns)
    refuse_input(where, str("at most ", kMaxColumns, " columns"), count_of(num_columns, "column"),
                 "separate columns by single tabs, and lines by newlines");
  return split(line, '\t');
}

class ExampleBatches {
 public:
  ExampleBatches(TextBatches& text, const FindColumns& find_columns) : text_(text), find_columns_(find_columns) {}

  bool next(ExampleBatch& batch) {
    if (!text_.next(batch.text)) return false;
    auto& segments = batch.text.segments;
    if (segments.front().line_number == 1) {
      const TextBatch::Segment& first_line = segments.front();
      check_text(batch.text, first_line, false);
      const std::string where = str(batch.text.file, ":1");
      columns_ = find_columns_(split_columns(text_of(batch, first_line), where), where);
      if (columns_.has_header) segments.erase(segments.begin());
    }
    batch.columns = columns_;
    return true;
  }

 private:
  TextBatches& text_;
  const FindColumns& find_columns_;
  ExampleColumns columns_;  // columns of the current file
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
      fields_ = split_columns(text_of(batch, s), str(batch.text.file, ":", s.line_number));
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
