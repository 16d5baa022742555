#include "train/procedure.h"

namespace mh::train {

Registry<Procedure>& procedures() {
  static Registry<Procedure> registry("procedure");
  return registry;
}

}  // namespace mh::train
