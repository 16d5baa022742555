// The heads of a model by kind, layer and number, all from 0; found by the names of parameters, which are an interface.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "attention/stage.h"
#include "nn/parameter.h"

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

// Some kinds, in their order; none: all.
using Kinds = std::set<Kind>;
inline bool among(const Kinds& kinds, Kind kind) { return kinds.empty() || kinds.count(kind) > 0; }
// Those of these names. Error(usage), about the option `where`, for no kind, and for one that the model lacks.
Kinds kinds_named(const std::vector<std::string>& names, const nn::ParameterList& parameters, const std::string& where);

// What the parameters of an attention layer begin with: "decoder.layers.3.self".
std::string prefix_of(Kind kind, int64_t layer);

// The attention layer that a parameter of this name belongs to, or none.
struct LayerName {
  Kind kind;
  int64_t layer;
};
std::optional<LayerName> layer_of(const std::string& parameter);

// Of each kind that the model has: how many heads each layer has, those that have values; 0 where all are lost.
std::map<Kind, std::vector<int64_t>> heads_of(const nn::ParameterList& parameters);

// Kinds as messages name them: "decoder.self, decoder.cross".
std::string names_of(const std::vector<Kind>& kinds);
std::string names_of(const std::map<Kind, std::vector<int64_t>>& heads);

using HeadSet = std::map<Kind, std::set<Head>>;

// Heads as on a command line: "0:1", head 1 of layer 0, or "decoder.self:0:1" where there are several kinds.
// Error(usage), about the option `where`, for anything else, and for one twice.
HeadSet parse_heads(const std::vector<std::string>& texts, const std::vector<Kind>& kinds, const std::string& where);

// "30%" -> 0.3. Error(usage) for anything else, and for what is not between 0 and 100.
double parse_fraction(const std::string& text, const std::string& where);

}  // namespace mh::analysis
