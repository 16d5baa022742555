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

// Returns the tensors of all backbones and attention stages, without a hand-written list of the options that add
// tensors: builds many models on the device "meta". Each backbone is built with its defaults, with each other value of
// true/false options and options with named values of [model] and one other value of integers and cutoffs, and with
// each pair of such values; if one value of a pair is invalid without the other, also with each third value. Each
// attention stage is built in the same way, with the options of the stage.
std::vector<ListedTensor> list_tensors();

}  // namespace mh::model
