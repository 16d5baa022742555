#include "text/records/language_modelling/document_batches.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/json_types.h"
#include "base/text.h"
#include "base/unicode.h"
#include "text/text_bytes.h"

namespace mh::text {

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

}  // namespace mh::text
