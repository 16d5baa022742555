// Layers with every position and type of norms, with sequential and parallel residual connections, with gated
// feed-forward sublayers and without biases; bounded logits. Each option is compared with a naive reference of the
// whole model in double precision.
#include "model/block.h"

#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "attention/head_scales.h"
#include "base/error.h"
#include "fixtures/gradients.h"
#include "fixtures/models.h"
#include "fixtures/passes.h"
#include "fixtures/status.h"
#include "nn/product.h"
#include "oracle/sublayers.h"

using namespace mh;
using namespace mh::model;
using namespace mh::nn;
using models::parse_model_config;
using models::random_tokens;

namespace {

// The options of a layer that these tests combine.
struct LayerCase {
  std::string norm, residual;
  bool is_gated = false, is_rms = false;
  bool has_biases = true;                // of norms, feed-forward sublayers and attention
  std::string activation = "gelu-tanh";  // smooth, so that gradients equal differences
  bool has_first_norm = true;

  // Returns the lines of [model] with these options.
  std::string lines() const {
    const char *gated = is_gated ? "true" : "false", *bias = has_biases ? "true" : "false";
    return str("norm = '", norm, "'\nresidual = '", residual, "'\ngated_ffn = ", gated, "\nnorm_type = '",
               is_rms ? "rms" : "layer", "'\nnorm_bias = ", bias, "\nffn_bias = ", bias, "\nactivation = '", activation,
               "'\nfirst_norm = ", has_first_norm ? "true" : "false", "\n");
  }
  std::string toml(const std::string& extra_lines = "") const {
    return str("[model]\nlayers = 2\nwidth = 16\nffn_dim = 24\n", lines(), extra_lines,
               "[attention]\nheads = 4\nbias = ", has_biases ? "true" : "false", "\n");
  }
};

// Returns the valid combinations of norm and residual.
std::vector<std::pair<std::string, std::string>> norms_and_residuals() {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const char* norm : {"pre", "post", "around", "output"}) pairs.emplace_back(norm, "sequential");
  for (const char* norm : {"pre", "around", "output"}) pairs.emplace_back(norm, "parallel");
  for (const char* norm : {"pre", "around"}) pairs.emplace_back(norm, "parallel-shared");
  return pairs;
}

// Returns every valid combination of norm, residual, gate and type of norms, with biases if the gate is not used or if
// the norms are RMS norms, so that each option occurs with and without biases.
std::vector<LayerCase> layer_cases() {
  std::vector<LayerCase> cases;
  for (const auto& [norm, residual] : norms_and_residuals())
    for (const bool is_gated : {false, true})
      for (const bool is_rms : {false, true})
        cases.push_back({norm, residual, is_gated, is_rms, is_gated == is_rms, is_gated ? "silu" : "gelu-tanh"});
  return cases;
}

// Builds a model and perturbs every vector, so that weights of norms are not 1 and biases not 0.
std::unique_ptr<LanguageModel> build(const std::string& toml, const VocabularySizes& vocabulary_sizes = {30}) {
  auto model = build_language_model(parse_model_config(toml), vocabulary_sizes, at::kCPU);
  model->parameters().initialise(1);
  c10::NoGradGuard no_gradient;
  at::manual_seed(3);
  for (Parameter& p : model->parameters().all())
    if (p.master().dim() == 1) p.master().add_(at::randn(p.master().sizes()) * 0.2);
  return model;
}

at::Tensor logits(LanguageModel& model, const Input& input) { return model.logits(model.hidden(input, {})); }

// A layer and the stacks of the backbones decoder and encoder-decoder as naive loops in double precision.
struct Reference : reference::NaiveSublayers {
  std::string norm_position, residual;
  bool has_first_norm = true;

