// Lists of combiners: the configuration of a list, its outputs and gradients against plain loops over the combiners,
// the fused path, and the gates that observers receive.
#include "fixtures/combiners.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "attention/methods/differential/differential.h"
#include "fixtures/gradients.h"
#include "fixtures/status.h"
#include "oracle/head_mixing.h"

using namespace mh;
using namespace mh::attention;
using fixtures::combiner_line;
using fixtures::combiner_pairs;
using layers::causal_mask;
using layers::Layer;
using layers::PerturbedLayer;
using numbers::normal;
using reference::Vector;
using reference::Weights;

namespace {

using Names = std::vector<std::string>;

// Returns the configuration that AttentionConfig writes for `toml`, lines of [attention].
std::string written(const std::string& toml) {
  Config config;
  config.load_text("[attention]\n" + toml, "test");
  AttentionConfig attention;
  attention.read(config, {{AttentionKind::decoder_self, 2}});
  config.check_all_known();
  return attention.toml();
}

// Records the head outputs before the first combiner, and the observations of gates and of weights in order.
struct CombinerRecorder : layers::RecordingObserver, Subscriber<HeadWeightObservation> {
  std::vector<GateObservation> gates;
  std::vector<at::Tensor> weights;
  void receive(const LayerSpec&, GateObservation& observation) override { gates.push_back(observation); }
  void receive(const LayerSpec&, HeadWeightObservation& observation) override {
    weights.push_back(observation.weights);
  }
};

// Returns the result (B, ho, T, dv), in double precision, of one combiner for heads z (B, hv, T, dv), by plain loops.
// A combiner that only scales heads has the weights that `single`, a layer with this combiner alone, computes for the
// input x.
at::Tensor combine_by_loops(Layer& single, const at::Tensor& z, const at::Tensor& x,
                            const nn::ForwardContext& forward_context) {
  const std::string& name = single.options.combiner.front();
  const int64_t num_rows = z.size(0), num_heads = z.size(1), length = z.size(2), size = z.size(3);
  at::Tensor result = at::zeros_like(z);
  auto out = result.accessor<double, 4>();
  const auto in = z.accessor<double, 4>();
  if (name == "alphas") {
    const at::Tensor alpha = single["combiner.alpha"].to(at::kDouble);
    const auto a = alpha.accessor<double, 2>();
    for (int64_t b = 0; b < num_rows; ++b)
      for (int64_t i = 0; i < num_heads; ++i)
        for (int64_t j = 0; j < num_heads; ++j)
          for (int64_t t = 0; t < length; ++t)
            for (int64_t c = 0; c < size; ++c) out[b][i][t][c] += a[i][j] * in[b][j][t][c];
    return result;
  }
  if (name == "pair-norm") {
    const at::Tensor norm_weight = single["combiner.norm.weight"].to(at::kDouble);
    const auto w = norm_weight.accessor<double, 1>();
    for (int64_t b = 0; b < num_rows; ++b)
      for (int64_t i = 0; i < num_heads; i += 2)
        for (int64_t t = 0; t < length; ++t) {
          double squares = 0;
          for (int64_t c = 0; c < 2 * size; ++c) squares += std::pow(in[b][i + c / size][t][c % size], 2);
          const double rms = std::sqrt(squares / static_cast<double>(2 * size) + 1e-5);
          for (int64_t c = 0; c < 2 * size; ++c)
            out[b][i + c / size][t][c % size] = (1 - lambda_init(0)) * w[c] * in[b][i + c / size][t][c % size] / rms;
        }
    return result;
  }
  CombinerRecorder recorder;
  single(x, x, causal_mask(), forward_context, &recorder);
  REQUIRE(recorder.weights.size() <= 1);  // a combiner that scales no head shows no weights
  const at::Tensor weights =
      recorder.weights.empty() ? at::ones({num_heads}, at::kDouble) : recorder.weights.front().to(at::kDouble);
  for (int64_t b = 0; b < num_rows; ++b)
    for (int64_t t = 0; t < length; ++t) {
      const at::Tensor row = weights.dim() == 1 ? weights : weights.dim() == 2 ? weights[b] : weights[b][t];
      const auto w = row.accessor<double, 1>();
      for (int64_t i = 0; i < num_heads; ++i)
        for (int64_t c = 0; c < size; ++c) out[b][i][t][c] = w[i] * in[b][i][t][c];
    }
  return result;
}

// Four heads, of which pair-norm needs an even number and mixture-of-heads at least four.
constexpr const char* kSizes = "heads = 4\nhead_size = 16\n";
constexpr int64_t kWidth = 32;

}  // namespace

