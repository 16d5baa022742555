// Lists the tensors of all backbones and attention stages: builds models with combinations of option values and
// compares their tensors.
#include "model/tensor_list.h"

#include <algorithm>
#include <array>
#include <optional>
#include <regex>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "model/model_config.h"

namespace mh::model {

namespace {

using Settings = std::vector<std::string>;                        // assignments in the syntax of --set
using Symbols = std::vector<std::pair<int64_t, std::string>>;     // axis sizes and their symbols
using Shapes = std::vector<std::pair<std::string, std::string>>;  // names and symbolic shapes of tensors, in the order
                                                                  // of the model's parameters
using FieldDescriptions = std::vector<FieldDescription>;

// No size equals twice another size or the product of two sizes, so that name_of_size() finds the right symbol. The
// width is divisible by 4^5, for six bands whose widths decrease by the factor 4. The head size is even, as rotations
// require.
constexpr int64_t kWidth = 7168, kVocabularyRows = 4001, kSourceRows = 4003;
constexpr std::array<int64_t, 5> kCutoffs = {1301, 1823, 2399, 2903, 3461};

// Returns the assignments that set the sizes of all models.
const Settings& base_settings() {
  static const Settings settings{"model.layers=1",     str("model.width=", kWidth), "model.ffn_dim=1009",
                                 "attention.heads=22", "attention.head_size=106",   "attention.value_size=107"};
  return settings;
}

// Returns the symbols of the sizes in base_settings(), of the head counts in stage_tensors(), of the vocabularies, and
// of the bands of kCutoffs.
Symbols symbols() {
  Symbols result{{kWidth, "d"},
                 {1009, "f"},
                 {22, "h"},
                 {26, "hv"},
                 {34, "ho"},
                 {106, "dk"},
                 {107, "dv"},
                 {kVocabularyRows, "rows"},
                 {kSourceRows, "source_rows"}};
  int64_t previous_cutoff = 0;
  for (const int64_t cutoff : kCutoffs) result.emplace_back(cutoff - previous_cutoff, "n"), previous_cutoff = cutoff;
  result.emplace_back(kVocabularyRows - previous_cutoff, "n");
  for (int64_t w = kWidth / 4; w >= 7; w /= 4) result.emplace_back(w, "w");
  result.emplace_back(static_cast<int64_t>(kCutoffs.size()), "bands - 1");
  return result;
}

// Returns the text of a size: a symbol ("dk"), a product of two symbols ("h dk"), twice a symbol ("2 dk"), or else the
// number.
std::string name_of_size(int64_t size, const Symbols& symbols) {
  for (const auto& [value, name] : symbols)
    if (value == size) return name;
  for (const auto& [a, first] : symbols)
    for (const auto& [b, second] : symbols)
      if (a * b == size) return str(first, ' ', second);
  for (const auto& [value, name] : symbols)
    if (size == 2 * value) return str("2 ", name);
  return str(size);
}

// Replaces the indices of layers and bands in a tensor's name by the letters i and b.
std::string generic_name(const std::string& name) {
  static const std::regex layer(R"(\.layers\.\d+\.)"), band(R"(\.bands\.\d+\.)");
  return std::regex_replace(std::regex_replace(name, layer, ".layers.i."), band, ".bands.b.");
}

// Builds the model with these settings and returns its tensors. Throws Error(usage) if the settings contradict each
// other.
Shapes shapes_of(const Settings& settings, const Symbols& symbols) {
  Config config;
  for (const std::string& setting : settings) config.set(setting);
  const ModelConfig model_config = ModelConfig::read(config);
  config.check_all_known();
  const VocabularySizes vocabulary_sizes{kVocabularyRows,
                                         example_type_of(model_config.model) == ExampleType::pairs ? kSourceRows : 0};
  const auto model = build_language_model(model_config, vocabulary_sizes, at::Device(at::kMeta));
  Shapes shapes;
  for (const nn::Parameter& p : model->parameters().all()) {
    std::vector<std::string> axes;
    for (const int64_t size : p.master().sizes()) axes.push_back(name_of_size(size, symbols));
    const std::string name = generic_name(p.name());
    std::string shape = str('(', join(axes, ", "), ')');
    // The tensors of all bands have the same name in the list. The shape of the last band is listed, since its width
    // has the symbol w; the width of band 0 is the width of the model.
    const auto entry = std::find_if(shapes.begin(), shapes.end(), [&](const auto& s) { return s.first == name; });
    if (entry == shapes.end()) shapes.emplace_back(name, std::move(shape));
    else entry->second = std::move(shape);
  }
  return shapes;
}

// Builds the model with `settings` and `extra_settings` and returns its tensors; std::nullopt if the settings
// contradict each other.
std::optional<Shapes> shapes_if_valid(Settings settings, const std::vector<std::string>& extra_settings,
                                      const Symbols& symbols) {
  settings.insert(settings.end(), extra_settings.begin(), extra_settings.end());
  try {
    return shapes_of(settings, symbols);
  } catch (const Error& error) {
    if (error.exit() != Exit::usage) throw;
    return {};
  }
}

bool have_same_names(const Shapes& a, const Shapes& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first; });
}