  bool has_norms_before() const { return norm_position == "pre" || norm_position == "around"; }
  bool has_output_norms() const { return norm_position == "around" || norm_position == "output"; }
  // Returns y, the output of the sublayer `name`, after its output norm, (length, d), row-major.
  std::vector<double> output_of(const std::string& name, const std::vector<double>& y) const {
    if (!has_output_norms()) return y;
    HiddenStates rows;
    for (size_t i = 0; i < y.size(); i += static_cast<size_t>(width))
      rows.emplace_back(y.begin() + static_cast<std::ptrdiff_t>(i),
                        y.begin() + static_cast<std::ptrdiff_t>(i) + static_cast<std::ptrdiff_t>(width));
    return flatten(norm(name + ".output_norm", rows));
  }
  HiddenStates input_of(const std::string& name, const HiddenStates& x) const {
    const bool lacks_norm = !has_first_norm && name.ends_with(".layers.0.self");
    return has_norms_before() && !lacks_norm ? norm(name + ".norm", x) : x;
  }
  HiddenStates sum_of(const std::string& name, const HiddenStates& x, const std::vector<double>& y) const {
    const HiddenStates sum = add(x, output_of(name, y));
    return norm_position == "post" ? norm(name + ".norm", sum) : sum;
  }
  HiddenStates layer(const std::string& name, const HiddenStates& x, const HiddenStates* source, bool causal) const {
    const std::string self = name + ".self", cross = name + ".cross", ffn = name + ".ffn";
    if (residual != "sequential") {
      const HiddenStates attention_input = input_of(self, x),
                         ffn_input = residual == "parallel" ? input_of(ffn, x) : attention_input;
      const HiddenStates sum = sum_of(self, x, attention_output(self, attention_input, nullptr, causal));
      return sum_of(ffn, sum, feed_forward_output(ffn, ffn_input));
    }
    HiddenStates sum = sum_of(self, x, attention_output(self, input_of(self, x), nullptr, causal));
    if (source != nullptr) sum = sum_of(cross, sum, attention_output(cross, input_of(cross, sum), source, false));
    return sum_of(ffn, sum, feed_forward_output(ffn, input_of(ffn, sum)));
  }
  // Returns the last hidden states of the stack `owner`, "encoder" or "decoder".
  HiddenStates stack(const std::string& owner, const std::vector<int64_t>& tokens, int64_t num_layers,
                     const HiddenStates* source, bool causal) const {
    HiddenStates x =
        add(embed(owner, tokens, std::sqrt(static_cast<double>(width))), sinusoidal_positions(tokens.size()));
    for (int64_t i = 0; i < num_layers; ++i) x = layer(str(owner, ".layers.", i), x, source, causal);
    return norm_position == "post" ? x : norm(owner + ".norm", x);
  }
};

Reference make_reference(LanguageModel& model, const LayerCase& c) {
  Reference r{{model, false}, c.norm, c.residual, c.has_first_norm};
  r.norm_type = c.is_rms ? NormType::rms : NormType::layer;
  const std::map<std::string, Activation> activations{{"relu", Activation::relu},
                                                      {"gelu", Activation::gelu},
                                                      {"gelu-tanh", Activation::gelu_tanh},
                                                      {"silu", Activation::silu}};
  r.activation_kind = activations.at(c.activation);
  return r;
}

at::Tensor tensor_of(const Reference::HiddenStates& rows) {
  return at::tensor(Reference::flatten(rows), at::kDouble).view({static_cast<int64_t>(rows.size()), -1});
}

// Returns the names of all parameters of a decoder with one layer, without the prefix of the layer, and without the
// parameters of the embedding and of attention projections.
std::set<std::string> parameter_names(const std::string& model_lines) {
  const auto model = build_language_model(
      parse_model_config("[model]\nlayers = 1\nwidth = 16\nffn_dim = 24\n" + model_lines + "[attention]\nheads = 4\n"),
      {30}, at::kMeta);
  std::set<std::string> names;
  const std::string layer_prefix = "decoder.layers.0.";
  for (const Parameter& p : model->parameters().all()) {
    std::string name = p.name();
    if (name.starts_with(layer_prefix)) name.erase(0, layer_prefix.size());
    if (p.traits().role == HeadRole::none && name.find("embedding") == name.npos) names.insert(name);
  }
  return names;
}

}  // namespace

