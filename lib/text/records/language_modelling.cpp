#include "text/records/language_modelling.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "base/unicode.h"
#include "base/version.h"
#include "io/record_kind.h"
#include "text/records/ordered_encoding.h"
#include "text/records/preparation.h"
#include "text/records/record_text.h"
#include "text/text_bytes.h"
#include "text/tokenizers.h"
#include "text/vocabulary.h"

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
const Registration<TextKind> kind_entry(io::record_kinds(), kTextKind, "A line of text, or a document.");

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

namespace {

// Returns the string at the key "text" of the JSON object in a line. `where`: file and line for messages.
std::string text_of_json(std::string_view line, const std::string& where) {
  constexpr const char* kAdvice = "write one JSON object per line, with the text of a document at the key text";
  const auto object = parse_json_object<nlohmann::json>(line, where, kAdvice);
  const auto entry = object.find("text");
  if (entry == object.end() || !entry->is_string())
    refuse_input(where, "a string at the key 'text'",
                 entry == object.end() ? "no such key" : str("a JSON ", entry->type_name()), kAdvice);
  auto text = entry->get<std::string>();
  if (find_invalid_byte(text) != text.npos)
    refuse_input(where, "text without NUL characters at the key 'text'", "the character U+0000", "remove it");
  return text;
}

}  // namespace

DocumentUnit document_unit(const std::string& name) {
  const auto* unit = std::find(std::begin(kDocumentUnits), std::end(kDocumentUnits), name);
  return static_cast<DocumentUnit>(unit - std::begin(kDocumentUnits));
}

DocumentBatches::DocumentBatches(TextBatches& lines, DocumentUnit unit, TextBatches::FindSplit find_split,
                                 ReadSizes sizes)
    : lines_(lines), unit_(unit), find_split_(std::move(find_split)), sizes_(sizes) {}

bool DocumentBatches::next(TextBatch& batch) {
  batch = {};
  while (batch.segments.empty()) {
    if (!lines_.next(line_batch_)) {
      end_document(batch);
      break;
    }
    batch.file = line_batch_.file;
    batch.input_bytes += line_batch_.input_bytes;
    if (line_batch_.begins_file) end_document(batch);
    for (const TextBatch::Segment& segment : line_batch_.segments) add_line_segment(segment, batch);
    if (pending_text_.size() < sizes_.batch_bytes) continue;
    if (const size_t num_bytes = find_split_(pending_text_); num_bytes != std::string::npos)
      add_segment(batch, num_bytes, false);
    else if (pending_text_.size() > sizes_.max_line_bytes)
      refuse_input(line_batch_.file,
                   str("a space or a line end, where the text can be split, at least every ",
                       human_bytes(sizes_.max_line_bytes)),
                   "none", "break the text up");
  }
  return !batch.segments.empty();
}

void DocumentBatches::add_line_segment(const TextBatch::Segment& segment, TextBatch& batch) {
  check_text(line_batch_, segment, false);
  const std::string_view text = std::string_view(line_batch_.text).substr(segment.begin, segment.end - segment.begin);
  const bool starts_line = std::exchange(ends_previous_line_, segment.ends_line);
  const bool is_blank_line = starts_line && segment.ends_line && is_blank(text);
  if (unit_ == DocumentUnit::jsonl) {
    if (is_blank_line) return;
    pending_text_ = text_of_json(text, str(line_batch_.file, ":", segment.line_number));
    has_line_ = true;
    return end_document(batch);
  }
  if (unit_ == DocumentUnit::blank_line && is_blank_line) return end_document(batch);
  if (starts_line && has_line_) pending_text_ += '\n';
  pending_text_ += text;
  has_line_ = true;
}

void DocumentBatches::add_segment(TextBatch& batch, size_t num_bytes, bool ends_document) {
  const size_t begin = batch.text.size();
  batch.text.append(pending_text_, 0, num_bytes);
  pending_text_.erase(0, num_bytes);
  batch.segments.push_back({begin, batch.text.size(), ends_document, ends_document, 0, 0});
  has_segment_ = !ends_document;
  text_bytes_ += num_bytes + (ends_document ? 1 : 0);
}

void DocumentBatches::end_document(TextBatch& batch) {
  if (has_segment_ || !pending_text_.empty()) add_segment(batch, pending_text_.size(), true);
  else if (has_line_) ++num_empty_documents_;
  has_line_ = false;
}

