// Converts settings between config.json and the multihead configuration.
#include "huggingface/architecture.h"

#include <toml++/toml.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace mh::huggingface {

namespace {

// Returns the strings and numbers of an array; skips elements of other types, which no architecture needs.
Json list_of(const toml::array& elements) {
  Json list = Json::array();
  for (const toml::node& element : elements)
    if (const auto text = element.value_exact<std::string>()) list.push_back(*text);
    else if (const auto integer = element.value_exact<int64_t>()) list.push_back(*integer);
    else if (const auto number = element.value_exact<double>()) list.push_back(*number);
  return list;
}

void flatten(const toml::table& table, const std::string& prefix, Settings& settings) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const toml::table* subtable = node.as_table()) flatten(*subtable, name + ".", settings);
    else if (const auto flag = node.value_exact<bool>()) settings[name] = *flag;
    else if (const auto integer = node.value_exact<int64_t>()) settings[name] = *integer;
    else if (const auto number = node.value_exact<double>()) settings[name] = *number;
    else if (const auto text = node.value_exact<std::string>()) settings[name] = *text;
    else if (const toml::array* elements = node.as_array()) settings[name] = list_of(*elements);
  }
}

// Names of activations in transformers and in multihead. If transformers has several names for a multihead name,
// conversion::write_folder() uses the first one.
constexpr std::pair<const char*, const char*> kActivations[] = {
    {"gelu", "gelu"}, {"gelu_new", "gelu-tanh"}, {"gelu_pytorch_tanh", "gelu-tanh"},
    {"relu", "relu"}, {"silu", "silu"},          {"swish", "silu"}};

}  // namespace

Registry<Architecture>& architectures() {
  static Registry<Architecture> registry("architecture");
  return registry;
}

Settings settings_of(const std::string& toml) {
  Settings settings;
  flatten(toml::parse(toml), "", settings);
  return settings;
}

std::string toml_of(const Settings& settings) {
  std::string text;
  for (const auto& [key, value] : settings) text += key + " = " + value.dump() + "\n";
  return text;
}

std::string name_in_layer(const std::string& tensor_name, const std::string& layer_prefix) {
  if (!tensor_name.starts_with(layer_prefix)) return "";
  const size_t begin = layer_prefix.size(), end = tensor_name.find_first_not_of("0123456789", begin);
  const bool has_number = end != std::string::npos && end > begin && (tensor_name[begin] != '0' || end == begin + 1);
  return has_number && tensor_name[end] == '.' ? tensor_name.substr(end + 1) : "";
}

Json setting_or(const Settings& settings, const std::string& key, const Json& default_value) {
  const auto setting = settings.find(key);
  return setting == settings.end() ? default_value : setting->second;
}

int64_t head_size_of(const Settings& settings) {
  const auto head_size = setting_or(settings, "attention.head_size", 0).get<int64_t>();
  if (head_size > 0) return head_size;
  return settings.at("model.width").get<int64_t>() /
         std::max<int64_t>(1, settings.at("attention.heads").get<int64_t>());
}

Json activation_of(const JsonConfig& config, const char* key, const char* default_value) {
  std::vector<Json> known_names;
  for (const auto& [huggingface_name, activation] : kActivations) known_names.emplace_back(huggingface_name);
  config.require(key, default_value, known_names,
                 "use a model with one of these activations, the only ones that multihead supports");
  return multihead_activation(config.value(key, default_value));
}

Json multihead_activation(const std::string& huggingface_name) {
  for (const auto& [name, activation] : kActivations)
    if (huggingface_name == name) return activation;
  return nullptr;
}

std::string huggingface_activation(const Json& activation) {
  for (const auto& [huggingface_name, name] : kActivations)
    if (activation == name) return huggingface_name;
  return "";
}

void require_size(const Json& value, const std::string& where, int64_t max_value) {
  if (value < 1 || value > max_value)
    refuse_input(where, str("a whole number from 1 to ", max_value), io::json_excerpt(value),
                 "copy config.json from the source of the model");
}

void read_keys(const std::vector<SettingPair>& pairs, const JsonConfig& config, Settings& settings) {
  for (const SettingPair& pair : pairs) {
    Json value = config.value(pair.huggingface_key, pair.default_value);
    if (pair.default_value.is_number_float()) value = value.get<double>();
    if (pair.default_value.is_number_integer())
      require_size(value, config.path() + ": " + pair.huggingface_key, pair.max_value);
    for (const char* name : pair.multihead_keys) settings[name] = value;
  }
}

void set_keys(const std::vector<SettingPair>& pairs, const Settings& settings, Json& config) {
  for (const SettingPair& pair : pairs) config[pair.huggingface_key] = settings.at(pair.multihead_keys.front());
}

std::string canonical_name(const std::string& tensor_name, const std::string& prefix) {
  std::string name = tensor_name.starts_with(prefix) ? tensor_name.substr(prefix.size()) : tensor_name;
  for (const auto& [old_ending, new_ending] :
       {std::pair<std::string, std::string>{".gamma", ".weight"}, {".beta", ".bias"}})
    if (name.ends_with(old_ending)) name.replace(name.size() - old_ending.size(), old_ending.size(), new_ending);
  return name;
}

}  // namespace mh::huggingface