TEST_CASE("a decoder with every norm, residual connection and feed-forward form matches a naive reference", "[block]") {
  c10::NoGradGuard no_gradient;
  std::vector<LayerCase> cases = layer_cases();
  for (const char* activation : {"relu", "gelu", "gelu-tanh", "silu"})
    cases.push_back({"pre", "sequential", true, true, true, activation});
  cases.push_back({"pre", "sequential", false, false, false, "silu"});
  for (const auto& [norm, residual] :
       {std::pair{"pre", "sequential"}, std::pair{"around", "sequential"}, std::pair{"pre", "parallel"}})
    cases.push_back({norm, residual, true, false, false, "gelu", false});
  for (const LayerCase& c : cases) {
    INFO(c.toml());
    const auto model = build(c.toml());
    const at::Tensor tokens = random_tokens(2, 9, 30, 4);
    for (const auto path : {attention::Path::composed, attention::Path::automatic}) {
      model->set_path(path);
      const at::Tensor hidden = model->hidden(Input{tokens}, {});
      for (int64_t b = 0; b < 2; ++b) {
        const auto expected =
            make_reference(*model, c).stack("decoder", reference::tokens_of_row(tokens, b, 9), 2, nullptr, true);
        REQUIRE(rounding::passes_agree(*model, hidden[b], tensor_of(expected), 9));
      }
    }
  }
}

TEST_CASE("an encoder-decoder with norms around sublayers or on their outputs matches a naive reference", "[block]") {
  c10::NoGradGuard no_gradient;
  for (const char* norm : {"pre", "post", "around", "output"})
    for (const bool is_rms : {false, true}) {
      const bool has_first_norm = std::string(norm) != "around";
      const LayerCase c{norm, "sequential", is_rms, is_rms, !is_rms, "silu", has_first_norm};
      INFO(c.toml());
      const auto model = build(c.toml("backbone = 'encoder-decoder'\nencoder-decoder.encoder_layers = 1\n"), {30, 20});
      const Input input{random_tokens(2, 6, 30, 1), random_tokens(2, 5, 20, 2)};
      const at::Tensor hidden = model->hidden(input, {});
      for (int64_t b = 0; b < 2; ++b) {
        const Reference r = make_reference(*model, c);
        const auto source = r.stack("encoder", reference::tokens_of_row(input.source, b, 5), 1, nullptr, false);
        const auto expected = r.stack("decoder", reference::tokens_of_row(input.tokens, b, 6), 2, &source, true);
        REQUIRE(rounding::passes_agree(*model, hidden[b], tensor_of(expected), 6));
      }
      // Rows of a beam that read the same source are packed for cross-attention.
      const auto state = model->new_state();
      model->hidden(Input{input.tokens.narrow(1, 0, 1), input.source}, {}, state.get());
      state->reorder(at::tensor(std::vector<int64_t>{0, 0, 1, 1}, at::kLong));
      const at::Tensor rows = at::tensor(std::vector<int64_t>{0, 0, 1, 1}, at::kLong),
                       next_tokens = random_tokens(4, 1, 30, 3);
      const Input longer_input{nn::cat({input.tokens.narrow(1, 0, 1).index_select(0, rows), next_tokens}, 1),
                               input.source.index_select(0, rows)};
      CHECK(rounding::passes_agree(*model, model->hidden(Input{next_tokens}, {}, state.get()),
                                   model->hidden(longer_input, {}).narrow(1, 1, 1), 6));
    }
}

