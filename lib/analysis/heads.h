// Identifies a head of a model by its kind of attention, layer index and head index, both counted from 0. The layer of
// a parameter is read from the parameter's name; the names of parameters are a stable interface.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/head_pair.h"
#include "attention/stage.h"
#include "nn/parameter.h"

namespace mh::analysis {

// A selection of kinds of attention; empty: all kinds.
using Kinds = std::set<AttentionKind>;
inline bool contains(const Kinds& kinds, AttentionKind kind) { return kinds.empty() || kinds.count(kind) > 0; }
// Returns the kinds of these names. Throws Error(usage) that names the option `where` for unknown names and for kinds
// that the model lacks.
Kinds kinds_named(const std::vector<std::string>& names, const nn::ParameterList& parameters, const std::string& where);

// Returns the prefix of the names of an attention layer's parameters, such as "decoder.layers.3.self".
std::string prefix_of(AttentionKind kind, int64_t layer);

struct LayerId {
  AttentionKind kind;
  int64_t layer;
};
// Returns the attention layer that a parameter of this name belongs to; empty if there is none.
std::optional<LayerId> layer_of(const std::string& parameter);

// Returns the number of value heads of each layer, by kind; 0 if all heads of the layer were pruned.
std::map<AttentionKind, std::vector<int64_t>> head_counts_of(const nn::ParameterList& parameters);

// Returns the names of the kinds of attention as text for messages: "decoder.self, decoder.cross".
std::string names_of(const std::vector<AttentionKind>& kinds);
std::string names_of(const std::map<AttentionKind, std::vector<int64_t>>& head_counts);

using HeadSet = std::map<AttentionKind, std::set<Head>>;

// Parses heads from a command line: "0:1" is head 1 of layer 0; with several `kinds`, "decoder.self:0:1". Throws
// Error(usage) that names the option `where` for invalid or duplicate heads. `has_kind_option`: whether --kind is on
// the command line, which may exclude kinds of the model from `kinds`.
HeadSet parse_heads(const std::vector<std::string>& texts, const std::vector<AttentionKind>& kinds,
                    const std::string& where, bool has_kind_option = false);

// Parses a percentage: "30%" gives 0.3. Throws Error(usage) that names the option `where` for any other text and for
// percentages outside 0 to 100.
double parse_fraction(const std::string& text, const std::string& where);

}  // namespace mh::analysis
