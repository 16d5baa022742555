// The registries of stage implementations.
#include "attention/stage.h"

namespace mh::attention {

// Each registry is a static variable of its function, so that it is constructed before the static objects that register
// stages in it.
Registry<StageFactory<Transform>>& transforms() {
  static Registry<StageFactory<Transform>> registry("transform");
  return registry;
}
Registry<StageFactory<Pairing>>& pairings() {
  static Registry<StageFactory<Pairing>> registry("pairing");
  return registry;
}
Registry<StageFactory<Score>>& scores() {
  static Registry<StageFactory<Score>> registry("score");
  return registry;
}
Registry<StageFactory<PositionBiasStage>>& position_biases() {
  static Registry<StageFactory<PositionBiasStage>> registry("position bias");
  return registry;
}
Registry<StageFactory<Normaliser>>& normalisers() {
  static Registry<StageFactory<Normaliser>> registry("normaliser");
  return registry;
}
Registry<StageFactory<Mixer>>& mixers() {
  static Registry<StageFactory<Mixer>> registry("mixer");
  return registry;
}
Registry<StageFactory<Combiner>>& combiners() {
  static Registry<StageFactory<Combiner>> registry("combiner");
  return registry;
}

}  // namespace mh::attention
