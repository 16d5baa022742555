// The states of procedures, which a training state contains as JSON text: parsing and writing. Does not use LibTorch,
// so that a fuzz target tests the parsers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/head_pair.h"

namespace mh::train {

struct SkipRetainState {
  bool has_stalled = false;  // whether the patience ended phase 1 (skip_retain.h)
};

struct HeadRotationState {
  // Last epoch that has begun, and last epoch before which heads were swapped; counted from 1; 0: none.
  int64_t last_begun_epoch = 0, swap_epoch = 0;
  // Pairs that are swapped now, and pairs to swap before the next epoch.
  std::vector<analysis::HeadPair> swapped_pairs, next_pairs;
};

std::string to_json(const SkipRetainState& state);
std::string to_json(const HeadRotationState& state);
// Parse the JSON text of to_json(). Throw Error(input) for any other text.
SkipRetainState parse_skip_retain_state(const std::string& json);
HeadRotationState parse_head_rotation_state(const std::string& json);

}  // namespace mh::train
