// Lists the registered attention stages with their options and properties, for `mh-train --list stages` and
// mh-config(5).
#pragma once

#include <string>
#include <vector>

namespace mh::model {

struct ListedStage {
  // "transform", "pairing", "score", "position_bias", "normaliser", "mixer" or "combiner"
  std::string stage;
  std::string name;                  // name in the configuration, such as "mixhead-a"
  std::string help;                  // help text of the registry
  std::vector<std::string> options;  // "KEY=DEFAULT" for each option of the stage
  // Properties of a layer with this stage, default options and the default other stages:
  bool mixes_heads = false;  // the mixer or the combiner mixes heads (AttentionLayer::has_separate_heads())
  bool is_foldable = false;  // the combiner folds into the output projection (AttentionLayer::as_linear_map())
};

// Returns all transforms, pairings, scores, position biases, normalisers, mixers and combiners, in this order, and
// within each of these types in the order of their names. Builds one model for each stage, on the device "meta".
std::vector<ListedStage> list_stages();

}  // namespace mh::model
