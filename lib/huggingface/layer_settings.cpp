#include "huggingface/layer_settings.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/error.h"

namespace mh::huggingface {

namespace {

constexpr std::string_view kPrefix = "attention.", kKindPrefix = "attention.decoder.self.";
// Kinds of attention layers in keys, such as attention.encoder.self.heads.
constexpr std::string_view kKindPrefixes[] = {"attention.decoder.", "attention.encoder."};

bool is_rotary_key(const std::string& key) { return key.starts_with("rotary."); }

bool rotates(const Settings& layer) {
  const auto transform = layer.find("transform");
  return transform != layer.end() &&
         std::find(transform->second.begin(), transform->second.end(), "rotary") != transform->second.end();
}

// Returns whether the settings `base` of all layers allow overrides that give `layer`: overrides can change values, but
// cannot remove a key.
bool can_override(const Settings& base, const Settings& layer) {
  return std::ranges::all_of(base, [&](const auto& setting) {
    return layer.contains(setting.first) || (is_rotary_key(setting.first) && !rotates(layer));
  });
}

}  // namespace

void LayerSettings::add(const Settings& settings) {
  const auto kind = std::ranges::find(kinds, settings);
  kind_of_layer.push_back(static_cast<size_t>(kind - kinds.begin()));
  if (kind == kinds.end()) kinds.push_back(settings);
}

void set_layers(const LayerSettings& layers, Settings& settings) {
  std::vector<size_t> counts(layers.kinds.size());
  for (const size_t kind : layers.kind_of_layer) ++counts[kind];
  size_t base = layers.kinds.size();
  for (size_t kind = 0; kind < layers.kinds.size(); ++kind)
    if ((base == layers.kinds.size() || counts[kind] > counts[base]) &&
        std::ranges::all_of(layers.kinds,
                            [&](const Settings& other) { return can_override(layers.kinds[kind], other); }))
      base = kind;
  if (base == layers.kinds.size()) throw std::logic_error("no kind of layers has the keys of all kinds only");
  for (const auto& [key, value] : layers.kinds[base]) settings[std::string(kPrefix) + key] = value;
  for (size_t layer = 0; layer < layers.kind_of_layer.size(); ++layer) {
    if (layers.kind_of_layer[layer] == base) continue;
    for (const auto& [key, value] : layers.of_layer(layer))
      if (setting_or(layers.kinds[base], key, nullptr) != value) settings[str(kKindPrefix, layer, ".", key)] = value;
  }
}

LayerSettings layers_of(const Settings& settings, size_t num_layers) {
  Settings base;
  std::map<std::string, Settings> overrides;  // by the number of the layer
  for (const auto& [key, value] : settings) {
    if (!key.starts_with(kPrefix)) continue;
    if (std::ranges::none_of(kKindPrefixes, [&](std::string_view prefix) { return key.starts_with(prefix); }))
      base[key.substr(kPrefix.size())] = value;
  }
  for (const auto& [key, value] : settings) {
    if (!key.starts_with(kKindPrefix)) continue;
    const std::string name = key.substr(kKindPrefix.size());
    const size_t dot = name.find('.');
    if (name.find_first_not_of("0123456789") == dot && dot != std::string::npos)
      overrides[name.substr(0, dot)][name.substr(dot + 1)] = value;
    else base[name] = value;
  }
  LayerSettings layers;
  for (size_t layer = 0; layer < num_layers; ++layer) {
    Settings layer_settings = base;
    if (const auto it = overrides.find(std::to_string(layer)); it != overrides.end())
      for (const auto& [key, value] : it->second) layer_settings[key] = value;
    layers.add(layer_settings);
  }
  return layers;
}

}  // namespace mh::huggingface
