#include "io/record_kind.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/text.h"

namespace mh::io {

Registry<RecordKind>& record_kinds() {
  static Registry<RecordKind> registry("kind of records");
  return registry;
}

const RecordKind* record_kind(const std::string& name) {
  static const auto kinds = [] {
    std::map<std::string, std::unique_ptr<RecordKind>> all_kinds;
    for (const std::string& kind : record_kinds().names()) all_kinds[kind] = record_kinds().make(kind, "kind");
    return all_kinds;
  }();
  const auto it = kinds.find(name);
  return it == kinds.end() ? nullptr : it->second.get();
}

std::vector<std::string> record_kind_names() {
  std::vector<std::string> names = record_kinds().names();
  std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return record_kind(a)->list_position() < record_kind(b)->list_position();
  });
  return names;
}

std::string prep_commands_for(const std::string& kind) {
  const RecordKind* entry = record_kind(kind);
  return entry == nullptr ? "mh-prep" : "mh-prep " + join(entry->preparations(), " or mh-prep ");
}

void refuse_unknown_kind(const std::string& kind, const std::string& name) {
  refuse_input(name, "a shard of one of the kinds " + join(record_kind_names(), ", "), "the kind " + kind,
               "make the shard with mh-prep");
}

}  // namespace mh::io
