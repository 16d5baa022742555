#include "huggingface/layer_settings.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace mh::huggingface {

namespace {

constexpr std::string_view kPrefix = "attention.";
// Kinds of attention layers in keys, such as attention.encoder.self.heads.
constexpr std::string_view kKindPrefixes[] = {"attention.decoder.", "attention.encoder."};

bool is_rotary_key(const std::string& key) { return key.starts_with("rotary."); }

bool rotates(const Settings& layer) {
  const auto transform = layer.find("transform");
  return transform != layer.end() &&
         std::find(transform->second.begin(), transform->second.end(), "rotary") != transform->second.end();
}

// Returns whether a layer with the settings `layer` may inherit the setting with this key: an override can change a
// value, but cannot remove a setting.
bool may_inherit(const Settings& layer, const std::string& key) {
  return layer.contains(key) || (is_rotary_key(key) && !rotates(layer));
}

}  // namespace

size_t num_layers_of(const Settings& settings) { return settings.at("model.layers").get<size_t>(); }

void LayerSettings::add(const Settings& settings) {
  const auto kind = std::ranges::find(kinds, settings);
  kind_of_layer.push_back(static_cast<size_t>(kind - kinds.begin()));
  if (kind == kinds.end()) kinds.push_back(settings);
}

void set_layers(const LayerSettings& layers, Settings& settings, const std::string& kind_name) {
  std::vector<size_t> counts(layers.kinds.size());
  for (const size_t kind : layers.kind_of_layer) ++counts[kind];
  // Returns those settings of `kind` that all layers may inherit.
  const auto inheritable_settings_of = [&](const Settings& kind) {
    Settings inheritable_settings = kind;
    std::erase_if(inheritable_settings, [&](const auto& setting) {
      return !std::ranges::all_of(layers.kinds,
                                  [&](const Settings& layer) { return may_inherit(layer, setting.first); });
    });
    return inheritable_settings;
  };
  // Chooses a kind all of whose settings all layers may inherit, if there is one; among such kinds, or else among all
  // kinds, the kind of most layers.
  Settings base;
  std::pair<bool, size_t> base_rank;
  for (size_t kind = 0; kind < layers.kinds.size(); ++kind) {
    Settings candidate = inheritable_settings_of(layers.kinds[kind]);
    const std::pair rank{candidate.size() == layers.kinds[kind].size(), counts[kind]};
    if (rank <= base_rank) continue;
    base_rank = rank;
    base = std::move(candidate);
  }
  for (const auto& [key, value] : base) settings[std::string(kPrefix) + key] = value;
  for (size_t layer = 0; layer < layers.kind_of_layer.size(); ++layer)
    for (const auto& [key, value] : layers.of_layer(layer))
      if (setting_or(base, key, nullptr) != value) settings[str(kPrefix, kind_name, ".", layer, ".", key)] = value;
}

LayerSettings layers_of(const Settings& settings, size_t num_layers, const std::string& kind_name) {
  const std::string kind_prefix = str(kPrefix, kind_name, ".");
  Settings base;
  std::map<std::string, Settings> overrides;  // by the number of the layer
  for (const auto& [key, value] : settings) {
    if (!key.starts_with(kPrefix)) continue;
    // clang 14 cannot capture a structured binding, so the lambda captures a reference to it.
    if (std::ranges::none_of(kKindPrefixes,
                             [&name = key](std::string_view prefix) { return name.starts_with(prefix); }))
      base[key.substr(kPrefix.size())] = value;
  }
  for (const auto& [key, value] : settings) {
    if (!key.starts_with(kind_prefix)) continue;
    const std::string name = key.substr(kind_prefix.size());
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
