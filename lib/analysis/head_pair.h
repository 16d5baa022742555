// Names of heads and of pairs of heads. Does not use LibTorch, so that the fuzz targets parse the names without it.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "attention/attention_kind.h"

namespace mh::analysis {

using attention::AttentionKind;

struct Head {
  int64_t layer = 0;
  int64_t head = 0;
  bool operator==(const Head& o) const { return layer == o.layer && head == o.head; }
  bool operator<(const Head& o) const { return std::tie(layer, head) < std::tie(o.layer, o.head); }
};

// Returns the kind of attention called `name`, such as "decoder.self". Throws Error(usage) that names the option
// `where` for other names.
AttentionKind kind_named(const std::string& name, const std::string& where);

struct HeadPair {
  AttentionKind kind = AttentionKind::decoder_self;
  Head a, b;
};
std::string to_string(const HeadPair& pair);  // "decoder.self:1.0-5.3": head 0 of layer 1, head 3 of layer 5
std::vector<std::string> to_strings(const std::vector<HeadPair>& pairs);
// Parses the format of to_string(). Throws Error(usage) that names the option `where` for any other text.
HeadPair parse_pair(const std::string& text, const std::string& where);

}  // namespace mh::analysis
