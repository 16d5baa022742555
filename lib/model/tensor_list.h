// The tensors of every backbone and stage, with shapes in symbols: for `mh-train --list tensors` and mhc(5).
#pragma once

#include <string>
#include <vector>

namespace mh::model {

struct ListedTensor {
  std::string owner;    // "backbone decoder", "mixer mixhead-a"
  std::string name;     // layers and bands as i and b; of a stage without the name of its layer: ".mixer.matrix"
  std::string shape;    // "(h dk, d)": a size that an option sets has the name of the option
  std::string setting;  // options that add the tensor, or give it this shape; "": the defaults do
};

// Builds models on the device "meta": each backbone with its defaults, with every choice of every option of [model],
// with every two of those choices, and with a third where one of two needs the other; each stage in the same way with
// its own options. So an option that adds a tensor is found without being named here.
std::vector<ListedTensor> list_tensors();

}  // namespace mh::model
