// The heads of a model by kind, layer and number, all from 0; found by the names of parameters, which are an interface.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "attention/stage.h"
#include "model/parameter.h"

namespace mh::analysis {

using attention::Kind;

struct Head {
  int64_t layer = 0;
  int64_t head = 0;
  bool operator==(const Head& o) const { return layer == o.layer && head == o.head; }
  bool operator<(const Head& o) const { return std::tie(layer, head) < std::tie(o.layer, o.head); }
};

// "decoder.self". Error(usage), about the option `where`, for no kind.
Kind kind_named(const std::string& name, const std::string& where);

// What the parameters of an attention layer begin with: "decoder.layers.3.self".
std::string prefix_of(Kind kind, int64_t layer);

// The attention layer that a parameter of this name belongs to, or none.
struct LayerName {
  Kind kind;
  int64_t layer;
};
std::optional<LayerName> layer_of(const std::string& parameter);

// Of each kind that the model has: how many heads each layer has, those that have values; 0 where all are lost.
std::map<Kind, std::vector<int64_t>> heads_of(const model::ParameterList& parameters);

}  // namespace mh::analysis
