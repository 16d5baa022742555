// Assigns a number to each word; equal words have equal numbers for the lifetime of the object.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/word_map.h"

namespace mh::metrics {

class WordIds {
 public:
  uint32_t operator()(std::u32string_view word) {
    const text::WordKey key({reinterpret_cast<const char*>(word.data()), word.size() * sizeof(char32_t)});
    if (const uint32_t* existing_id = ids_.find(key)) return *existing_id;
    const auto id = static_cast<uint32_t>(ids_.size());
    return ids_[key] = id;
  }

 private:
  text::WordMap<uint32_t> ids_;
};

}  // namespace mh::metrics