TEST_CASE("decoding step by step equals one forward pass with every norm, residual and feed-forward form", "[block]") {
  c10::NoGradGuard no_gradient;
  for (const LayerCase& c : layer_cases())
    for (const bool uses_products : {false, true}) {  // whether products have the form of decoding (nn/product.h)
      INFO(c.toml() << uses_products);
      const auto model = build(c.toml());
      const at::Tensor tokens = random_tokens(3, 10, 30, 1), full_logits = logits(*model, Input{tokens});
      const auto products = uses_products ? std::make_unique<DecodingProducts>() : nullptr;
      const auto state = model->new_state();
      int64_t position = 0;
      for (const int64_t step : {1, 3, 1, 1, 4}) {
        const Input step_input{tokens.narrow(1, position, step)};
        CHECK(rounding::passes_agree(*model, model->logits(model->hidden(step_input, {}, state.get())),
                                     full_logits.narrow(1, position, step), 10));
        position += step;
      }
    }
}

TEST_CASE("gradients equal finite differences with every norm, residual and feed-forward form", "[block]") {
  for (const LayerCase& c : layer_cases()) {
    INFO(c.toml());
    const auto model = build(c.toml("output_scale = 0.5\noutput_soft_cap = 4\n"));
    const Input input{random_tokens(2, 5, 30, 21)};
    const at::Tensor targets = random_tokens(2, 5, 30, 22);
    const auto loss = [&] { return model->loss(model->hidden(input, {}), {targets}, 0.1).smoothed; };
    models::check_gradients(*model, loss, 5);
  }
}

TEST_CASE("segments with a memory equal one forward pass with every norm and residual connection", "[block][txl]") {
  for (const LayerCase& c : layer_cases()) {
    INFO(c.toml());
    const auto model = build(c.toml("backbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 20\n"));
    const at::Tensor tokens = random_tokens(2, 11, 30, 5);
    for (const bool with_gradients : {false, true}) {  // with gradients the memory has the inputs of each layer
      const c10::AutoGradMode mode(with_gradients);
      const at::Tensor expected = model->hidden(Input{tokens}, {}).detach();
      const auto state = model->new_state();
      int64_t first = 0;
      for (const int64_t length : {3, 1, 5, 2}) {
        const at::Tensor segment = model->hidden(Input{tokens.narrow(1, first, length)}, {}, state.get());
        CHECK(rounding::passes_agree(*model, segment.detach(), expected.narrow(1, first, length), 11));
        first += length;
      }
    }
  }
}

TEST_CASE("dropout of every residual connection is a function of the update and inactive outside of training",
          "[block]") {
  for (const char* residual : {"sequential", "parallel", "parallel-shared"}) {
    const LayerCase c{"pre", residual};
    const auto hidden = [&](const char* dropout_lines, uint32_t update, bool training) {
      const c10::NoGradGuard no_gradient;
      const auto model = build(c.toml(dropout_lines));
      return model->hidden(Input{random_tokens(2, 7, 30, 1)}, {training, 1, update, 0});
    };
    for (const char* lines : {"dropout_attention = 0.5\n", "dropout_ffn = 0.5\n", "dropout_activation = 0.5\n"}) {
      INFO(residual << " " << lines);
      CHECK(hidden(lines, 0, true).equal(hidden(lines, 0, true)));
      CHECK(!hidden(lines, 0, true).equal(hidden(lines, 1, true)));
      CHECK(hidden(lines, 0, false).equal(hidden("", 0, false)));
    }
  }
}

