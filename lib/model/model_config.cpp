// The options of models with their help texts, checks of option values, and the registry of backbones.
#include "model/model_config.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "model/bands.h"
#include "model/task_head.h"
#include "model/token_embedding.h"

namespace mh::model {

namespace {

constexpr int64_t kMaxWidth = 1 << 20;  // largest width, so that a product of three sizes fits into 63 bits

std::string head_help() {
  std::string text = "task head of the encoder";
  for (const std::string& name : task_heads().names())
    text += str("; ", name, ": ", task_heads().find(name, "model.bert.head").help);
  return text;
}

}  // namespace

void EncoderDecoderOptions::describe(Fields& f) {
  f.field("encoder_layers", encoder_layers, "number of encoder layers; 0: as many as decoder layers (model.layers)",
          between(0, 10000));
  f.field("shared_embedding", shared_embedding,
          "share one token embedding between source and target, for a joint vocabulary or two vocabularies with the "
          "same entries");
  f.field("source_rows", source_rows,
          "number of rows of the source token embedding; 0: the size of the source vocabulary", between(0, 1 << 30));
  f.field(
      "start_token", start_token,
      "id of the token of the target vocabulary that the decoder reads before the first token of a target, and that "
      "is never generated, such as the padding token of a Marian model; -1: the end-of-line token",
      between(-1, 1 << 30));
}

void TransformerXlOptions::describe(Fields& f) {
  f.field("memory", memory,
          "number of positions of earlier segments in the memory of each layer; 0: no memory in training, and a memory "
          "of all earlier positions in decoding",
          between(0, 1 << 24));
  f.field("same_length", same_length,
          "let every query attend to the same number of keys: model.transformer-xl.memory keys, the key of the "
          "query's own position included");
  f.choice("initial_memory", initial_memory, {{InitialMemory::empty, "empty"}, {InitialMemory::zeros, "zeros"}},
           "content of the memory before the first segment; empty: no positions; zeros: zero vectors, which queries "
           "attend to");
}

void BertOptions::describe(Fields& f) {
  f.field("segments", segments, "number of segment (token type) embeddings; 0: no segment embeddings",
          between(0, 1 << 16));
  f.field("embedding_norm", embedding_norm, "apply a layer norm to the sum of token, position and segment embeddings");
  f.field("head", head, head_help(), task_heads().names());
  f.field("classes", classes, "number of classes, for model.bert.head=classes; 0 for other task heads",
          between(0, kMaxWidth));
  f.field("labels", labels,
          "names of the classes, for model.bert.head=classes, in the order of the training shard; []: no names");
  f.field("next_sentence", next_sentence,
          "with model.bert.head=words: predict also whether the second sentence follows the first");
  f.choice("pooler", pooler, {{PoolerKind::tanh, "tanh"}, {PoolerKind::transform, "transform"}},
           "pooler of the task heads classes and number and of next_sentence, for the last hidden state h of the first "
           "token; tanh: tanh(W h + b), as in BERT; transform: norm(activation(W h + b)), as in ModernBERT");
  f.field(
      "transform_bias", transform_bias,
      "add a bias to the dense layer of the pooler, and to the dense layer before the output layer for masked words");
}

void ModelOptions::describe(Fields& f) {
  f.field("backbone", backbone, "model architecture", backbones().names());
  f.field("layers", layers, "number of layers; with backbone encoder-decoder, the number of decoder layers",
          between(1, 10000));
  f.field("width", width, "model width d, the size of hidden states", between(1, kMaxWidth));
  f.field("ffn_dim", ffn_dim, "inner width of the feed-forward sublayers", between(1, kMaxWidth));
  f.choice("norm", norm, {{Norm::pre, "pre"}, {Norm::post, "post"}, {Norm::around, "around"}, {Norm::output, "output"}},
           "position of norms; pre: before each sublayer; post: after each residual sum; around: before each sublayer "
           "and on its output, before the residual sum; output: only on the output of each sublayer");
  f.choice("norm_type", norm_type, {{nn::NormType::layer, "layer"}, {nn::NormType::rms, "rms"}},
           "type of all norms; layer: layer norm; rms: RMS norm, weight * x / sqrt(mean(x^2) + epsilon), which has no "
           "bias");
  f.field("norm_bias", norm_bias, "add biases to layer norms");
  f.field("final_norm", final_norm, "apply a norm after the last layer; not with model.norm=post");
  f.field(
      "first_norm", first_norm,
      "apply a norm before self-attention in the first layer of a stack, as in all other layers, with model.norm=pre "
      "or around; false: as in ModernBERT, whose embeddings are already normalised");
  f.choice(
      "residual", residual,
      {{Residual::sequential, "sequential"},
       {Residual::parallel, "parallel"},
       {Residual::parallel_shared, "parallel-shared"}},
      "residual connections of a layer; sequential: the feed-forward sublayer reads the sum of the attention "
      "sublayer; parallel: both sublayers read the input of the layer, each with a norm of its own, as in GPT-NeoX; "
      "parallel-shared: both read the same norm of it, as in GPT-J");
  f.choice("positions", positions,
           {{Positions::sinusoidal, "sinusoidal"}, {Positions::learned, "learned"}, {Positions::none, "none"}},
           "absolute position embeddings that are added to token embeddings");
  f.choice(
      "sinusoids", sinusoids, {{Sinusoids::fairseq, "fairseq"}, {Sinusoids::standard, "standard"}},
      "formula of sinusoidal positions, sin(p w_k) and cos(p w_k) for k < width/2; fairseq: w_k = "
      "10000^(-k / (width/2 - 1)), and the first position is 2; standard: w_k = 10000^(-2k / width), and the first "
      "position is 0, as in Marian");
  f.field("max_positions", max_positions,
          "maximum sequence length with learned position embeddings, in tokens; with other positions a number without "
          "effect, which mh-convert reads and writes as max_position_embeddings",
          between(1, 1 << 24));
  f.choice("activation", activation,
           {{nn::Activation::relu, "relu"},
            {nn::Activation::gelu, "gelu"},
            {nn::Activation::gelu_tanh, "gelu-tanh"},
            {nn::Activation::silu, "silu"}},
           "activation of the feed-forward sublayers; gelu-tanh: as in GPT-2, x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 "
           "x^3))); silu: x / (1 + exp(-x))");
  f.field("gated_ffn", gated_ffn,
          "multiply the inner vectors of the feed-forward sublayers by a gate: down(activation(gate x) * up x)");
  f.field("ffn_bias", ffn_bias, "add biases to the feed-forward sublayers");
  f.field("tied", tied,
          "use the token embedding as the weights of the output layer; with cutoffs, each cluster (band) of "
          "the output layer uses the embedding table of the same cluster");
  f.field("input_cutoffs", input_cutoffs,
          "adaptive input: vocabulary indices that separate clusters (bands) of decreasing embedding width, for a "
          "vocabulary sorted by frequency; []: a single embedding table",
          between(1, 1 << 30));
  f.field("output_cutoffs", output_cutoffs,
          "adaptive softmax: vocabulary indices that separate the first cluster (band), of the most frequent entries, "
          "and the tails; []: a single softmax over the vocabulary",
          between(1, 1 << 30));
  f.field("cutoff_factor", cutoff_factor,
          "factor by which the embedding width shrinks from one cluster (band) of the adaptive input and the adaptive "
          "softmax to the next; 1: all clusters have the width of the model, in one table without projections",
          between(1, kMaxWidth));
  f.field("tied_projections", tied_projections,
          "use the transposed projections of the adaptive input embedding in the adaptive softmax");
  f.field("first_band_projection", first_band_projection,
          "add a projection of size (width, width) before the first cluster (band) of the adaptive softmax, as in "
          "Transformer-XL");
  f.field("scale_embedding", scale_embedding, "multiply token embeddings by the square root of the width");
  f.field("vocabulary_rows", vocabulary_rows, "number of rows of the token embedding; 0: the size of the vocabulary",
          between(0, 1 << 30));
  f.field("score_padded_rows", score_padded_rows,
          "include embedding rows past the end of the vocabulary (model.vocabulary_rows) in the softmax");
  f.field("dropout_embedding", dropout_embedding, "dropout probability of the sum of embeddings", between(0, 0.999));
  f.field("dropout_attention", dropout_attention, "dropout probability of the output of attention sublayers",
          between(0, 0.999));
  f.field("dropout_activation", dropout_activation,
          "dropout probability after the activation of feed-forward sublayers", between(0, 0.999));
  f.field("dropout_ffn", dropout_ffn, "dropout probability of the output of feed-forward sublayers", between(0, 0.999));
  f.field("dropout_output", dropout_output,
          "dropout probability of the last hidden states; with backbone bert, of the output of the pooler, which only "
          "model.bert.head=classes and model.bert.head=number have",
          between(0, 0.999));
  f.field("dropout_tail", dropout_tail,
          "dropout probability of the projected hidden states of each tail of the adaptive softmax", between(0, 0.999));
  f.field("output_bias", output_bias, "add a bias to the output layer");
  f.field("output_scale", output_scale, "factor of the logits of the output layer", positive());
  f.field("output_soft_cap", output_soft_cap,
          "bound c of the logits of the output layer, which become c tanh(logit / c); 0: no bound", at_least(0));
  f.field("norm_epsilon", norm_epsilon, "epsilon that norms add to the variance or the mean square", positive());
  f.choice(
      "init", init,
      {{InitScheme::fairseq, "fairseq"}, {InitScheme::bert, "bert"}, {InitScheme::transformer_xl, "transformer-xl"}},
      "initialisation scheme of the parameters");
  describe_backbones(f, [this](const std::string& name) { return name == backbone; });
}

namespace {

// Returns the names of the backbones that support a key of [model].
std::vector<std::string> backbones_with(const std::string& key) {
  static const std::map<std::string, OptionGroup> groups{{"model.input_cutoffs", OptionGroup::adaptive_input},
                                                         {"model.output_cutoffs", OptionGroup::adaptive_softmax},
                                                         {"model.cutoff_factor", OptionGroup::adaptive_softmax},
                                                         {"model.tied_projections", OptionGroup::adaptive_softmax},
                                                         {"model.first_band_projection", OptionGroup::adaptive_softmax},
                                                         {"model.dropout_tail", OptionGroup::adaptive_softmax},
                                                         {"model.output_bias", OptionGroup::output_bias},
                                                         {"model.output_scale", OptionGroup::logit_scaling},
                                                         {"model.output_soft_cap", OptionGroup::logit_scaling},
                                                         {"model.residual", OptionGroup::parallel_residual}};
  const std::vector<std::string> key_parts = split(key, '.');
  if (key_parts.size() > 2) return {key_parts[1]};  // a key of the section model.NAME
  std::vector<std::string> names = backbones().names();
  if (const auto group = groups.find(key); group != groups.end())
    std::erase_if(names, [&](const std::string& name) {
      return !backbones().make(name, "model.backbone")->option_groups().contains(group->second);
    });
  return names;
}

// Returns the fields of all options, including the sections of all backbones.
std::vector<FieldDescription> fields_of(ModelOptions options) {
  FieldLister lister;
  UnusedBackboneOptions other_backbones{options};
  lister.section("model", options);
  lister.section("model", other_backbones);
  return lister.descriptions();
}

// Throws Error(usage) if an option that the chosen backbone does not support has another value than its default.
void refuse_unsupported_options(const ModelOptions& options) {
  ModelOptions defaults;
  defaults.backbone = options.backbone;
  const auto fields = fields_of(options), default_fields = fields_of(defaults);
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string& key = fields[i].key;
    if (fields[i].value == default_fields[i].value) continue;
    const std::vector<std::string> names = backbones_with(key);
    if (std::find(names.begin(), names.end(), options.backbone) != names.end()) continue;
    const std::string supporting_backbones = str("model.backbone='", join(names, "' or '"), "'");
    refuse_usage(key, supporting_backbones + ", which has this option",
                 found_value(str("model.backbone='", options.backbone, "'"),
                             str("model.backbone='", ModelOptions{}.backbone, "'")),
                 str("set ", supporting_backbones, ", or leave ", key, " out"));
  }
}

// Throws Error(usage) for a parallel residual connection that contradicts the position of the norms.
void check_residual(const ModelOptions& o) {
  if (o.residual == Residual::sequential) return;
  if (o.norm == Norm::post)
    refuse_usage("model.residual", "sequential with model.norm=post, which normalises the sum of each sublayer",
                 o.residual == Residual::parallel ? "parallel" : "parallel-shared",
                 "set model.residual=sequential, or set model.norm=pre");
  if (o.norm == Norm::output && o.residual == Residual::parallel_shared)
    refuse_usage("model.residual",
                 "sequential or parallel with model.norm=output, which has no norm before the sublayers",
                 "parallel-shared", "set model.residual=parallel, or set model.norm=pre");
}

// Throws Error(usage) if the first layer lacks a norm that it would not have anyway, or that both sublayers need.
void check_first_norm(const ModelOptions& o) {
  if (o.first_norm) return;
  if (o.norm != Norm::pre && o.norm != Norm::around)
    refuse_usage("model.first_norm", "true with model.norm=post or output, which have no norm before sublayers",
                 "false", "leave model.first_norm out, or set model.norm=pre");
  if (o.residual == Residual::parallel_shared)
    refuse_usage("model.first_norm", "true with model.residual=parallel-shared, whose sublayers share the norm",
                 "false", "leave model.first_norm out, or set model.residual=parallel");
}

}  // namespace