TEST_CASE("a text and a list of one text name the same combiner, and the empty list is the default") {
  for (const char* name : {"mae", "alphas", "concatenate"}) {
    INFO(name);
    const std::string text = written(str("combiner = '", name, "'"));
    CHECK(text.find(str("combiner = \"", name, "\"\n")) != std::string::npos);
    CHECK(written(combiner_line({name})) == text);
    CHECK(written(text.substr(text.find('\n', text.find("[attention]")) + 1)) == text);
  }
  CHECK(written("combiner = []") == written(""));
  const std::string pair = written("combiner = ['gates', 'mae']\ndecoder.self.1.combiner = []\n");
  CHECK(pair.find("combiner = [\"gates\", \"mae\"]\n") != std::string::npos);
  CHECK(pair.find("[attention.decoder.self.1]\ncombiner = \"concatenate\"\n") != std::string::npos);
  // Each combiner has its own section of options.
  const AttentionOptions options =
      layers::options_of(combiner_line({"gates", "mae"}) + "gates.start = 0.75\nmae.omitted_heads = 2");
  CHECK(options.combiner == Names{"gates", "mae"});
  CHECK(options.stages.contains("gates"));
  CHECK(options.stages.contains("mae"));
}

TEST_CASE(
    "a list with a repeated combiner, with the default among others, or with heads mixed before its end is refused") {
  const auto error = [](const std::string& lines) { return refusal([&] { Layer("heads = 4\n" + lines, 8); }); };
  for (const auto& [lines, reason] : std::map<std::string, std::string>{
           {combiner_line({"gates", "gates"}), "each combiner once"},
           {combiner_line({"gates", "concatenate"}), "'concatenate' alone, since it is the list without combiners"},
           {combiner_line({"alphas", "gates"}), "no combiner after 'alphas', which mixes heads"},
           {combiner_line({"alphas", "gates"}) + "output_heads = 2\n", "no combiner after 'alphas', which mixes heads"},
           {combiner_line({"gates", "mae"}) + "output_heads = 2\n", "choose a combiner that mixes heads"},
           {combiner_line({"gates", "no-such"}), "a list whose every entry is one of: alphas, "},
           {"combiner = 'no-such'\n", "expected one of: alphas, "}}) {
    INFO(lines);
    const std::string message = error(lines);
    INFO(message);
    CHECK(message.find(reason) != std::string::npos);
  }
  CHECK(error(combiner_line({"gates", "mae", "alphas"}) + "output_heads = 2\n").empty());
}

TEST_CASE("the outputs of two combiners equal plain loops over the combiners in order, in training and evaluation") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, kWidth}, 1);
  const Mask mask = causal_mask();
  for (const Names& names : combiner_pairs()) {
    INFO(combiner_line(names));
    for (const bool is_training : {false, true}) {
      const nn::ForwardContext forward_context{is_training, 7, 3};
      PerturbedLayer l(kSizes + combiner_line(names), kWidth, 5);
      const layers::LayerRounding rounding =
          layers::rounding_of(l, [&](Observer& observer) { l(x, x, mask, forward_context, &observer); });
      CombinerRecorder recorder;
      const at::Tensor observed_output = l(x, x, mask, forward_context, &recorder);
      at::Tensor heads = recorder.z.to(at::kDouble);
      for (const std::string& name : names) {
        Layer single(kSizes + combiner_line({name}), kWidth);
        single.copy_parameters_from(l);
        heads = combine_by_loops(single, heads, x, forward_context);
      }
      const at::Tensor expected = layers::output_by_heads(l, heads, at::ones({4}));
      CHECK(rounding.combiners_agree(observed_output, expected));
      for (const Path path : {Path::fused, Path::composed}) {
        l.layer->set_path(path);
        CHECK(rounding.agree(l(x, x, mask, forward_context), expected));
      }
    }
  }
}

TEST_CASE("the gradients of lists of combiners equal finite differences of plain loops") {
  const auto sigmoid = [](double logit) { return 1 / (1 + std::exp(-logit)); };
  // Returns the factor of head j for weights w of gates, of hard-concrete gates with the default interval, and
  // constants.
  const auto factor = [&](const Weights& w, const AttentionOptions& options, size_t j) {
    double product = options.stages.contains("head-weights") ? 0.5 + static_cast<double>(j) : 1;
    if (w.contains("combiner.gate.bias")) product *= sigmoid(w.at("combiner.gate.bias")[j]);
    if (w.contains("combiner.log_a")) product *= -0.1 + 1.2 * sigmoid(w.at("combiner.log_a")[j]);
    return product;
  };
  for (const Names& names : std::vector<Names>{
           {"gates", "alphas"}, {"head-weights", "gates"}, {"hard-concrete", "head-weights", "gates", "alphas"}}) {
    INFO(combiner_line(names));
    const bool has_constants = std::find(names.begin(), names.end(), "head-weights") != names.end();
    Layer l("heads = 3\nhead_size = 2\nvalue_size = 3\n" + combiner_line(names) +
                (has_constants ? "head-weights.weights = [0.5, 1.5, 2.5]\n" : ""),
            4, 5);
    l.perturb_parameters(3);
    const reference::HeadMixing sizes{
        .batch = 2, .queries = 3, .keys = 3, .width = 4, .heads = 3, .softmax_heads = 3, .dk = 2, .dv = 3};
    for (const Path path : {Path::automatic, Path::composed}) {
      l.layer->set_path(path);
      layers::check_gradients(
          l, normal({2, 3, 4}, 7),
          [&](const at::Tensor& x, Observer* observer) { return l(x, x, causal_mask(), {}, observer); },
          [&](const Weights& w, const Vector& x) {
            Weights combined = w;
            Vector& alpha = combined["combiner.alpha"];
            if (alpha.empty()) alpha = {1, 0, 0, 0, 1, 0, 0, 0, 1};
            for (size_t i = 0; i < 3; ++i)
              for (size_t j = 0; j < 3; ++j) alpha[3 * i + j] *= factor(w, l.options, j);
            return reference::head_mixing(sizes, combined, x, x, [](int64_t, int64_t t, int64_t s) { return s <= t; });
          });
    }
  }
}

