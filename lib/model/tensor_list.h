// Lists the tensors of every backbone and stage with symbolic shapes, for `mh-train --list tensors` and
// mh-checkpoint(5).
#pragma once

#include <string>
#include <vector>

namespace mh::model {

struct ListedTensor {
  std::string owner;    // "backbone decoder", "mixer mixhead-a"
  std::string name;     // with i and b as indices of layers and bands; of a stage relative to its layer:
                        // ".mixer.matrix"
  std::string shape;    // "(h dk, d)"; a size that an option sets has the name of the option
  std::string setting;  // options that add the tensor or give it this shape; "": the defaults do
};

// Builds many models on the device "meta" and returns their tensors. Each backbone is built with its defaults, with
// each value of each option of [model], with each pair of such values, and with a third value if one of the pair is
// invalid on its own; stages are built in the same way with their own options. So options that add tensors are found
// automatically.
std::vector<ListedTensor> list_tensors();

}  // namespace mh::model