TEST_CASE("the parameters of a layer follow norm, residual, gate and biases, and norms are not decayed", "[block]") {
  using Names = std::set<std::string>;
  CHECK(parameter_names("") == Names{"self.norm.weight", "self.norm.bias", "ffn.up.weight", "ffn.up.bias",
                                     "ffn.down.weight", "ffn.down.bias", "ffn.norm.weight", "ffn.norm.bias",
                                     "decoder.norm.weight", "decoder.norm.bias"});
  const std::string no_biases = "norm_type = 'rms'\nffn_bias = false\ngated_ffn = true\n";
  const Names llama{"self.norm.weight", "ffn.gate.weight", "ffn.up.weight",
                    "ffn.down.weight",  "ffn.norm.weight", "decoder.norm.weight"};
  CHECK(parameter_names(no_biases) == llama);
  Names gemma = llama;
  gemma.insert({"self.output_norm.weight", "ffn.output_norm.weight"});
  CHECK(parameter_names(no_biases + "norm = 'around'\n") == gemma);
  CHECK(parameter_names(no_biases + "norm = 'output'\n") == Names{"self.output_norm.weight", "ffn.gate.weight",
                                                                  "ffn.up.weight", "ffn.down.weight",
                                                                  "ffn.output_norm.weight", "decoder.norm.weight"});
  CHECK(parameter_names("residual = 'parallel'\n") == parameter_names(""));
  Names gpt_j = parameter_names("");
  gpt_j.erase("ffn.norm.weight"), gpt_j.erase("ffn.norm.bias");
  CHECK(parameter_names("residual = 'parallel-shared'\n") == gpt_j);
  CHECK(parameter_names("norm = 'post'\nnorm_bias = false\nffn_bias = false\n") ==
        Names{"self.norm.weight", "ffn.up.weight", "ffn.down.weight", "ffn.norm.weight"});
  CHECK(parameter_names("gated_ffn = true\n").count("ffn.gate.bias") == 1);
  for (const LayerCase& c : layer_cases())
    for (const Parameter& p : build_language_model(parse_model_config(c.toml()), {30}, at::kMeta)->parameters().all()) {
      INFO(p.name());
      CHECK(p.traits().has_weight_decay == (p.master().dim() > 1));
      CHECK(p.traits().is_product_operand == (p.master().dim() > 1));
    }
}

TEST_CASE("a gate is drawn from the distribution of the up projection in every initialisation scheme", "[block]") {
  for (const char* init : {"fairseq", "bert", "transformer-xl"}) {
    INFO(init);
    const auto model = build_language_model(
        parse_model_config(str("[model]\nlayers = 1\nwidth = 64\nffn_dim = 96\ngated_ffn = true\ninit = '", init,
                               "'\n[attention]\nheads = 4\n")),
        {30}, at::kCPU);
    model->parameters().initialise(1);
    const auto weight = [&](const char* name) {
      return model->parameters().find(str("decoder.layers.0.ffn.", name, ".weight"))->master().detach();
    };
    const at::Tensor gate = weight("gate"), up = weight("up");
    CHECK(!gate.equal(up));
    // The standard deviation of 6144 independent draws has a relative standard deviation of 1 / √12288.
    const double up_deviation = up.std().item<double>();
    CHECK(gate.std().item<double>() == rounding::within(up_deviation, 6 * up_deviation / std::sqrt(12288.0)));
  }
}

TEST_CASE("the parameter count of the body of modern decoders equals its formula", "[block]") {
  // Width 256, 8 heads, RMS norms, a gated feed-forward sublayer, no biases, tied embeddings, 4000 vocabulary entries.
  CHECK(models::num_trainable_parameters(
            "[model]\nlayers = 4\nwidth = 256\nffn_dim = 688\nnorm_type = 'rms'\ngated_ffn = "
            "true\nactivation = 'silu'\nffn_bias = false\n[attention]\nheads = 8\nbias = "
            "false\n",
            4000) == 4188416);
}

