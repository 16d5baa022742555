// The output heads of encoders in transformers: their model classes, tensors and settings. Each architecture has a
// table of its heads, with a row for each supported value of model.bert.head.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "huggingface/architecture.h"

namespace mh::huggingface {

constexpr const char* kNextSentence = "model.bert.next_sentence";

// A model class of transformers that has an output head.
struct ModelClass {
  const char* suffix;                      // name of the class without the prefix of the architecture, "ForMaskedLM"
  const char* required_setting = nullptr;  // key of a flag that is true in models of this class; null: all models
};

// A linear layer or layer norm of a head, with a weight and a bias.
struct OutputHeadLayer {
  const char* huggingface_name;
  const char* multihead_name;
  const char* component;                   // TensorPair::component of the weight and of the bias
  const char* required_setting = nullptr;  // key of a flag that is true in models with the layer; null: all models
  const char* bias_setting = nullptr;      // key of a flag that is true in models with the bias; null: all models
};

// An output head in transformers.
struct OutputHeadFormat {
  const char* head;                          // value of model.bert.head
  std::vector<ModelClass> model_classes;     // a written config.json names the first class whose flag is true
  std::vector<const char*> tensor_prefixes;  // prefixes of all tensors of the head except BERT's pooler
  std::vector<OutputHeadLayer> layers;
  // Tensor that identifies the head in a folder whose config.json names no model class; null: none.
  const char* identifying_tensor = nullptr;
  // Value of problem_type in config.json if the head is a classifier with labels and dropout; null: no classifier.
  const char* problem_type = nullptr;
  size_t num_labels = 0;  // number of labels of the classifier; 0: any number, stored in model.bert.classes
  // Derives further settings from config.json and the names of the tensors in the file; null: none.
  void (*read_settings)(const JsonConfig& config, const std::set<std::string>& tensor_names,
                        Settings& settings) = nullptr;
  // Adds the names of further tensors; null: none.
  void (*add_tensors)(const Settings& settings, TensorNames& tensor_names) = nullptr;
};

class OutputHeads {
 public:
  // `class_prefix`: prefix of the model classes, such as "Bert". The first row of `formats` is the default of a folder
  // whose config.json names no model class and whose tensors identify no head. Among rows with the same model class,
  // rows that set `num_labels` precede the others.
  OutputHeads(std::string class_prefix, std::vector<OutputHeadFormat> formats)
      : class_prefix_(std::move(class_prefix)), formats_(std::move(formats)) {}

  // Adds the settings of the head in a folder with this config.json and these tensors. Throws Error(input) for an
  // unknown model class, and for invalid settings of the head.
  void read(const JsonConfig& config, const std::set<std::string>& tensor_names, Settings& settings) const;
  // Adds the tensors of the head of a model with these settings. Throws Error(input) for a head without a format.
  void add_tensors(const Settings& settings, TensorNames& tensor_names) const;
  // Returns whether the tensor belongs to one of the heads.
  bool contains(const std::string& tensor_name) const;
  // Returns whether the head of a model with these settings has this layer.
  bool uses_layer(const std::string& huggingface_name, const Settings& settings) const;
  // Returns whether the head of a model with these settings is a classifier (OutputHeadFormat::problem_type). Throws
  // Error(input) for a head without a format.
  bool is_classifier(const Settings& settings) const;
  // Adds the model class, and labels, problem type and dropout of a classifier, to config.json.
  void write(const Settings& settings, Json& config) const;

 private:
  std::string class_name(const ModelClass& model_class) const { return class_prefix_ + model_class.suffix; }
  const OutputHeadFormat& format_in_folder(const JsonConfig& config, const std::set<std::string>& tensor_names) const;
  const OutputHeadFormat& format_of(const Settings& settings) const;

  std::string class_prefix_;
  std::vector<OutputHeadFormat> formats_;
};

// Adds the weight and the bias of the output layer for masked words, under the names `prefix`decoder.weight and
// `prefix`bias. `component`: TensorPair::component of both.
void add_word_outputs(const std::string& prefix, const char* component, const Settings& settings,
                      TensorNames& tensor_names);

}  // namespace mh::huggingface
