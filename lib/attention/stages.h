// The stages of one layer, in the order in which they act.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention/options.h"
#include "attention/stage.h"

namespace mh::attention {

// The stages of a layer; a layer without heads has no stages.
struct Stages {
  std::vector<std::unique_ptr<Transform>> transforms;
  std::unique_ptr<Pairing> pairing;
  std::unique_ptr<Score> score;
  std::unique_ptr<PositionBiasStage> position_bias;
  std::unique_ptr<Normaliser> normaliser;
  std::unique_ptr<Mixer> mixer;
  std::vector<std::unique_ptr<Combiner>> combiners;

  // Returns whether a combiner mixes heads, which only the last combiner may do.
  bool mixes_head_outputs() const { return !combiners.empty() && combiners.back()->mixes_heads(); }

  // Calls visit(stage, type, name) for each stage in order, for example visit(*mixer, "mixer", "mixhead-a"), with the
  // names in `options`.
  template <class Visit>
  void for_each_stage(const AttentionOptions& options, const Visit& visit) const {
    if (pairing == nullptr) return;
    for (size_t i = 0; i < transforms.size(); ++i) visit(*transforms[i], "transform", options.transform[i]);
    visit(*pairing, "pairing", options.pairing);
    visit(*score, "score", options.score);
    visit(*position_bias, "position_bias", options.position_bias);
    visit(*normaliser, "normaliser", options.normaliser);
    visit(*mixer, "mixer", options.mixer);
    for (size_t i = 0; i < combiners.size(); ++i) visit(*combiners[i], "combiner", options.combiner[i]);
  }
};

// Creates the stages that `options` names. Throws Error(usage) for an unknown name, and for stage options that are
// invalid in this layer.
Stages make_stages(const AttentionOptions& options, const LayerSpec& layer_spec);

}  // namespace mh::attention