TEST_CASE("a layer with two combiners takes the fused path, with the outputs and gradients of the composed path") {
  const at::Tensor x = normal({2, 20, kWidth}, 1);
  for (const Names& names : combiner_pairs()) {
    INFO(combiner_line(names));
    PerturbedLayer l(kSizes + combiner_line(names), kWidth, 5);
    CHECK(l.layer->describe_path(false) == "fused");
    const auto run = [&](Path path) {
      l.layer->set_path(path);
      return layers::results_of(
          l, x, [&](const at::Tensor& input) { return l(input, input, causal_mask()); }, true);
    };
    const layers::Results fused = run(Path::fused), composed = run(Path::composed);
    const layers::LayerRounding rounding = layers::rounding_of(l, x, x, causal_mask());
    const double largest_entry = numbers::max_abs(layers::magnitudes_of(composed).front());
    REQUIRE(fused.size() == composed.size());
    CHECK(rounding.agree(fused[0], composed[0]));
    for (size_t i = 1; i < fused.size(); ++i) CHECK(rounding.gradients_agree(fused[i], composed[i], largest_entry));
  }
}

TEST_CASE("an observer receives the gates of each combiner, and the product of all weights once") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, kWidth}, 1);
  const std::string mae_lines = "mae.hidden = 5\n";
  for (const Names& names : std::vector<Names>{{"gates", "mae"}, {"mae", "pair-norm", "gates"}}) {
    INFO(combiner_line(names));
    PerturbedLayer l(kSizes + combiner_line(names) + mae_lines, kWidth, 5);
    CHECK(l.layer->has_head_gates());
    CombinerRecorder recorder;
    l(x, x, causal_mask(), {}, &recorder);
    REQUIRE(recorder.gates.size() == 2);
    REQUIRE(recorder.weights.size() == 1);
    at::Tensor product = at::ones({}, at::kDouble);
    for (const std::string name : {"gates", "mae"}) {
      Layer single(kSizes + combiner_line({name}) + (name == "mae" ? mae_lines : ""), kWidth);
      single.copy_parameters_from(l);
      CombinerRecorder single_recorder;
      single(x, x, causal_mask(), {}, &single_recorder);
      REQUIRE(single_recorder.gates.size() == 1);
      const GateObservation& gates = recorder.gates[name == names.front() ? 0 : 1];
      CHECK(at::equal(gates.gates, single_recorder.gates.front().gates));
      CHECK(gates.are_of_experts == (name == "mae"));
      product = product * single_recorder.weights.front().to(at::kDouble);
    }
    CHECK(rounding::agree(recorder.weights.front(), product.to(at::kFloat), 2));
  }
}

TEST_CASE("the matrix of a list is the product of the matrices at its end") {
  c10::NoGradGuard no_gradient;
  const auto lines = [](const Names& names) { return "heads = 4\n" + combiner_line(names); };
  PerturbedLayer all(lines({"gates", "drop-head", "alphas"}) + "output_heads = 3\n", 8, 5),
      some(lines({"hard-concrete", "mae", "gates", "alphas"}), 8, 5), none(lines({"gates", "mae"}), 8, 5);
  // Returns the matrix m[j, i] = α[i, j] σ(b_j).
  const auto gates_then_alphas = [](PerturbedLayer& l) {
    const Vector alpha = numbers::doubles(l["combiner.alpha"]), bias = numbers::doubles(l["combiner.gate.bias"]);
    const int64_t num_outputs = l.layer->layer_spec().output_heads;
    at::Tensor matrix = at::zeros({4, num_outputs}, at::kDouble);
    auto m = matrix.accessor<double, 2>();
    for (int64_t j = 0; j < 4; ++j)
      for (int64_t i = 0; i < num_outputs; ++i)
        m[j][i] = alpha[static_cast<size_t>(4 * i + j)] / (1 + std::exp(-bias[static_cast<size_t>(j)]));
    return matrix;
  };
  for (PerturbedLayer* l : {&all, &some})
    CHECK(rounding::agree(l->layer->as_linear_map().to(at::kFloat), gates_then_alphas(*l).to(at::kFloat), 8));
  CHECK(!none.layer->as_linear_map().defined());
  CHECK(all.layer->options_after_folding().combiner == AttentionOptions().combiner);
  CHECK(all.layer->options_after_folding().output_heads == 0);
  CHECK(some.layer->options_after_folding().combiner == Names{"hard-concrete", "mae"});
}