TEST_CASE("options of norms, residual connections, feed-forward sublayers and logits survive a round trip", "[block]") {
  for (const LayerCase& c : layer_cases()) {
    const ModelConfig config = parse_model_config(c.toml("output_scale = 0.25\noutput_soft_cap = 30\n"));
    CHECK(parse_model_config(config.toml()).toml() == config.toml());
    CHECK(config.model.gated_ffn == c.is_gated);
    CHECK((config.model.norm_type == NormType::rms) == c.is_rms);
    CHECK(config.model.output_soft_cap == 30);
  }
  // Configurations of earlier versions lack these keys.
  const ModelOptions defaults = parse_model_config("").model;
  CHECK((defaults.norm == Norm::pre && defaults.norm_type == NormType::layer && defaults.norm_bias));
  CHECK((defaults.residual == Residual::sequential && !defaults.gated_ffn && defaults.ffn_bias));
  CHECK((defaults.output_scale == 1 && defaults.output_soft_cap == 0 && defaults.first_norm));
}

TEST_CASE("contradicting options of norms, residual connections and logits are refused", "[block]") {
  const auto error_of = [](const std::string& lines) {
    return refusal([&] {
      build_language_model(
          parse_model_config("[model]\nlayers = 1\nwidth = 16\nffn_dim = 8\n" + lines + "[attention]\nheads = 2\n"),
          {30}, at::kMeta);
    });
  };
  const auto is_refused = [&](const std::string& lines, const std::string& text) {
    INFO(lines << error_of(lines));
    CHECK(error_of(lines).find(text) != std::string::npos);
  };
  CHECK(error_of("residual = 'parallel'\n").empty());
  is_refused("norm = 'post'\nresidual = 'parallel'\n", "sequential with model.norm=post");
  is_refused("norm = 'post'\nresidual = 'parallel-shared'\n", "found parallel-shared");
  is_refused("norm = 'post'\nfirst_norm = false\n", "model.first_norm");
  is_refused("norm = 'output'\nfirst_norm = false\n", "model.first_norm");
  is_refused("residual = 'parallel-shared'\nfirst_norm = false\n", "model.residual=parallel-shared");
  is_refused("norm = 'output'\nresidual = 'parallel-shared'\n", "sequential or parallel with model.norm=output");
  is_refused("backbone = 'encoder-decoder'\nresidual = 'parallel'\n", "found model.backbone='encoder-decoder'");
  is_refused("backbone = 'bert'\noutput_scale = 2\n", "found model.backbone='bert'");
  is_refused("backbone = 'bert'\noutput_soft_cap = 2\n", "found model.backbone='bert'");
  is_refused("output_cutoffs = [10]\ninput_cutoffs = [10]\noutput_scale = 2\n", "model.output_scale: expected a full");
  is_refused("output_cutoffs = [10]\ninput_cutoffs = [10]\noutput_soft_cap = 2\n",
             "model.output_soft_cap: expected a full");
  is_refused("output_scale = 0\n", "model.output_scale");
  is_refused("output_soft_cap = -1\n", "model.output_soft_cap");
  is_refused("norm_type = 'root'\n", "layer, rms");
}

TEST_CASE("output_scale multiplies the logits, output_soft_cap bounds them, and loss and log-probabilities follow",
          "[block]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor tokens = random_tokens(2, 7, 30, 1), targets = random_tokens(2, 7, 30, 2);
  const auto plain = build(LayerCase{"pre", "sequential"}.toml("output_bias = true\n"));
  const at::Tensor hidden = plain->hidden(Input{tokens}, {}), plain_logits = plain->logits(hidden);
  for (const auto& [scale, soft_cap] : {std::pair{0.25, 0.0}, {1.0, 3.0}, {4.0, 2.0}}) {
    INFO("scale " << scale << ", soft cap " << soft_cap);
    const auto model = build(LayerCase{"pre", "sequential"}.toml(
        str("output_bias = true\noutput_scale = ", scale, "\noutput_soft_cap = ", soft_cap, "\n")));
    CHECK(model->hidden(Input{tokens}, {}).equal(hidden));
    at::Tensor expected = plain_logits.to(at::kDouble) * scale;
    if (soft_cap > 0) expected = (expected / soft_cap).tanh() * soft_cap;
    const at::Tensor logits = model->logits(hidden);
    CHECK(rounding::agree(logits, expected, 5, scale * numbers::max_abs(plain_logits)));
    const at::Tensor log_p = at::log_softmax(expected, -1).gather(-1, targets.unsqueeze(-1)).squeeze(-1);
    CHECK(rounding::agree(model->target_log_probabilities(hidden, targets), log_p, 16 + 30 + 10,
                          scale * numbers::max_abs(plain_logits)));
    const double nll = -log_p.sum().item<double>();
    CHECK(model->loss(hidden, {targets}, 0).nll.item<double>() ==
          rounding::within(nll, rounding::bound(at::kFloat, at::kDouble, 16 + 30 + 10,
                                                14 * scale * numbers::max_abs(plain_logits))));
  }
}

