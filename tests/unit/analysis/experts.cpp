// Mixtures of attentive experts (MAE): replacing gates through an observer, the report on expert specialisation, scores
// with random experts, and refusal of models without experts.
#include "attention/methods/mae/experts.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "analysis/experts_report.h"
#include "data/text.h"
#include "fixtures/aten.h"
#include "fixtures/corpora.h"
#include "fixtures/layers.h"
#include "fixtures/passes.h"
#include "fixtures/status.h"
#include "model/model_config.h"

using namespace mh;
using namespace mh::analysis;
using numbers::normal;

namespace {

std::unique_ptr<model::LanguageModel> build_model(const std::string& attention) {
  Config config;
  config.load_text("[model]\nlayers = 2\nwidth = 8\nffn_dim = 16\n[attention]\nheads = 4\n" + attention, "test");
  auto model = model::build_language_model(model::ModelConfig::read(config), {7}, at::kCPU);
  model->parameters().initialise(3);
  c10::NoGradGuard no_gradient;
  uint64_t seed = 5;
  for (auto& p : model->parameters().all())
    if (p.traits().trainable) p.master().add_(normal(p.master().sizes().vec(), seed++), 0.4);
  return model;
}

const std::vector<int32_t>& make_text() {
  static const std::vector<int32_t> text = [] {
    std::vector<int32_t> t;
    for (int i = 0; i < 62; ++i) t.push_back(i * i * i % 7);
    return t;
  }();
  return text;
}

AnalysisInput make_analysis_input(model::LanguageModel& model, const data::Corpus& text, int64_t batch = 0) {
  data::ScoringOptions scoring_options;
  scoring_options.sequence_length = 6, scoring_options.batch = batch;
  return {model, text, scoring_options};
}

// Records the gates of each layer, one tensor per batch.
struct GateRecorder : attention::Observer, attention::Subscriber<attention::GateObservation> {
  std::vector<std::vector<at::Tensor>> gates = std::vector<std::vector<at::Tensor>>(2);  // by layer and batch
  void receive(const attention::LayerSpec& s, attention::GateObservation& observation) override {
    gates[static_cast<size_t>(s.layer)].push_back(observation.gates);
  }
};

// Replaces the gates of a layer and records its head outputs.
struct GateReplacer : attention::Observer, attention::Subscriber<attention::GateObservation> {
  at::Tensor z;            // (B, h, T, dv), head outputs
  at::Tensor replacement;  // (B, T, E), (B, E) or (h): the gates that the combiner uses instead of its own
  at::Tensor intercept_heads(attention::HeadSide side, const attention::LayerSpec&, const at::Tensor& x) override {
    return side == attention::HeadSide::value ? z = x : x;
  }
  void receive(const attention::LayerSpec&, attention::GateObservation& observation) override {
    CHECK(observation.gates.sizes() == replacement.sizes());
    observation.gates = replacement;
  }
};

// Returns whether `y` equals output_by_heads() of the layer for the head weights (h), up to rounding. An entry of `y`
// sums h · dv = 8 products and the bias; in a mixture of experts, a head weight is a scaled sum over at most 6 experts.
bool equals_output_by_heads(const at::Tensor& y, layers::Layer& layer, const at::Tensor& z,
                            const at::Tensor& head_weights) {
  return rounding::agree(y, layers::output_by_heads(layer, z, head_weights), 8 + 1 + 6 + 1);
}

const char* const kMae = "combiner = 'mae'\n[attention.mae]\nhidden = 5\n";

}  // namespace

TEST_CASE("a one-hot gate drops the heads that its expert leaves out and scales the other heads by h / (h - t)",
          "[experts]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, 8}, 1);
  attention::Mask mask;
  mask.causal = true;
  for (const char* options : {"omitted_heads = 1\n", "omitted_heads = 2\n", "omitted_heads = 2\ngate = 'uniform'\n"}) {
    INFO(options);
    layers::PerturbedLayer layer(std::string("heads = 4\ncombiner = 'mae'\n[attention.mae]\nhidden = 5\n") + options, 8,
                                 3);
    const int64_t num_omitted_heads = std::string(options).find('2') != std::string::npos ? 2 : 1;
    const auto omitted_heads = attention::omitted_heads_by_expert(4, num_omitted_heads);
    const bool has_gates_per_row = std::string(options).find("uniform") != std::string::npos;
    for (size_t e = 0; e < omitted_heads.size(); ++e) {
      GateReplacer replacer;
      const auto num_experts = static_cast<int64_t>(omitted_heads.size());
      replacer.replacement =
          at::zeros(has_gates_per_row ? std::vector<int64_t>{2, num_experts} : std::vector<int64_t>{2, 5, num_experts});
      replacer.replacement.select(-1, static_cast<int64_t>(e)).fill_(1);
      const at::Tensor y = layer(x, x, mask, {}, &replacer);
      at::Tensor scale = at::full({4}, 4.0 / static_cast<double>(4 - num_omitted_heads));
      for (int64_t head : omitted_heads[e]) scale[head] = 0;
      CHECK(equals_output_by_heads(y, layer, replacer.z, scale));
    }
  }
  // An observer can also replace the gates of the combiner 'gates', which has one gate per head.
  layers::PerturbedLayer layer("heads = 4\ncombiner = 'gates'\n", 8, 3);
  GateReplacer replacer;
  replacer.replacement = normal({4}, 5);
  const at::Tensor y = layer(x, x, mask, {}, &replacer);
  CHECK(equals_output_by_heads(y, layer, replacer.z, replacer.replacement));
}

