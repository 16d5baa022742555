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

// Returns the tensors of all backbones and attention stages. Finds the options that add tensors by building many models
// on the device "meta": each backbone with its defaults, with each change of one option of [model], and with each pair
// of changes; if one change of a pair is invalid without the other, also with each third change. A change sets a
// true/false option or an option with named values to a value other than its default, or an integer or a list of
// cutoffs to one fixed value. Each attention stage is built in the same way, with changes of the options of the stage.
std::vector<ListedTensor> list_tensors();

}  // namespace mh::model
