// The records of the task "language-modelling": each line of a text, or each document, which ends in the end-of-line
// token. mh-prep lm encodes them with several threads, in the order of the lines or documents.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/shard.h"
#include "text/text_batches.h"
#include "text/tokenizer.h"

namespace mh::text {

constexpr const char* kTextKind = "language-model";  // the kind of the records (io/record_kind.h)

// The unit of text that is a document: a line; the lines between two blank lines; a file; the string at the key "text"
// of the JSON object in each line. A blank line is empty or has only white space. The end of a file ends a document.
enum class DocumentUnit { line, blank_line, file, jsonl };
// The value of --document for each unit, in the order of DocumentUnit.
constexpr const char* kDocumentUnits[] = {"line", "blank-line", "file", "jsonl"};
// Returns the unit whose name is `name`, one of kDocumentUnits.
DocumentUnit document_unit(const std::string& name);

// Reads lines and returns documents, in constant memory apart from the lines of `jsonl`. The lines of a document are
// joined by line feeds; the line end of its last line is not text. Documents without text are skipped and counted.
class DocumentBatches {
 public:
  // `lines`: for `jsonl`, batches without find_split, so that lines are whole; must outlive the object. `unit`: with
  // DocumentUnit::line, next() must not be called. `find_split`: Tokenizer::find_split of a tokenizer that encodes line
  // feeds; a document longer than `batch_bytes` is divided where it allows.
  DocumentBatches(TextBatches& lines, DocumentUnit unit, TextBatches::FindSplit find_split, ReadSizes sizes = {});
  // Reads the next batch; a segment with `ends_line` ends a document. `input_bytes` counts the bytes read from files.
  // Returns false at the end of the last file. Throws Error(input) for text that is not UTF-8 or has NUL bytes, for a
  // line of `jsonl` that is not a JSON object with a string "text", and for sizes.max_line_bytes of a document without
  // a position to split it.
  bool next(TextBatch& batch);
  uint64_t expected_bytes() const { return lines_.expected_bytes(); }
  // Returns the size of the text of all documents so far, and a line end for each, for bits per byte.
  uint64_t text_bytes() const { return text_bytes_; }
  uint64_t num_empty_documents() const { return num_empty_documents_; }

 private:
  // Adds a segment of a line of `line_batch_` to the pending document, or ends the pending document.
  void add_line_segment(const TextBatch::Segment& segment, TextBatch& batch);
  // Appends a segment with the first `num_bytes` bytes of the pending text to `batch`.
  void add_segment(TextBatch& batch, size_t num_bytes, bool ends_document);
  void end_document(TextBatch& batch);

  TextBatches& lines_;
  const DocumentUnit unit_;
  const TextBatches::FindSplit find_split_;
  const ReadSizes sizes_;
  TextBatch line_batch_;
  std::string pending_text_;        // text of the current document that is not yet in a batch
  bool has_line_ = false;           // the current document has a line
  bool has_segment_ = false;        // a part of the current document is in a batch
  bool ends_previous_line_ = true;  // the last segment read ended its line
  uint64_t text_bytes_ = 0, num_empty_documents_ = 0;
};

struct LineSummary {
  uint64_t num_lines = 0;  // number of lines, or of documents
  uint64_t num_tokens = 0;
  uint64_t num_unknown = 0;  // number of unknown tokens among `num_tokens`
  uint64_t num_bytes = 0;    // bytes read
  double seconds = 0;
};

// Writes every line as a record that ends in the end-of-line token (byte vocabularies: only if the line ends in a line
// feed, so that no byte is added). Memory use is a few batches per thread, independent of the length of the text.
LineSummary encode_lines(TextBatches& text, const Tokenizer& tokenizer, int num_threads, io::ShardWriter& writer);
// Writes every document as a record that ends in the end-of-line token. Requires tokenizer.encodes_line_feeds(). Memory
// use is as for encode_lines().
LineSummary encode_lm_documents(DocumentBatches& documents, const Tokenizer& tokenizer, int num_threads,
                                io::ShardWriter& writer);

// Returns whether the records of a language-model shard are documents rather than lines. Shards of earlier versions do
// not state the unit and have lines.
bool has_documents(const io::ShardHeader& header);

}  // namespace mh::text
