#include "io/record_kind.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "io/shard.h"

namespace mh::io {

const std::vector<RecordKind>& record_kinds() {
  static const auto any_length = [](size_t, uint64_t, uint64_t) { return true; };
  static const std::vector<RecordKind> kinds{
      {.name = kTextKind,
       .preparations = {"lm"},
       .field_names = {"tokens"},
       .num_token_fields = 1,
       .length_rule = "lines",
       .meaning = "A line of text, or a document.",
       .allows_length = any_length,
       .allows_any_tokens = true},
      {.name = kPairsKind,
       .preparations = {"translation"},
       .field_names = {"source", "target"},
       .num_token_fields = 2,
       .length_rule = "pairs whose source and target each have at least an end-of-line token",
       .meaning = "A line and its translation.",
       .allows_length = [](size_t, uint64_t length, uint64_t) { return length > 0; },
       .ends_with_end_of_line = true},
      {.name = kDocumentsKind,
       .preparations = {"mlm"},
       .field_names = {"sentence"},
       .num_token_fields = 1,
       .length_rule = "documents of at least one sentence, each followed by an empty sequence",
       .meaning = "The tokens of a sentence. Each document has at least one sentence, and an empty "
                  "sequence follows the last sentence of a document.",
       .allows_length = [](size_t, uint64_t length,
                           uint64_t previous_length) { return length > 0 || previous_length > 0; },
       .ends_with_empty_sequence = true},
      {.name = kExamplesKind,
       .preparations = {"glue", "examples"},
       .field_names = {"first", "second", "label"},
       .num_token_fields = 2,
       .length_rule = "examples whose label is empty or has one number",
       .meaning =
           "The fields first and second contain the tokens of one sentence each; second is empty if the example has "
           "only one sentence. The field label contains one number, or none if the label is not known. The header key "
           "task is an object with the keys name; sentences (1 or 2); labels (the names of the classes 0, 1, ...) or "
           "number (the lowest and the highest number; label is then in thousandths); metrics (one or more of "
           "accuracy, f1 and matthews, or of pearson and spearman); and file (the name of the file of predictions).",
       .allows_length = [](size_t field, uint64_t length, uint64_t) { return field < 2 || length <= 1; }},
      {.name = kQuestionsKind,
       .preparations = {"squad"},
       .field_names = {"question", "context", "begins", "ends", "text", "about"},
       .num_token_fields = 2,
       .length_rule = "questions",
       .meaning =
           "A question about a paragraph. The fields question and context contain the tokens of the question "
           "and of the paragraph, which has at least one token. The fields begins and ends contain the byte "
           "offsets in the paragraph where each of its tokens begins and ends, in ascending order, possibly "
           "with equal offsets. The field text contains the bytes of the paragraph in UTF-8, one number for "
           "each byte. The field about contains the bytes of a JSON object with the keys id; impossible "
           "(whether the paragraph has no answer); and answers (a list of objects with text and, if the "
           "paragraph contains this text, begin and end in bytes; empty exactly if the question is "
           "unanswerable). The header key task is an object with the key unanswerable (whether questions may be "
           "unanswerable and are scored as in SQuAD 2.0). The trailer key text_bytes counts each paragraph once.",
       .allows_length = any_length},
  };
  return kinds;
}

const RecordKind* record_kind(const std::string& name) {
  const auto it = std::ranges::find(record_kinds(), name, &RecordKind::name);
  return it == record_kinds().end() ? nullptr : &*it;
}

std::string prep_commands_for(const std::string& kind) {
  const RecordKind* entry = record_kind(kind);
  return entry == nullptr ? "mh-prep" : "mh-prep " + join(entry->preparations, " or mh-prep ");
}

void refuse_unknown_kind(const std::string& kind, const std::string& name) {
  std::vector<std::string> names;
  for (const RecordKind& entry : record_kinds()) names.push_back(entry.name);
  refuse_input(name, "a shard of one of the kinds " + join(names, ", "), "the kind " + kind,
               "make the shard with mh-prep");
}

}  // namespace mh::io
