// The stages of one layer, in the order in which they act.
#pragma once

#include <memory>
#include <string>

#include "attention/options.h"
#include "attention/stage.h"

namespace mh::attention {

// All null in a layer without heads.
struct Stages {
  std::unique_ptr<Pairing> pairing;
  std::unique_ptr<Score> score;
  std::unique_ptr<Normaliser> normaliser;
  std::unique_ptr<Mixer> mixer;
  std::unique_ptr<Combiner> combiner;

  // Calls visit(stage, "mixer", "mixhead-a") for each stage; `options` made them.
  template <class Visit>
  void each(const AttentionOptions& options, const Visit& visit) const {
    if (pairing == nullptr) return;
    visit(*pairing, "pairing", options.pairing);
    visit(*score, "score", options.score);
    visit(*normaliser, "normaliser", options.normaliser);
    visit(*mixer, "mixer", options.mixer);
    visit(*combiner, "combiner", options.combiner);
  }
};

// Makes the stages that the options name. Error(usage) for an unknown name, and for options that make no sense in this
// layer; the latter comes from the stage.
Stages make_stages(const AttentionOptions& options, const Shape& shape);

}  // namespace mh::attention