// An assignment that sets an option to a value other than the default.
struct SettingChoice {
  std::string key;
  std::string assignment;
  std::string setting_text;  // text for ListedTensor::setting: "key=value", or "key" for integers and cutoffs
};

// Returns the choices for the options `fields`: for true/false and for named values, each value other than the default;
// for an integer, one prime, which differs for each option and is added to `symbols` under the name of the option; for
// cutoffs, kCutoffs; for all other types, none.
std::vector<SettingChoice> choices_of(const FieldDescriptions& fields, Symbols& symbols) {
  static const std::vector<int64_t> kPrimes{211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271, 277, 281, 283};
  std::vector<SettingChoice> choices;
  size_t next_prime = 0;
  for (const auto& field : fields) {
    const std::string key = field.key.substr(field.key.rfind('.') + 1);
    if (field.type == "true/false") {
      const std::string assignment = str(field.key, "=", field.value == "true" ? "false" : "true");
      choices.push_back({field.key, assignment, assignment});
    } else if (field.type == "integer") {
      if (next_prime == kPrimes.size()) throw std::logic_error("more integer options than primes in tensor_list.cpp");
      const int64_t size = kPrimes[next_prime++];
      symbols.emplace_back(size, key);
      choices.push_back({field.key, str(field.key, "=", size), field.key});
    } else if (field.type == "integers" && key.ends_with("cutoffs")) {
      std::vector<std::string> cutoffs;
      cutoffs.reserve(kCutoffs.size());
      for (const int64_t cutoff : kCutoffs) cutoffs.push_back(str(cutoff));
      choices.push_back({field.key, str(field.key, "=[", join(cutoffs, ", "), "]"), field.key});
    } else {
      for (const std::string& choice : field.choices)
        if (quoted_toml(choice) != field.value)
          choices.push_back({field.key, str(field.key, "=", quoted_toml(choice)), str(field.key, "=", choice)});
    }
  }
  return choices;
}

// Returns the tensors of the model with `settings`, then the tensors that a single choice from `fields` adds or
// reshapes, then the tensors that only a combination of two or three choices adds. `owner`: text for
// ListedTensor::owner. Omits the tensors whose names are in `known_names`.
std::vector<ListedTensor> list_tensors(const std::string& owner, Settings settings, const FieldDescriptions& fields,
                                       const std::set<std::string>& known_names) {
  Symbols all_symbols = symbols();
  std::vector<SettingChoice> choices = choices_of(fields, all_symbols);
  Shapes base_shapes = shapes_of(settings, all_symbols);
  // An integer option that changes only sizes is set in all models that follow, so that the shapes show the option's
  // name.
  std::erase_if(choices, [&](const SettingChoice& choice) {
    if (choice.setting_text.find('=') != std::string::npos) return false;
    const auto shapes = shapes_if_valid(settings, {choice.assignment}, all_symbols);
    if (!shapes || !have_same_names(*shapes, base_shapes)) return false;
    settings.push_back(choice.assignment), base_shapes = *shapes;
    return true;
  });

  std::vector<ListedTensor> tensors;
  std::set<std::string> seen_names = known_names;
  std::set<std::pair<std::string, std::string>> seen_shapes;
  const auto add = [&](const Shapes& shapes, const std::string& setting, bool lists_other_shapes) {
    for (const auto& [name, shape] : shapes)
      if (!known_names.contains(name) &&
          (lists_other_shapes ? !seen_shapes.contains({name, shape}) : !seen_names.contains(name)))
        tensors.push_back({owner, name, shape, setting}), seen_shapes.emplace(name, shape);
    for (const auto& [name, shape] : shapes) seen_names.insert(name);
  };
  add(base_shapes, "", true);
  std::vector<bool> is_valid_alone;
  for (const SettingChoice& choice : choices) {
    const auto shapes = shapes_if_valid(settings, {choice.assignment}, all_symbols);
    is_valid_alone.push_back(shapes.has_value());
    if (shapes) add(*shapes, choice.setting_text, true);
  }
  // Tries all pairs of choices, and adds a third choice to a pair of which one choice is invalid without the other.
  for (size_t i = 0; i < choices.size(); ++i)
    for (size_t j = i + 1; j < choices.size(); ++j) {
      if (choices[i].key == choices[j].key) continue;
      const Settings setting_pair{choices[i].assignment, choices[j].assignment};
      const auto shapes = shapes_if_valid(settings, setting_pair, all_symbols);
      if (!shapes) continue;
      add(*shapes, str(choices[i].setting_text, ", ", choices[j].setting_text), false);
      if (is_valid_alone[i] && is_valid_alone[j]) continue;
      for (const SettingChoice& other_choice : choices)
        if (other_choice.key != choices[i].key && other_choice.key != choices[j].key)
          if (const auto shapes_of_three =
                  shapes_if_valid(settings, {setting_pair[0], setting_pair[1], other_choice.assignment}, all_symbols))
            add(*shapes_of_three,
                str(choices[i].setting_text, ", ", choices[j].setting_text, ", ", other_choice.setting_text), false);
    }
  return tensors;
}