namespace {

// Returns the bound on the error of a pointwise mutual information, the logarithm of a quotient of products of counts.
double pmi_bound(double pmi) { return rounding::fp64_bound(4, std::max(1.0, std::abs(pmi))); }

}  // namespace

TEST_CASE("the expert report equals plain loops over the gates", "[experts]") {
  c10::NoGradGuard no_gradient;
  auto model = build_model(kMae);
  const data::Text text = corpora::text_of(make_text(), 0);
  const AnalysisInput analysis_input = make_analysis_input(*model, text, 3);
  const ExpertReport report = report_experts(analysis_input, 3, 2);
  GateRecorder recorder;
  data::BatchVisitor visitor;
  visitor.observer = &recorder;
  std::vector<int32_t> inputs;  // input tokens in the order of the text, without padding
  visitor.visit = [&](const data::ForwardedBatch& pass) {
    for (size_t b = 0; b < pass.rows.size(); ++b)
      for (int64_t t = 0; t < pass.rows[b].length; ++t)
        inputs.push_back(pass.batch.input.tokens[static_cast<int64_t>(b)][t].item<int32_t>());
  };
  data::for_each_batch(*model, text, analysis_input.scoring_options, visitor);
  REQUIRE(report.layers.size() == 2);
  std::vector<int64_t> first_layer_experts;  // for each position, the expert with the largest gate in layer 0
  for (size_t layer = 0; layer < 2; ++layer) {
    double entropy = 0;
    std::vector<int64_t> counts(4);
    int64_t units = 0;
    for (const at::Tensor& g : recorder.gates[layer])
      for (int64_t b = 0; b < g.size(0); ++b)
        for (int64_t t = 0; t < g.size(1) && units < 62; ++t, ++units) {
          size_t best = 0;
          for (int64_t e = 0; e < 4; ++e) {
            const double p = g[b][t][e].item<double>();
            entropy -= p * std::log(p);
            if (p > g[b][t][static_cast<int64_t>(best)].item<double>()) best = static_cast<size_t>(e);
          }
          ++counts[best];
          if (layer == 0) first_layer_experts.push_back(static_cast<int64_t>(best));
        }
    CHECK(report.layers[layer].is_per_position);
    CHECK(report.layers[layer].num_units == 62);
    CHECK(report.layers[layer].unit_counts == counts);
    // Roundings in fp32: 4 additions, the exponential and the division in the softmax, and the logarithm and product of
    // each term. The sum of the gates differs from 1 by rounding; the report divides by this sum, the loop above does
    // not. The entropy of a unit is at most ln 4.
    CHECK(report.layers[layer].entropy_sum ==
          rounding::within(entropy, tolerance::chain_error_bound(4 + 2 + 2, tolerance::kFp32, 62 * std::log(4))));
  }
  REQUIRE(inputs.size() == 62);
  std::map<std::pair<int64_t, int32_t>, double> joint;
  std::map<int64_t, double> expert_counts;
  std::map<int32_t, double> token_counts;
  for (size_t i = 0; i < 62; ++i)
    ++joint[{first_layer_experts[i], inputs[i]}], ++expert_counts[first_layer_experts[i]], ++token_counts[inputs[i]];
  CHECK(expert_counts.size() > 1);
  REQUIRE(!report.tokens.empty());
  std::map<int64_t, std::vector<ExpertToken>> reported;
  for (const auto& t : report.tokens) {
    const double pmi =
        std::log(joint[{t.expert, t.token_id}] * 62 / (expert_counts[t.expert] * token_counts[t.token_id]));
    CHECK(t.pmi == rounding::within(pmi, pmi_bound(pmi)));
    CHECK(t.count >= 2);
    CHECK(static_cast<double>(t.count) == joint[{t.expert, t.token_id}]);
    auto& reported_tokens = reported[t.expert];
    if (!reported_tokens.empty()) CHECK(reported_tokens.back().pmi >= t.pmi);
    reported_tokens.push_back(t);
  }
  for (const auto& [key, count] : joint) {
    const auto& reported_tokens = reported[key.first];
    CHECK(reported_tokens.size() <= 3);
    if (count < 2 || reported_tokens.size() < 3) continue;
    const double pmi = std::log(count * 62 / (expert_counts[key.first] * token_counts[key.second]));
    CHECK((pmi <= reported_tokens.back().pmi + pmi_bound(pmi) ||
           std::any_of(reported_tokens.begin(), reported_tokens.end(),
                       [&](const ExpertToken& t) { return t.token_id == key.second; })));
  }
}

