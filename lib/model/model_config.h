// The configuration of a model ([model] and [attention] in configuration files and checkpoints), and the backbones,
// which build models from a configuration.
#pragma once

#include <memory>
#include <set>
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

// The norms of a sublayer f with input x. pre: x + f(norm(x)); post: norm(x + f(x)); around: x +
// output_norm(f(norm(x))); output: x + output_norm(f(x)).
enum class Norm { pre, post, around, output };
// The residual connections of a layer. sequential: each sublayer adds its output to its input; parallel: attention and
// feed-forward sublayer read the same x, and the layer adds both outputs to x; parallel_shared: they also read the same
// norm(x).
enum class Residual { sequential, parallel, parallel_shared };
enum class Positions { sinusoidal, learned, none };
// The formula of sinusoidal positions (positions.h).
enum class Sinusoids { fairseq, standard };
enum class InitScheme { fairseq, bert, transformer_xl };
enum class InitialMemory { empty, zeros };
// The pooler of an encoder's task head, for the last hidden state h_0 of the first token. tanh: tanh(W h_0 + b);
// transform: norm(activation(W h_0 + b)).
enum class PoolerKind { tanh, transform };
enum class ExampleType { text, pairs, examples };  // type of training examples that a model reads (lib/data)

// The options that only one backbone has: the sections [model.encoder-decoder], [model.transformer-xl] and
// [model.bert].
struct EncoderDecoderOptions {
  int64_t encoder_layers = 0;
  bool shared_embedding = false;
  int64_t source_rows = 0;
  int64_t start_token = -1;
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
  std::string head = "words";  // name of a task head in task_heads()
  int64_t classes = 0;
  std::vector<std::string> labels;
  bool next_sentence = false;
  PoolerKind pooler = PoolerKind::tanh;
  bool transform_bias = true;
  void describe(Fields& f);
};

struct ModelOptions {
  std::string backbone = "decoder";
  int64_t layers = 6;
  int64_t width = 512;
  int64_t ffn_dim = 2048;
  Norm norm = Norm::pre;
  nn::NormType norm_type = nn::NormType::layer;
  bool norm_bias = true;
  bool final_norm = true;
  bool first_norm = true;
  Residual residual = Residual::sequential;
  Positions positions = Positions::sinusoidal;
  Sinusoids sinusoids = Sinusoids::fairseq;
  int64_t max_positions = 1024;
  nn::Activation activation = nn::Activation::relu;
  bool gated_ffn = false;
  bool ffn_bias = true;
  bool tied = true;
  std::vector<int64_t> input_cutoffs;
  std::vector<int64_t> output_cutoffs;
  int64_t cutoff_factor = 4;
  bool tied_projections = false;
  bool first_band_projection = false;
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
  double output_scale = 1;
  double output_soft_cap = 0;
  double norm_epsilon = 1e-5;
  InitScheme init = InitScheme::fairseq;
  EncoderDecoderOptions encoder_decoder;
  TransformerXlOptions transformer_xl;
  BertOptions bert;
  // Visits the options of [model] itself, then the section of the chosen backbone.
  void describe(Fields& f);
  // Visits the options of each backbone for whose name `filter` returns true, in a section of that name.
  template <class Filter>
  void describe_backbones(Fields& f, const Filter& filter) {
    const auto visit = [&](const char* name, auto& options) {
      if (filter(name)) f.section(name, options);
    };
    visit("encoder-decoder", encoder_decoder);
    visit("transformer-xl", transformer_xl);
    visit("bert", bert);
  }
};

// The options of all backbones except the chosen one, each in its section. Configurations of earlier versions contain
// the sections of all backbones, so these options may be set to their defaults with any backbone.
struct UnusedBackboneOptions {
  ModelOptions& options;
  void describe(Fields& f) {
    options.describe_backbones(f, [this](const std::string& name) { return name != options.backbone; });
  }
};

struct ModelConfig {
  ModelOptions model;
  attention::AttentionConfig attention;

  // Reads [model] and [attention] from `config`. Throws Error(usage) if options contradict each other, or if the
  // backbone does not support an option that is set to another value than its default.
  static ModelConfig read(Config& config);
  std::string toml() const;  // returns [model] and [attention] as TOML
};

// The groups of keys in [model] that only some backbones support: adaptive input embeddings, adaptive softmax, bias of
// the output layer, scale and bound of the logits, and parallel residual connections. A table in model_config.cpp lists
// the keys of each group.
enum class OptionGroup { adaptive_input, adaptive_softmax, output_bias, logit_scaling, parallel_residual };

// The factory of a model architecture, such as "decoder" or "bert".
class Backbone {
 public:
  virtual ~Backbone() = default;
  // Returns the option groups that the backbone supports. Every backbone also supports the keys of [model] that are in
  // no group, and its own section model.NAME. ModelConfig::read() refuses all other options.
  virtual std::set<OptionGroup> option_groups() const = 0;
  // Builds a model with uninitialised parameters. On the device "meta" the parameters have names and shapes but no
  // storage. Throws Error(usage) if options contradict the vocabularies, each other or the backbone.
  virtual std::unique_ptr<LanguageModel> make(const ModelConfig& config, const VocabularySizes& vocabulary_sizes,
                                              const nn::ParameterPlacement& placement) const = 0;
  // Returns the kinds of attention layers in a model with these options, and the number of layers of each kind.
  virtual std::vector<std::pair<attention::AttentionKind, int64_t>> layer_counts(const ModelOptions& options) const {
    return {{attention::AttentionKind::decoder_self, options.layers}};
  }
  virtual ExampleType example_type() const { return ExampleType::text; }
};
Registry<Backbone>& backbones();
ExampleType example_type_of(const ModelOptions& options);

// Builds a model of the configured backbone with uninitialised parameters. Throws Error(usage) if an embedding table
// has fewer rows than the vocabulary has entries, or if options contradict the vocabularies or each other.
std::unique_ptr<LanguageModel> build_language_model(const ModelConfig& config, const VocabularySizes& vocabulary_sizes,
                                                    const nn::ParameterPlacement& placement);

}  // namespace mh::model
