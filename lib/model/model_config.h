// The configuration of a model, which configuration files and checkpoints hold ([model], [attention]), and the
// backbones that build models from it.
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
enum class Reads { text, pairs, examples };  // kind of training data (lib/data)

// Options of one backbone: [model.encoder-decoder], [model.transformer-xl], [model.bert].
struct EncoderDecoderOptions {
  int64_t encoder_layers = 0;
  bool shared_embedding = false;
  int64_t source_rows = 0;
  void describe(Fields& f);
};
struct TransformerXlOptions {
  int64_t memory = 0;
  bool same_length = false;
  InitialMemory initial_memory = InitialMemory::empty;
  void describe(Fields& f);
};
struct BertOptions {
  int64_t segments = 0;
  bool embedding_norm = false;
  std::string head = "words";  // a name in encoder_heads()
  int64_t classes = 0;
  std::vector<std::string> labels;
  bool next_sentence = false;
  void describe(Fields& f);
};

struct ModelOptions {
  std::string backbone = "decoder";
  int64_t layers = 6;
  int64_t width = 512;
  int64_t ffn = 2048;
  Norm norm = Norm::pre;
  bool final_norm = true;
  Positions positions = Positions::sinusoidal;
  int64_t max_positions = 1024;
  nn::Activation activation = nn::Activation::relu;
  bool tied = true;
  std::vector<int64_t> input_cutoffs;
  std::vector<int64_t> output_cutoffs;
  int64_t cutoff_factor = 4;
  bool tied_projections = false;
  bool project_head = false;
  bool scale_embedding = true;
  int64_t vocabulary_rows = 0;
  bool score_padded_rows = false;
  double dropout_embedding = 0;
  double dropout_attention = 0;
  double dropout_activation = 0;
  double dropout_ffn = 0;
  double dropout_output = 0;
  double dropout_tail = 0;
  bool output_bias = false;
  double norm_epsilon = 1e-5;
  Scheme init = Scheme::fairseq;
  EncoderDecoderOptions encoder_decoder;
  TransformerXlOptions transformer_xl;
  BertOptions bert;
  // Visits the options of all backbones, then those of the chosen backbone.
  void describe(Fields& f);
  // Visits the options of backbones in sections of their names: those that `filter` names, or all.
  template <class Wanted>
  void describe_backbones(Fields& f, const Wanted& filter) {
    const auto visit = [&](const char* name, auto& options) {
      if (filter(name)) f.section(name, options);
    };
    visit("encoder-decoder", encoder_decoder);
    visit("transformer-xl", transformer_xl);
    visit("bert", bert);
  }
};

// The options of the backbones that are not chosen. Configurations of earlier versions hold them all, so their default
// values are valid with any backbone.
struct OtherBackbones {
  ModelOptions& options;
  void describe(Fields& f) {
    options.describe_backbones(f, [this](const std::string& name) { return name != options.backbone; });
  }
};

struct ModelConfig {
  ModelOptions model;
  attention::AttentionConfig attention;

  // Reads [model] and [attention]. Throws Error(usage) for options that contradict each other.
  static ModelConfig read(Config& config);
  std::string toml() const;
};

// The factory of one kind of model, such as "decoder" or "bert".
class Backbone {
 public:
  virtual ~Backbone() = default;
  // Builds a model with uninitialised parameters. On the device "meta" they have no storage, for counting.
  virtual std::unique_ptr<LanguageModel> make(const ModelConfig& config, const Vocabularies& vocabularies,
                                              at::Device device) const = 0;
  // Returns the number of attention layers of each kind.
  virtual std::vector<std::pair<attention::AttentionKind, int64_t>> layers(const ModelOptions& options) const {
    return {{attention::AttentionKind::decoder_self, options.layers}};
  }
  virtual Reads reads() const { return Reads::text; }
};
Registry<Backbone>& backbones();
Reads reads_of(const ModelOptions& options);

// Builds the model of the configured backbone. Throws Error(usage) if a table has fewer rows than its vocabulary has
// entries, or if options do not fit the vocabularies or each other.
std::unique_ptr<LanguageModel> build_language_model(const ModelConfig& config, const Vocabularies& vocabularies,
                                                    at::Device device);

}  // namespace mh::model