TEST_CASE("the final norm exists for every position of norms except post", "[block]") {
  for (const char* backbone : {"decoder", "transformer-xl", "bert", "encoder-decoder"})
    for (const char* norm : {"pre", "post", "around", "output"})
      for (const bool is_final : {false, true}) {
        const auto model = build_language_model(
            parse_model_config(str("[model]\nlayers = 1\nwidth = 16\nffn_dim = 8\npositions = 'none'\nbackbone = '",
                                   backbone, "'\nnorm = '", norm, "'\nfinal_norm = ", is_final ? "true" : "false",
                                   "\n[attention]\nheads = 2\n")),
            {30}, at::kMeta);
        INFO(backbone << " " << norm);
        const bool is_expected = is_final && std::string(norm) != "post";
        const std::string owner = std::string(backbone) == "bert" ? "encoder" : "decoder";
        CHECK((model->parameters().find(owner + ".norm.weight") != nullptr) == is_expected);
        if (model->has_encoder()) CHECK((model->parameters().find("encoder.norm.weight") != nullptr) == is_expected);
      }
}

TEST_CASE("only the first layer of each stack lacks a norm before self-attention without model.first_norm", "[block]") {
  for (const char* backbone : {"decoder", "transformer-xl", "bert", "encoder-decoder"}) {
    INFO(backbone);
    const auto model = build_language_model(
        parse_model_config(str("[model]\nlayers = 2\nwidth = 16\nffn_dim = 8\npositions = 'none'\nbackbone = '",
                               backbone, "'\nfirst_norm = false\n[attention]\nheads = 2\n")),
        {30}, at::kMeta);
    for (const std::string stack : {"encoder", "decoder"}) {
      if (model->parameters().find(stack + ".layers.0.ffn.norm.weight") == nullptr) continue;
      CHECK(model->parameters().find(stack + ".layers.0.self.norm.weight") == nullptr);
      CHECK(model->parameters().find(stack + ".layers.1.self.norm.weight") != nullptr);
    }
  }
}

TEST_CASE("rows repeated for the variants of an interceptor have the outputs of separate passes", "[block]") {
  c10::NoGradGuard no_gradient;
  for (const LayerCase& c : layer_cases()) {
    INFO(c.toml());
    const auto model = build(c.toml());
    const Input input{random_tokens(2, 6, 30, 8)};
    attention::AttentionLayer& layer = *model->attention_layers()[0];
    const at::Tensor scales =
        at::tensor(std::vector<double>{1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0.5}).view({3, 4}).to(at::kFloat);
    attention::HeadScales variants;
    variants.value = scales, variants.variants.count = 3;
    set_head_scales(layer, variants);
    const at::Tensor all = model->hidden(input, {});
    REQUIRE(all.size(0) == 6);
    for (int64_t v = 0; v < 3; ++v) {
      attention::HeadScales one;
      one.value = scales[v];
      set_head_scales(layer, one);
      CHECK(rounding::passes_agree(*model, all.narrow(0, 2 * v, 2), model->hidden(input, {}), 6));
    }
  }
}
