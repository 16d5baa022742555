#include "io/record_kind.h"

#include <algorithm>

#include "io/shard.h"

namespace mh::io {

const RecordKind* record_kind(const std::string& name) {
  static const auto any = [](size_t, uint64_t, uint64_t) { return true; };
  static const std::vector<RecordKind> kinds{
      {kTextKind, {"tokens"}, 1, "lines", any},
      {kPairsKind,
       {"source", "target"},
       2,
       "pairs whose source and target each have at least an end-of-line token",
       [](size_t, uint64_t length, uint64_t) { return length > 0; }},
      {kDocumentsKind,
       {"sentence"},
       1,
       "documents of at least one sentence, each followed by an empty sequence",
       [](size_t, uint64_t length, uint64_t previous_length) { return length > 0 || previous_length > 0; },
       true},
      {kExamplesKind,
       {"first", "second", "label"},
       2,
       "examples whose label is empty or has one number",
       [](size_t field, uint64_t length, uint64_t) { return field < 2 || length <= 1; }},
      {kQuestionsKind, {"question", "context", "begins", "ends", "text", "about"}, 2, "questions", any},
  };
  const auto it = std::find_if(kinds.begin(), kinds.end(), [&](const RecordKind& k) { return k.name == name; });
  return it == kinds.end() ? nullptr : &*it;
}

}  // namespace mh::io
