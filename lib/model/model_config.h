// What a model is: its backbone and its attention layers, as configured, as written into checkpoints, and as built.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/layer.h"
#include "attention/options.h"
#include "base/config.h"
#include "base/registry.h"
#include "model/language_model.h"
#include "nn/ops.h"

namespace mh::model {

enum class Norm { pre, post };
enum class Positions { sinusoidal, learned, none };
enum class Scheme { fairseq, bert, transformer_xl };  // initialisation
enum class InitialMemory { empty, zeros };
enum class HeadTask { words, classes, number, span };  // of an encoder: encoder_output.h
enum class Reads { text, pairs, examples };            // what a model learns from: task/corpus.h

struct ModelOptions {
  std::string backbone = "decoder";
  int64_t layers = 6;
  int64_t encoder_layers = 0;
  int64_t width = 512;
  int64_t ffn = 2048;
  Norm norm = Norm::pre;
  bool final_norm = true;
  Positions positions = Positions::sinusoidal;
  int64_t max_positions = 1024;
  nn::Activation activation = nn::Activation::relu;
  bool tied = true;
  bool shared_embedding = false;
  std::vector<int64_t> input_cutoffs;
  std::vector<int64_t> output_cutoffs;
  int64_t cutoff_factor = 4;
  bool tied_projections = false;
  bool project_head = false;
  bool scale_embedding = true;
  int64_t vocabulary_rows = 0;
  int64_t source_rows = 0;
  bool score_padded_rows = false;
  double dropout_embedding = 0;
  double dropout_attention = 0;
  double dropout_activation = 0;
  double dropout_ffn = 0;
  double dropout_output = 0;
  double dropout_tail = 0;
  int64_t memory = 0;
  bool same_length = false;
  InitialMemory initial_memory = InitialMemory::empty;
  bool output_bias = false;
  int64_t segments = 0;
  bool embedding_norm = false;
  HeadTask head = HeadTask::words;
  int64_t classes = 0;
  std::vector<std::string> labels;
  bool next_sentence = false;
  double norm_epsilon = 1e-5;
  Scheme init = Scheme::fairseq;
  void describe(Fields& f);
};

struct ModelConfig {
  ModelOptions model;
  attention::AttentionConfig attention;

  // Reads [model] and [attention]. Error(usage) for what makes no sense together.
  static ModelConfig read(Config& config);
  std::string toml() const;
};

// Backbones by name.
class Backbone {
 public:
  virtual ~Backbone() = default;
  // Device "meta" for counting.
  virtual std::unique_ptr<LanguageModel> make(const ModelConfig& config, const Vocabularies& vocabularies,
                                              at::Device device) const = 0;
  // How many attention layers of each kind a model has.
  virtual std::vector<std::pair<attention::Kind, int64_t>> layers(const ModelOptions& options) const {
    return {{attention::Kind::decoder_self, options.layers}};
  }
  virtual Reads reads() const { return Reads::text; }
};
Registry<Backbone>& backbones();
Reads reads_of(const ModelOptions& options);

// Error(usage) where rows of tables are set and fewer than a vocabulary has entries, where bands make no sense for it,
// and for keys of another backbone.
std::unique_ptr<LanguageModel> build_language_model(const ModelConfig& config, const Vocabularies& vocabularies,
                                                    at::Device device);

}  // namespace mh::model