ModelConfig ModelConfig::read(Config& config) {
  ModelConfig c;
  config.read("model", c.model);
  UnusedBackboneOptions other_backbones{c.model};
  config.read("model", other_backbones);
  refuse_unsupported_options(c.model);
  check_residual(c.model);
  check_first_norm(c.model);
  const auto layer_counts = backbones().make(c.model.backbone, "model.backbone")->layer_counts(c.model);
  c.attention.read(config, layer_counts);
  if (c.model.positions != Positions::sinusoidal && c.model.sinusoids != Sinusoids::fairseq)
    refuse_usage("model.sinusoids", "sinusoidal positions, whose formula the key selects",
                 c.model.positions == Positions::learned ? "learned positions" : "no positions",
                 "set model.positions=sinusoidal, or leave model.sinusoids out");
  if (c.model.positions == Positions::sinusoidal && c.model.width % 2 != 0)
    refuse_usage("model.width", "an even width for sinusoidal positions", str(c.model.width),
                 "set model.width to an even number");
  for (const auto& [kind, count] : layer_counts)
    for (int64_t layer = 0; layer < count; ++layer)
      attention::make_layer_spec(c.attention.layer(kind, layer), kind, layer, c.model.width, "");
  return c;
}

std::string ModelConfig::toml() const {
  TomlWriter writer;
  ModelOptions copy = model;
  writer.section("model", copy);
  return writer.text() + "\n" + attention.toml();
}

Registry<Backbone>& backbones() {
  static Registry<Backbone> registry("backbone");
  return registry;
}

ExampleType example_type_of(const ModelOptions& options) {
  return backbones().make(options.backbone, "model.backbone")->example_type();
}

std::unique_ptr<LanguageModel> build_language_model(const ModelConfig& config, const VocabularySizes& vocabulary_sizes,
                                                    const nn::ParameterPlacement& placement) {
  check_rows("model.vocabulary_rows", config.model.vocabulary_rows, vocabulary_sizes.target);
  check_bands(config.model, vocabulary_sizes.target);
  return backbones().make(config.model.backbone, "model.backbone")->make(config, vocabulary_sizes, placement);
}

}  // namespace mh::model