namespace {

constexpr size_t kMaxJsonLineBytes = size_t{64} << 20;  // a line is held as text and as a JSON value

// The options of mh-prep lm.
struct LmOptions {
  std::string vocabulary_path;
  std::string document = kDocumentUnits[0];
  EncodingThreads threads;
  void describe(Fields& f) {
    f.field(
        "vocab", vocabulary_path,
        "vocabulary made by mh-prep vocab, a SentencePiece model, a tokenizer.json, a checkpoint, or a model folder of "
        "Hugging Face");
    f.field("document", document,
            "unit of text that the end-of-line token follows; blank-line: the lines between blank lines; jsonl: the "
            "string at the key text of the JSON object in each line; all units but line encode the line ends within a "
            "document as text, and need a vocabulary that does so, such as the type byte-bpe or tokenizer-json",
            {std::begin(kDocumentUnits), std::end(kDocumentUnits)});
    f.section("", threads);
  }
};

void make_lm(const PrepArguments& arguments, const LmOptions& options) {
  if (options.vocabulary_path.empty())
    refuse_usage("--vocab", "a vocabulary", "none", "make a vocabulary with mh-prep vocab, and give --vocab FILE");
  refuse_output_onto(arguments, {options.vocabulary_path});
  auto tokenizer = load_tokenizer(options.vocabulary_path);
  const DocumentUnit unit = document_unit(options.document);
  if (unit != DocumentUnit::line && !tokenizer->encodes_line_feeds())
    refuse_usage("--document " + options.document,
                 "a vocabulary that encodes line ends within a document, such as the type byte-bpe or tokenizer-json",
                 "a vocabulary of the type " + tokenizer->type(),
                 "leave --document out, or make a vocabulary with mh-prep vocab --type byte-bpe --size 30000");
  if (tokenizer->takes_any_bytes() && arguments.has_crlf_option)
    refuse_usage("--crlf", "no --crlf with a vocabulary of the type byte, which keeps all bytes",
                 "--crlf " + arguments.crlf_handling, "leave --crlf out");
  if (tokenizer->takes_any_bytes()) warn_compressed_inputs(arguments.inputs);
  const TextBatches::FindSplit find_split = [&](std::string_view t) { return tokenizer->find_split(t); };
  ReadSizes sizes;
  if (unit == DocumentUnit::jsonl) sizes.max_line_bytes = kMaxJsonLineBytes;
  TextBatches text(arguments.inputs, line_ends(arguments, tokenizer->takes_any_bytes()),
                   unit == DocumentUnit::jsonl ? nullptr : find_split, sizes);
  DocumentBatches documents(text, unit, find_split);
  io::ShardHeader header = header_of(*tokenizer);
  header.set_kind(kTextKind);
  header.provenance =
      nlohmann::ordered_json{{"tool", str("mh-prep ", version())},
                             {"inputs", arguments.inputs},
                             {"vocabulary", options.vocabulary_path},
                             {"crlf", tokenizer->takes_any_bytes() ? "keep" : arguments.crlf_handling},
                             {"document", options.document}}
          .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);  // file names may contain any bytes
  LineSummary summary;
  write_shard(arguments, header, [&](io::ShardWriter& writer) {
    const int num_threads = options.threads.num_threads();
    summary = unit == DocumentUnit::line ? encode_lines(text, *tokenizer, num_threads, writer)
                                         : encode_lm_documents(documents, *tokenizer, num_threads, writer);
    if (summary.num_tokens == 0) refuse_empty_inputs(arguments, "text", "name a file with text");
  });
  log_removed_bytes(text.num_normalised_lines(), text.num_byte_order_marks());
  if (documents.num_empty_documents() > 0)
    log_info("dropped " + count_with_commas(documents.num_empty_documents(), "document") + " without text");
  log_info(str(count_with_commas(summary.num_lines, unit == DocumentUnit::line ? "line" : "document"), ", ",
               count_with_commas(summary.num_tokens, "token"), ", ", format_count(summary.num_unknown, "unknown, "),
               format_throughput(summary.num_bytes, summary.seconds), ", --document ", options.document));
}

class LanguageModelPreparation : public PreparationWithOptions<LmOptions, make_lm> {
 public:
  std::string inputs_help() const override { return kTextFilesHelp; }
};

const Registration<LanguageModelPreparation> lm_entry(preparations(), "lm",
                                                      "make a language-model shard: one record per line or document");

// Prints the text as a stream, since a shard may be larger than memory.
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

const Registration<TextLines> text_entry(record_texts(), kTextKind,
                                         "the text, line by line, or documents with an empty line between them");

}  // namespace

}  // namespace mh::text
