// Settings of attention that differ between the layers of a model, such as a window in some layers. The multihead
// configuration has one value for all layers, attention.window, and overrides of single layers,
// attention.decoder.self.3.window.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "huggingface/architecture.h"

namespace mh::huggingface {

// The settings of all layers. Most models have one or two kinds of layers, so settings are stored once for each kind.
struct LayerSettings {
  std::vector<Settings> kinds;        // settings by key without "attention.", such as "window"
  std::vector<size_t> kind_of_layer;  // index in `kinds` of each layer's settings

  const Settings& of_layer(size_t layer) const { return kinds.at(kind_of_layer.at(layer)); }
  // Appends a layer. Kinds of equal settings are stored once.
  void add(const Settings& settings);
};

// Returns the number of layers of the decoder, or of the encoder of a model without a decoder.
size_t num_layers_of(const Settings& settings);
// Adds the settings of the layers to `settings`: the settings of one kind of layers, in general the most frequent, as
// settings of all layers, and the differences of the other layers as overrides. An override cannot remove a setting, so
// only settings that all kinds have become settings of all layers; a layer without the transform "rotary" ignores the
// settings of rotary positions. `kind_name`: kind of the attention layers in keys.
void set_layers(const LayerSettings& layers, Settings& settings, const std::string& kind_name = "decoder.self");
// Returns the settings of each of the `num_layers` layers, overrides applied: the inverse of set_layers().
LayerSettings layers_of(const Settings& settings, size_t num_layers, const std::string& kind_name = "decoder.self");

}  // namespace mh::huggingface
