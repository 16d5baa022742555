#include "analysis/head_pair.h"

#include <regex>

#include "base/error.h"
#include "base/text.h"

namespace mh::analysis {

AttentionKind kind_named(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (AttentionKind kind : attention::kAttentionKinds) {
    if (name == name_of(kind)) return kind;
    names.emplace_back(name_of(kind));
  }
  refuse_usage(where, str("a kind of attention, one of: ", join(names, ", ")), str("'", name, "'"),
               did_you_mean(name, names, "use one of these kinds"));
}

std::string to_string(const HeadPair& pair) {
  return str(name_of(pair.kind), ":", pair.a.layer, ".", pair.a.head, "-", pair.b.layer, ".", pair.b.head);
}

std::vector<std::string> to_strings(const std::vector<HeadPair>& pairs) {
  std::vector<std::string> texts;
  texts.reserve(pairs.size());
  for (const HeadPair& pair : pairs) texts.push_back(to_string(pair));
  return texts;
}

HeadPair parse_pair(const std::string& text, const std::string& where) {
  static const std::regex pattern(R"(([a-z.]+):(\d{1,9})\.(\d{1,9})-(\d{1,9})\.(\d{1,9}))");
  constexpr size_t kMaxBytes = 100;  // a match of the pattern recurses once per byte, and the text may come from a file
  std::smatch match;
  if (text.size() > kMaxBytes || !std::regex_match(text, match, pattern))
    refuse_usage(where, "KIND:LAYER.HEAD-LAYER.HEAD, counted from 0", quote_start(text),
                 "write a pair such as decoder.self:1.0-5.3");
  auto number = [&](size_t i) { return std::stoll(match[i]); };
  return {kind_named(match[1], where), {number(2), number(3)}, {number(4), number(5)}};
}

}  // namespace mh::analysis
