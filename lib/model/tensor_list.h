// Lists the tensors of every backbone and attention stage with symbolic shapes, for `mh-train --list tensors` and
// mh-checkpoint(5).
#pragma once

#include <string>
#include <vector>

namespace mh::model {

struct ListedTensor {
  std::string owner;  // backbone or stage: "backbone decoder", "mixer mixhead-a"
  std::string name;   // name with i and b as the indices of layers and bands; for tensors of stages, the part after the
                      // name of the attention layer: ".mixer.matrix"
  std::string shape;  // symbolic shape: "(h dk, d)"; a size that an option sets is shown as the name of the option
  std::string setting;  // options with which the tensor exists in this shape; "": the defaults
};

// Returns the tensors of all backbones and attention stages. Builds many models on the device "meta": each backbone
// with its defaults, with each value of each option of [model], with each pair of such values, and, if one value of the
// pair is invalid without the other, with a third value; each attention stage likewise, with the options of the stage.
// So options that add tensors need not be listed by hand.
std::vector<ListedTensor> list_tensors();

}  // namespace mh::model