// Returns the tensors of a backbone.
std::vector<ListedTensor> backbone_tensors(const std::string& backbone) {
  ModelOptions options;
  options.backbone = backbone;  // so that the lister also visits the options of this backbone
  FieldLister lister;
  lister.section("model", options);
  FieldDescriptions fields = lister.descriptions();
  // Of the options [attention], without those of stages, only attention.sink adds a tensor.
  attention::AttentionOptions attention_options;
  FieldLister attention_lister;
  attention_lister.section("attention", attention_options);
  for (const FieldDescription& field : attention_lister.descriptions())
    if (field.key == "attention.sink") fields.push_back(field);
  // Excludes the options that `settings` sets below, and the options that only change numbers of layers or rows.
  std::erase_if(fields, [](const auto& field) {
    static const std::set<std::string> fixed_options{"backbone", "layers",      "encoder_layers", "width",
                                                     "ffn_dim",  "source_rows", "vocabulary_rows"};
    return fixed_options.contains(field.key.substr(field.key.rfind('.') + 1));
  });
  Settings settings = base_settings();
  settings.push_back(str("model.backbone=", backbone));
  // Transformer-XL does not support absolute positions, the default.
  if (!shapes_if_valid(settings, {}, symbols())) settings.emplace_back("model.positions=none");
  return list_tensors(str("backbone ", backbone), settings, fields, {});
}

// Returns the tensors that the attention stage `name` of type `stage` ("mixer") adds to a decoder layer.
std::vector<ListedTensor> stage_tensors(const std::string& stage, const std::string& name) {
  Settings settings = base_settings();
  const Symbols all_symbols = symbols();
  std::set<std::string> known_names;
  const Shapes default_shapes = shapes_of(settings, all_symbols);
  for (const auto& [tensor, shape] : default_shapes) known_names.insert(tensor);
  settings.push_back(attention::stage_assignment(stage, name));
  // If the stage supports different head counts, makes the number of value heads or output heads differ from the number
  // of score heads, so that the shapes distinguish the kinds of heads.
  for (const char* head_count_setting : {"attention.value_heads=26", "attention.output_heads=34"}) {
    if (!shapes_if_valid(settings, {head_count_setting}, all_symbols)) continue;
    settings.emplace_back(head_count_setting);
    break;
  }
  Config config;
  for (const std::string& setting : settings) config.set(setting);
  attention::AttentionOptions options;
  config.read("attention", options);
  FieldLister lister;
  lister.section("attention", options);
  FieldDescriptions fields = lister.descriptions();
  std::erase_if(fields, [&](const auto& field) { return !field.key.starts_with(str("attention.", name, ".")); });
  auto tensors = list_tensors(str(stage, ' ', name), settings, fields, known_names);
  constexpr std::string_view kLayer = "decoder.layers.i.self";
  for (ListedTensor& tensor : tensors)
    if (tensor.name.starts_with(kLayer)) tensor.name.erase(0, kLayer.size());
  return tensors;
}

}  // namespace

std::vector<ListedTensor> list_tensors() {
  std::vector<ListedTensor> result;
  const auto append = [&](std::vector<ListedTensor> tensors) {
    result.insert(result.end(), std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end()));
  };
  for (const std::string& name : backbones().names()) append(backbone_tensors(name));
  const auto append_stages = [&](const std::string& stage, const std::vector<std::string>& names) {
    for (const std::string& name : names) append(stage_tensors(stage, name));
  };
  append_stages("transform", attention::transforms().names());
  append_stages("pairing", attention::pairings().names());
  append_stages("score", attention::scores().names());
  append_stages("position_bias", attention::position_biases().names());
  append_stages("normaliser", attention::normalisers().names());
  append_stages("mixer", attention::mixers().names());
  append_stages("combiner", attention::combiners().names());
  return result;
}

}  // namespace mh::model