TEST_CASE("uniform gates have entropy ln E, and scores with random experts are independent of the batch size",
          "[experts]") {
  auto model = build_model("combiner = 'mae'\n[attention.mae]\ngate = 'uniform'\n");
  const data::Text text = corpora::text_of(make_text(), 0);
  const ExpertReport report = report_experts(make_analysis_input(*model, text), 3, 1);
  REQUIRE(report.layers.size() == 2);
  CHECK(!report.layers[0].is_per_position);
  CHECK(report.layers[0].num_units == 11);  // 62 tokens: 10 blocks of 6 tokens and one of 2
  // Gates of 1/4 are exact; only the logarithm and its product with the gate are rounded to fp32.
  CHECK(report.layers[0].entropy_sum / 11 ==
        rounding::within(std::log(4), tolerance::chain_error_bound(2, tolerance::kFp32, std::log(4))));
  CHECK(report.layers[0].unit_counts == std::vector<int64_t>({11, 0, 0, 0}));
  const auto batch_1_scores = evaluate_experts(make_analysis_input(*model, text, 1), 3),
             batch_4_scores = evaluate_experts(make_analysis_input(*model, text, 4), 3);
  REQUIRE(batch_1_scores.size() == 3);
  CHECK(batch_1_scores[0].gate_mode == "own");
  const double nll = task::score(*model, text, make_analysis_input(*model, text).scoring_options).nll;
  CHECK(batch_1_scores[0].score ==
        rounding::within(std::exp(nll / 62), rounding::perplexity_bound(*model, 6, nll, 62)));
  const auto losses = evaluate_experts(make_analysis_input(*model, text, 1), 1, {}, LossValue::mean_loss);
  CHECK(std::exp(losses[1].score) == Approx(batch_1_scores[1].score));
  // `bound`: bound on the rounding error of a perplexity of at most `max_score`. No perplexity exceeds `max_score`,
  // since none of the 3 random scores is more than 2 deviations above their mean.
  const double max_score = std::max({batch_1_scores[0].score, batch_1_scores[1].score,
                                     batch_1_scores[2].score + 2 * batch_1_scores[2].deviation}),
               bound = rounding::perplexity_bound(*model, 6, 62 * std::log(max_score), 62);
  CHECK(std::abs(batch_1_scores[1].score - batch_1_scores[0].score) > bound);
  CHECK(std::isnan(batch_1_scores[1].deviation));
  CHECK(batch_1_scores[2].deviation > 0);
  CHECK(batch_1_scores[2].num_evaluations == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(batch_1_scores[i].score == rounding::within(batch_4_scores[i].score, bound));
  // The deviation of a vector x of n scores is |x - mean| / √(n - 1) with the Euclidean norm, so its error is at most
  // √(n / (n - 1)) times the error of a score.
  CHECK(batch_4_scores[2].deviation == rounding::within(batch_1_scores[2].deviation, std::sqrt(3. / 2) * bound));
}

TEST_CASE("require_experts() refuses a model without gates over experts", "[experts]") {
  for (const char* attention : {"", "combiner = 'gates'\n", "combiner = 'alphas'\n", "combiner = 'head-weights'\n"}) {
    INFO(attention);
    auto model = build_model(attention);
    CHECK(status_of([&] { require_experts(*model); }) == 2);
  }
  for (const std::string& attention : {std::string(kMae), std::string("combiner = ['gates', 'mae']\nmae.hidden = 5\n"),
                                       std::string("combiner = 'gates'\ndecoder.self.1.combiner = 'mae'\n")}) {
    INFO(attention);
    auto model = build_model(attention);
    CHECK(status_of([&] { require_experts(*model); }) == 0);
  }
}

TEST_CASE("the expert report describes the gates of the experts of layers that also have gates of heads", "[experts]") {
  c10::NoGradGuard no_gradient;
  const data::Text text = corpora::text_of(make_text(), 0);
  // Uniform gates have entropy ln E for any gates of heads, in every layer.
  auto model = build_model("combiner = ['gates', 'mae']\nmae.gate = 'uniform'\n");
  const ExpertReport report = report_experts(make_analysis_input(*model, text), 3, 1);
  REQUIRE(report.layers.size() == 2);
  for (const LayerGates& layer : report.layers) {
    CHECK(layer.unit_counts == std::vector<int64_t>({layer.num_units, 0, 0, 0}));
    CHECK(layer.entropy_sum / static_cast<double>(layer.num_units) ==
          rounding::within(std::log(4), tolerance::chain_error_bound(2, tolerance::kFp32, std::log(4))));
  }
}
