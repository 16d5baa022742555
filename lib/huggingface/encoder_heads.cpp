#include "huggingface/encoder_heads.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace mh::huggingface {

namespace {

// Returns whether the flag with the key `setting` is true; true for null.
bool is_true_or_null(const char* setting, const Settings& settings) {
  return setting == nullptr || settings.at(setting) == true;
}

// Returns the names that transformers gives to labels by default.
std::vector<std::string> default_labels(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(str("LABEL_", i));
  return names;
}

std::vector<std::string> labels_of(const JsonConfig& config) {
  const Json id2label = config.value("id2label", Json{{"0", "LABEL_0"}, {"1", "LABEL_1"}});
  std::vector<std::string> labels;
  for (size_t i = 0; i < id2label.size(); ++i) {
    const auto label = id2label.find(std::to_string(i));
    if (label == id2label.end() || !label->is_string() || std::ranges::count(labels, label->get<std::string>()) > 0)
      refuse_input(config.path() + ": id2label", "a unique label for each class number, counted from 0",
                   io::json_excerpt(id2label), "correct the labels in id2label");
    labels.push_back(*label);
  }
  return labels;
}

// Reads labels, problem type and dropout of a classifier from config.json.
void read_classifier(const OutputHeadFormat& format, const JsonConfig& config, Settings& settings) {
  const std::vector<std::string> labels = labels_of(config);
  if (format.num_labels == 0) {
    settings["model.bert.classes"] = labels.size();
    if (labels != default_labels(labels.size())) settings["model.bert.labels"] = labels;
  }
  config.require("problem_type", format.problem_type, {format.problem_type},
                 str("correct problem_type: the classifier has ", labels.size(), " outputs"));
  const Json dropout = config.value("classifier_dropout", nullptr);
  settings["model.dropout_output"] = dropout.is_null() ? settings["model.dropout_embedding"] : dropout;
}

// Writes labels, problem type and dropout of a classifier to config.json.
void write_classifier(const OutputHeadFormat& format, const Settings& settings, Json& config) {
  // In all versions of transformers, classifier_dropout = null means the value of hidden_dropout_prob.
  const Json& dropout = settings.at("model.dropout_output");
  if (dropout != settings.at("model.dropout_embedding")) config["classifier_dropout"] = dropout;
  std::vector<std::string> labels;
  if (const auto id2label = settings.find("model.bert.labels"); id2label != settings.end()) labels = id2label->second;
  if (labels.empty())
    labels =
        default_labels(format.num_labels > 0 ? format.num_labels : settings.at("model.bert.classes").get<size_t>());
  for (size_t i = 0; i < labels.size(); ++i) {
    config["id2label"][std::to_string(i)] = labels[i];
    config["label2id"][labels[i]] = i;
  }
  config["problem_type"] = format.problem_type;
}

}  // namespace

const OutputHeadFormat& OutputHeads::format_in_folder(const JsonConfig& config,
                                                      const std::set<std::string>& tensor_names) const {
  const Json class_names = config.value("architectures", Json::array());
  std::vector<std::string> known_classes;
  for (const OutputHeadFormat& format : formats_) {
    bool has_head = class_names.empty() && format.identifying_tensor != nullptr &&
                    tensor_names.count(format.identifying_tensor) > 0;
    for (const ModelClass& model_class : format.model_classes) {
      const std::string name = class_name(model_class);
      has_head |= !class_names.empty() && class_names[0] == name;
      if (std::ranges::count(known_classes, name) == 0) known_classes.push_back(name);
    }
    if (has_head && (format.num_labels == 0 || format.num_labels == labels_of(config).size())) return format;
  }
  if (class_names.empty()) return formats_.front();
  refuse_input(config.path() + ": architectures", "one of " + join(known_classes, ", "),
               io::json_excerpt(class_names[0]),
               "use a model of one of these classes, the only ones that multihead supports");
}

const OutputHeadFormat& OutputHeads::format_of(const Settings& settings) const {
  const Json& head = settings.at("model.bert.head");
  std::vector<std::string> known_heads;
  for (const OutputHeadFormat& format : formats_) {
    if (head == format.head) return format;
    known_heads.emplace_back(format.head);
  }
  refuse_input("model.bert.head", "a head that transformers supports: " + join(known_heads, ", "), head.dump(),
               "keep the model as a multihead checkpoint");
}

void OutputHeads::read(const JsonConfig& config, const std::set<std::string>& tensor_names, Settings& settings) const {
  const OutputHeadFormat& format = format_in_folder(config, tensor_names);
  settings["model.bert.head"] = format.head;
  if (format.read_settings != nullptr) format.read_settings(config, tensor_names, settings);
  if (format.problem_type != nullptr) read_classifier(format, config, settings);
}

void OutputHeads::add_tensors(const Settings& settings, TensorNames& tensor_names) const {
  const OutputHeadFormat& format = format_of(settings);
  for (const OutputHeadLayer& layer : format.layers) {
    if (!is_true_or_null(layer.required_setting, settings)) continue;
    for (const std::string_view suffix : {".weight", ".bias"})
      if (suffix == ".weight" || is_true_or_null(layer.bias_setting, settings))
        tensor_names.pairs.push_back(
            {str(layer.huggingface_name, suffix), {str(layer.multihead_name, suffix)}, false, layer.component});
  }
  if (format.add_tensors != nullptr) format.add_tensors(settings, tensor_names);
}

bool OutputHeads::contains(const std::string& tensor_name) const {
  return std::ranges::any_of(formats_, [&](const OutputHeadFormat& format) {
    return std::ranges::any_of(format.tensor_prefixes,
                               [&](const char* prefix) { return tensor_name.starts_with(prefix); });
  });
}

bool OutputHeads::uses_layer(const std::string& huggingface_name, const Settings& settings) const {
  return std::ranges::any_of(format_of(settings).layers,
                             [&](const OutputHeadLayer& layer) { return huggingface_name == layer.huggingface_name; });
}

bool OutputHeads::is_classifier(const Settings& settings) const { return format_of(settings).problem_type != nullptr; }

void OutputHeads::write(const Settings& settings, Json& config) const {
  const OutputHeadFormat& format = format_of(settings);
  const auto model_class = std::ranges::find_if(format.model_classes, [&](const ModelClass& candidate) {
    return is_true_or_null(candidate.required_setting, settings);
  });
  config["architectures"] = Json::array({class_name(*model_class)});
  config["classifier_dropout"] = nullptr;
  if (is_classifier(settings)) write_classifier(format, settings, config);
}

void add_word_outputs(const std::string& prefix, const char* component, const Settings& settings,
                      TensorNames& tensor_names) {
  const bool is_tied = settings.at("model.tied") == true;
  // In transformers 5, models with tied weights also tie `decoder.bias` to `bias`; other models use `decoder.bias`.
  const std::string bias_name = prefix + "bias", decoder_bias_name = prefix + "decoder.bias",
                    weight_name = prefix + "decoder.weight";
  tensor_names.pairs.push_back({is_tied ? bias_name : decoder_bias_name, {"head.words.bias"}, false, component});
  tensor_names.aliases[is_tied ? decoder_bias_name : bias_name] = is_tied ? bias_name : decoder_bias_name;
  if (!is_tied) tensor_names.ignored_aliases.insert(bias_name);
  if (is_tied) tensor_names.aliases[weight_name] = tensor_names.pairs.front().huggingface_name;
  else tensor_names.pairs.push_back({weight_name, {"head.words.weight"}, false, component});
}

}  // namespace mh::huggingface
