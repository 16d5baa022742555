// Measures of head importance and head discrepancy, compared with plain loops over observed attention weights, head
// outputs and gradients.
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "analysis/discrepancy.h"
#include "analysis/gradient_products.h"
#include "analysis/rotation.h"
#include "attention/gated_combiner.h"
#include "attention/head_scales.h"
#include "data/text.h"
#include "fixtures/corpora.h"
#include "fixtures/numbers.h"
#include "fixtures/passes.h"
#include "fixtures/status.h"
#include "model/model_config.h"

using namespace mh;
using namespace mh::analysis;
using attention::HeadScales;
using attention::HeadSide;
using numbers::normal;

namespace {

constexpr SideSelection kSides[] = {SideSelection::whole, SideSelection::score, SideSelection::value,
                                    SideSelection::output};

std::unique_ptr<model::LanguageModel> build_model(const std::string& attention, const std::string& model_lines = "") {
  Config config;
  config.load_text("[model]\nlayers = 2\nwidth = 12\nffn = 16\nactivation = 'gelu'\n" + model_lines +
                       "[attention]\nheads = 3\n" + attention,
                   "test");
  auto model = model::build_language_model(model::ModelConfig::read(config), 7, at::kCPU);
  model->parameters().initialise(3);
  c10::NoGradGuard no_gradient;
  uint64_t seed = 1;
  for (auto& p : model->parameters().all())
    if (p.traits().trainable) p.master().add_(normal(p.master().sizes().vec(), seed++), 0.3);
  return model;
}

const std::string kTransformerXl = "backbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 6\n";

std::vector<int32_t> make_text(int n) {
  std::vector<int32_t> text;
  for (int i = 0; i < n; ++i) text.push_back(i * i * i % 7);
  return text;
}

// A model, and the text on which the importance of its heads is measured. The last block of the text is padded.
struct MeasuredModel {
  std::unique_ptr<model::LanguageModel> model;
  std::vector<int32_t> tokens = make_text(61);
  data::Text text = corpora::text_of(tokens, 0);
  data::ScoringOptions scoring_options;
  explicit MeasuredModel(const std::string& attention, const std::string& model_lines = "")
      : model(build_model(attention, model_lines)) {
    scoring_options.block = 8;
    if (!model_lines.empty()) scoring_options.streams = 3;
    scoring_options.batch = 1;
    scoring_options = text.resolve(scoring_options, *model);
  }
  AnalysisInput analysis_input(SideSelection side, int64_t batch = 2) const {
    AnalysisInput input{*model, text, scoring_options, side};
    input.scoring_options.batch = batch;
    return input;
  }
  attention::AttentionLayer& layer(size_t i) { return *model->attention_layers()[i]; }
  int64_t max_keys() const {
    return scoring_options.block + model->memory_length();
  }  // largest number of keys of a query
  // Returns the bound on the difference of two forward passes in batches of different shapes, relative to the largest
  // result.
  double pass_bound() const { return rounding::pass_bound(*model, max_keys()); }
  // Returns the bound on the difference of two importance scores, relative to the larger of 1 and the largest score. It
  // is the bound for two passes with gradients, since the measures themselves are computed in fp64.
  double importance_bound() const { return rounding::gradient_bound(*model, max_keys()); }
};

// The tensors that an observer receives from each layer, and the gradients of the loss. Each forward pass has one row
// of the text. x is undefined in a layer without a mixer, w in a layer whose combiner has no weights.
struct ObservedTensors {
  struct ForwardPass {
    int64_t length = 0;     // tokens in the row, without padding
    at::Tensor x, p;        // (h, Tq, Tk): input of the mixer; attention weights after the mixer
    at::Tensor z, c;        // (h, Tq, dv): head outputs before and after the combiner
    at::Tensor w;           // (h) or (B, Tq, h): weights of the heads in the combiner
    at::Tensor dx, dz, dc;  // gradients of the loss with respect to x, z and c
  };
  std::vector<std::vector<ForwardPass>> layers{2};  // indexed by layer, then by forward pass
};

struct Recorder : attention::Observer, attention::Subscriber<attention::HeadWeightObservation> {
  int64_t length = 0;
  ObservedTensors::ForwardPass current[2];  // tensors of the current forward pass, indexed by layer
  void begin_batch(const attention::Lengths& lengths) override { length = lengths.decoder[0].item<int64_t>(); }
  void observe_probabilities(const attention::LayerSpec& s, const at::Tensor& p) override { current[s.layer].p = p; }
  at::Tensor intercept_heads(HeadSide side, const attention::LayerSpec& s, const at::Tensor& x) override {
    ObservedTensors::ForwardPass& tensors = current[s.layer];
    return (side == HeadSide::score ? tensors.x : side == HeadSide::value ? tensors.z : tensors.c) = x;
  }
  void receive(const attention::LayerSpec& s, attention::HeadWeightObservation& observation) override {
    current[s.layer].w = observation.weights;
  }
};

ObservedTensors observe_passes(MeasuredModel& measured_model) {
  ObservedTensors recording;
  Recorder recorder;
  data::BatchVisitor visitor;
  visitor.observer = &recorder;
  visitor.visit = [&](const data::ForwardedBatch& pass) {
    const auto loss = measured_model.model->loss(pass.hidden, pass.batch.targets, 0).smoothed;
    // Computes all gradients in one backward pass, since SlicedLoss supports only one.
    std::vector<at::Tensor> inputs;
    for (const auto& tensors : recorder.current)
      for (const at::Tensor& t : {tensors.z, tensors.c, tensors.x})
        if (t.defined()) inputs.push_back(t);
    const auto gradients = torch::autograd::grad({loss}, inputs);
    size_t next = 0;
    for (size_t layer = 0; layer < 2; ++layer) {
      ObservedTensors::ForwardPass& tensors = recorder.current[layer];
      tensors.length = recorder.length;
      tensors.dz = gradients[next++][0], tensors.dc = gradients[next++][0];
      if (tensors.x.defined()) tensors.dx = gradients[next++][0], tensors.x = tensors.x[0];
      tensors.p = tensors.p[0], tensors.z = tensors.z[0], tensors.c = tensors.c[0];
      for (at::Tensor* t :
           {&tensors.x, &tensors.p, &tensors.z, &tensors.c, &tensors.w, &tensors.dx, &tensors.dz, &tensors.dc})
        if (t->defined()) *t = t->detach().to(at::kDouble).contiguous();
      recording.layers[layer].push_back(tensors);
    }
    for (auto& tensors : recorder.current) tensors = {};
  };
  data::for_each_batch(*measured_model.model, measured_model.text, measured_model.scoring_options, visitor);
  return recording;
}

double element(const at::Tensor& t, int64_t i, int64_t j, int64_t k) {
  return t.const_data_ptr<double>()[(i * t.size(1) + j) * t.size(2) + k];
}

using HeadValues = std::vector<double>;

// Returns, for each of the 3 heads, the mean Frobenius distance to the other two heads, averaged over forward passes.
// `tensor_of` returns the tensor (h, Tq, …) of a pass that holds the heads to compare.
HeadValues head_distances(const std::vector<ObservedTensors::ForwardPass>& passes,
                          const std::function<at::Tensor(const ObservedTensors::ForwardPass&)>& tensor_of) {
  HeadValues scores(3, 0.0);
  double count = 0;
  for (const auto& pass : passes) {
    if (pass.length == 0) continue;
    const at::Tensor x = tensor_of(pass);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 3; ++j) {
        double squares = 0;
        for (int64_t t = 0; t < pass.length; ++t)
          for (int64_t s = 0; s < x.size(2); ++s) squares += std::pow(element(x, i, t, s) - element(x, j, t, s), 2);
        scores[static_cast<size_t>(i)] += std::sqrt(squares) / 2;
      }
    ++count;
  }
  for (double& s : scores) s /= count;
  return scores;
}

// Returns, for each head, the mean of value_at(pass, head, position) over the positions of all forward passes.
HeadValues mean_over_positions(
    const std::vector<ObservedTensors::ForwardPass>& passes,
    const std::function<double(const ObservedTensors::ForwardPass&, int64_t, int64_t)>& value_at) {
  HeadValues scores(3, 0.0);
  double count = 0;
  for (const auto& pass : passes) {
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t t = 0; t < pass.length; ++t) scores[static_cast<size_t>(i)] += value_at(pass, i, t);
    count += static_cast<double>(pass.length);
  }
  for (double& s : scores) s /= count;
  return scores;
}

// Returns the inner product of x[i][t] and d[i][t], with head i and position t.
double inner_product(const at::Tensor& x, const at::Tensor& d, int64_t i, int64_t t) {
  double sum = 0;
  for (int64_t s = 0; s < x.size(2); ++s) sum += element(x, i, t, s) * element(d, i, t, s);
  return sum;
}

// Returns the scores of a layer's heads, computed by plain loops over its forward passes.
HeadValues reference_scores(const std::string& measure, SideSelection side,
                            const std::vector<ObservedTensors::ForwardPass>& passes,
                            const attention::AttentionLayer& layer) {
  auto p_of = [&](const ObservedTensors::ForwardPass& pass) { return side == SideSelection::score ? pass.x : pass.p; };
  auto z_of = [&](const ObservedTensors::ForwardPass& pass) { return side == SideSelection::output ? pass.c : pass.z; };
  if (measure == "avg-l2") return head_distances(passes, p_of);
  if (measure == "avg-l2-outputs") return head_distances(passes, z_of);
  if (measure == "confidence")
    return mean_over_positions(passes, [&](const ObservedTensors::ForwardPass& pass, int64_t i, int64_t t) {
      const at::Tensor p = p_of(pass);
      double largest = -1e9;
      for (int64_t s = 0; s < p.size(2); ++s) largest = std::max(largest, element(p, i, t, s));
      return largest;
    });
  if (measure == "received")
    return mean_over_positions(passes, [&](const ObservedTensors::ForwardPass& pass, int64_t i, int64_t s) {
      const at::Tensor p = p_of(pass);
      const int64_t memory = p.size(2) - p.size(1);
      double largest = -1e9;
      for (int64_t t = 0; t < pass.length; ++t) largest = std::max(largest, element(p, i, t, memory + s));
      return largest;
    });
  if (measure == "entropy")
    return mean_over_positions(passes, [&](const ObservedTensors::ForwardPass& pass, int64_t i, int64_t t) {
      const at::Tensor p = p_of(pass);
      double row_sum = 0, sum = 0;
      for (int64_t s = 0; s < p.size(2); ++s) row_sum += std::abs(element(p, i, t, s));
      for (int64_t s = 0; s < p.size(2); ++s)
        if (const double q = std::abs(element(p, i, t, s)) / row_sum; q > 0) sum += q * std::log(q);
      return sum;
    });
  if (measure == "taylor")
    return mean_over_positions(passes, [&](const ObservedTensors::ForwardPass& pass, int64_t i, int64_t t) {
      double sum = 0;
      const bool whole = side == SideSelection::whole;
      if (side == SideSelection::value || whole) sum += inner_product(pass.z, pass.dz, i, t);
      if (side == SideSelection::score || (whole && layer.has_separate_heads(HeadSide::score)))
        sum += inner_product(pass.x, pass.dx, i, t);
      if (side == SideSelection::output || (whole && layer.has_separate_heads(HeadSide::output)))
        sum += inner_product(pass.c, pass.dc, i, t);
      return std::abs(sum);
    });
  FAIL("no reference for " << measure);
  return {};
}

struct StageCase {
  std::string attention;
  bool has_mixer, mixes_logits, has_alphas, has_gates;
};
const std::vector<StageCase>& stage_cases() {
  static const std::vector<StageCase> cases{
      {"", false, false, false, false},
      {"mixer = 'mixhead-a'\n", true, false, false, false},
      {"mixer = 'mixhead-a'\nmixhead-a.on = 'logits'\n", true, true, false, false},
      {"mixer = 'mixhead-b'\ncombiner = 'alphas'\n", true, false, true, false},
      {"combiner = 'alphas'\n", false, false, true, false},
      {"combiner = 'gates'\ngates.input = true\n", false, false, false, true},
      {"combiner = 'mae'\n[attention.mae]\nhidden = 5\n", false, false, false, true}};
  return cases;
}

// Returns whether the measure is defined for the whole, score, value or output heads (`side`) of a layer with these
// stages.
bool is_defined(const std::string& measure, SideSelection side, const StageCase& s) {
  if (side == SideSelection::score && !s.has_mixer) return false;
  if (side == SideSelection::output && !s.has_alphas) return false;
  static const std::set<std::string> attention_measures{"avg-l2", "confidence", "received", "entropy"};
  if (attention_measures.count(measure) > 0)
    return side != SideSelection::output && !(side == SideSelection::score && s.mixes_logits);
  if (measure == "avg-l2-outputs") return side != SideSelection::score;
  if (measure == "gate") return s.has_gates && (side == SideSelection::whole || side == SideSelection::value);
  if (measure == "alpha")
    return side == SideSelection::output  ? s.has_alphas
           : side == SideSelection::score ? s.has_mixer
                                          : s.has_mixer || s.has_alphas;
  return true;
}

bool is_near(const HeadValues& actual, const HeadValues& expected, double bound) {
  return actual.size() == expected.size() && numbers::max_relative_difference(actual, expected) <= bound;
}

const LayerScores& decoder_self_scores(const std::map<AttentionKind, LayerScores>& all) {
  return all.at(AttentionKind::decoder_self);
}

}  // namespace

TEST_CASE("importance from attention weights, head outputs and gradients equals plain loops", "[importance]") {
  for (const std::string& model_lines : {std::string(), kTransformerXl})
    for (const StageCase& stages : stage_cases()) {
      MeasuredModel measured_model(stages.attention, model_lines);
      const ObservedTensors recording = observe_passes(measured_model);
      for (const char* measure : {"avg-l2", "avg-l2-outputs", "confidence", "received", "entropy", "taylor"})
        for (SideSelection side : kSides) {
          if (!is_defined(measure, side, stages)) continue;
          INFO(stages.attention << model_lines << measure << " " << analysis::name_of(side));
          const auto scores = decoder_self_scores(importance_of(measure, measured_model.analysis_input(side)));
          REQUIRE(scores.size() == 2);
          std::set<double> distinct_scores;
          for (size_t layer = 0; layer < 2; ++layer) {
            CHECK(is_near(scores[layer],
                          reference_scores(measure, side, recording.layers[layer], measured_model.layer(layer)),
                          measured_model.importance_bound()));
            distinct_scores.insert(scores[layer].begin(), scores[layer].end());
          }
          CHECK(distinct_scores.size() > 1);
        }
    }
}

TEST_CASE("check_importance() refuses exactly the measures that are undefined for whole, score, value or output heads",
          "[importance]") {
  for (const StageCase& stages : stage_cases()) {
    MeasuredModel measured_model(stages.attention);
    for (const std::string& measure : importance_measures().names())
      for (SideSelection side : kSides) {
        if (measure == "ablation") continue;
        INFO(stages.attention << measure << " " << analysis::name_of(side));
        const int status = status_of([&] { check_importance(measure, "--by", *measured_model.model, side); });
        CHECK(status == (is_defined(measure, side, stages) ? 0 : 2));
        if (status == 2) CHECK(status_of([&] { importance_of(measure, measured_model.analysis_input(side)); }) == 2);
      }
  }
  MeasuredModel measured_model("");
  CHECK(status_of([&] { importance_of("tailor", measured_model.analysis_input(SideSelection::whole)); }) == 2);
}

TEST_CASE("in cross-attention, the measure received is the mean over unmasked keys of the largest weight of each key",
          "[importance]") {
  attention::LayerSpec spec;
  spec.kind = AttentionKind::decoder_cross;
  // Attention weights (2, 2, 2, 3): two batch rows, two heads, two queries, three keys. In batch row 1, query 1 is
  // padding and key 2 is masked.
  at::Tensor p = at::tensor({0.2, 0.5, 0.3, 0.6, 0.3, 0.1, 0.1, 0.1, 0.8, 0.4, 0.4, 0.2,  //
                             0.9, 0.1, 0.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.0, 0.0, 0.0, 1.0},
                            at::kFloat)
                     .view({2, 2, 2, 3});
  const auto measure = importance_measures().make("received", "")->make_observer(SideSelection::whole);
  measure->begin_batch(at::tensor({2, 1}, at::kLong));
  measure->observe_probabilities(spec, p);
  const auto scores = measure->mean_scores().at(AttentionKind::decoder_cross)[0];
  // The bound is one rounding of the weights, to fp32.
  CHECK(is_near(scores, {(0.6 + 0.5 + 0.3 + 0.9 + 0.1) / 5, (0.4 + 0.4 + 0.8 + 0.5 + 0.5) / 5},
                tolerance::chain_error_bound(1, tolerance::kFp32, 1)));
}

TEST_CASE("the measure gate is the mean absolute weight of a head in the combiner", "[importance]") {
  for (const std::string& attention :
       {std::string("combiner = 'gates'\ngates.input = true\n"), std::string("combiner = 'hard-concrete'\n"),
        std::string("combiner = 'head-weights'\nhead-weights.weights = [1, -2, 0.5]\n"),
        std::string("combiner = 'mixture-of-heads'\nmixture-of-heads.shared = 1\nmixture-of-heads.chosen = 1\n"),
        std::string("combiner = 'mae'\n[attention.mae]\nhidden = 5\ndrop = 2\n"),
        std::string("combiner = 'mae'\nmae.gate = 'uniform'\n")}) {
    INFO(attention);
    MeasuredModel measured_model(attention);
    const ObservedTensors recording = observe_passes(measured_model);
    const auto scores = decoder_self_scores(importance_of("gate", measured_model.analysis_input(SideSelection::whole)));
    for (size_t layer = 0; layer < 2; ++layer) {
      CHECK(is_near(scores[layer],
                    mean_over_positions(recording.layers[layer],
                                        [](const ObservedTensors::ForwardPass& pass, int64_t i, int64_t t) {
                                          const at::Tensor w = pass.w.dim() == 1 ? pass.w : pass.w[0][t];
                                          return std::abs(w[i].item<double>());
                                        }),
                    measured_model.pass_bound()));
      // The combiner multiplies head outputs by these weights, in one rounding. A weight of `mae` is the sum of the
      // gates of up to 3 experts times a constant, in at most 4 roundings.
      for (const auto& pass : recording.layers[layer])
        for (int64_t i = 0; i < 3; ++i)
          for (int64_t t = 0; t < pass.length; ++t) {
            const at::Tensor w = pass.w.dim() == 1 ? pass.w : pass.w[0][t];
            const at::Tensor product = pass.z[i][t] * w[i];
            CHECK(numbers::error(product, pass.c[i][t]) <=
                  tolerance::chain_error_bound(1 + 4, tolerance::kFp32, numbers::max_abs(product)));
          }
    }
  }
}

TEST_CASE("the measure taylor is independent of the batch size and does not change gradients or frozen parameters",
          "[importance]") {
  MeasuredModel measured_model("mixer = 'mixhead-a'\n");
  auto& parameters = measured_model.model->parameters();
  parameters.all()[1].set_trained(false);
  const auto batch_1 =
      decoder_self_scores(importance_of("taylor", measured_model.analysis_input(SideSelection::whole, 1)));
  const auto batch_100 =
      decoder_self_scores(importance_of("taylor", measured_model.analysis_input(SideSelection::whole, 100)));
  for (size_t layer = 0; layer < 2; ++layer)
    CHECK(is_near(batch_1[layer], batch_100[layer], measured_model.importance_bound()));
  for (const auto& p : parameters.all()) {
    CHECK_FALSE(p.master().grad().defined());
    CHECK(p.master().requires_grad() == (p.traits().trainable && &p != &parameters.all()[1]));
  }
}

TEST_CASE(
    "the sum of gradient products over positions is the derivative of the loss with respect to the scale of a head",
    "[importance]") {
  for (const StageCase& stages : stage_cases()) {
    MeasuredModel measured_model(stages.attention);
    for (SideSelection side : kSides) {
      if (!is_defined("taylor", side, stages)) continue;
      INFO(stages.attention << analysis::name_of(side));
      GradientProductObserver products(*measured_model.model, side);
      std::vector<at::Tensor> sums(2);
      data::BatchVisitor visitor;
      visitor.observer = &products;
      visitor.visit = [&](const data::ForwardedBatch& pass) {
        for (const auto& layer :
             products.collect(measured_model.model->loss(pass.hidden, pass.batch.targets, 0).smoothed)) {
          at::Tensor& sum = sums[static_cast<size_t>(layer.layer_spec->layer)];
          const at::Tensor batch_sum = layer.products.to(at::kDouble).sum(at::IntArrayRef({0, 2}));
          sum = sum.defined() ? sum + batch_sum : batch_sum;
        }
      };
      data::for_each_batch(*measured_model.model, measured_model.text, measured_model.scoring_options, visitor);
      // The loss is computed in fp32. The error of one token's loss is at most chain_error_bound(), and the errors of
      // different tokens are independent.
      const int64_t operations = rounding::num_pass_roundings(*measured_model.model, measured_model.max_keys());
      const auto tokens = static_cast<double>(measured_model.tokens.size());
      const double sum_nll =
                       task::score(*measured_model.model, measured_model.text, measured_model.scoring_options).nll,
                   noise =
                       std::sqrt(tokens) * tolerance::chain_error_bound(operations, tolerance::kFp32, sum_nll / tokens);
      double largest = 0, largest_bound = 0;
      for (size_t layer = 0; layer < 2; ++layer)
        for (int64_t head = 0; head < 3; ++head) {
          auto loss = [&](double weight) {
            at::Tensor scale = at::ones({3});
            scale[head] = weight;
            HeadScales scales;
            const auto sides = sides_in(measured_model.layer(layer), side);
            for (HeadSide s : sides)
              (s == HeadSide::score ? scales.score : s == HeadSide::value ? scales.value : scales.output) = scale;
            set_head_scales(measured_model.layer(layer), scales);
            const double nll =
                task::score(*measured_model.model, measured_model.text, measured_model.scoring_options).nll;
            set_head_scales(measured_model.layer(layer), {});
            return nll;
          };
          // Richardson extrapolation of central differences, which cancels the cubic term.
          constexpr double kStep = 0.01;
          auto difference = [&](double step) { return (loss(1 + step) - loss(1 - step)) / (2 * step); };
          const double near_slope = difference(kStep), far_slope = difference(2 * kStep),
                       slope = (4 * near_slope - far_slope) / 3;
          const double actual = sums[layer][head].item<double>();
          // The truncation error is less than the term that the extrapolation cancels, (near_slope - far_slope) / 3.
          // With the step size s, the independent errors of the four losses have the weights 2/(3s), 2/(3s), 1/(12s)
          // and 1/(12s); the root of the sum of the squared weights is less than 1/s. The gradient has the errors of a
          // forward and a backward pass.
          const double bound = std::abs(near_slope - far_slope) / 3 + noise / kStep +
                               tolerance::chain_error_bound(2 * operations, tolerance::kFp32, std::abs(slope));
          CHECK(std::abs(actual - slope) <= bound);
          largest = std::max(largest, std::abs(slope)), largest_bound = std::max(largest_bound, bound);
        }
      CHECK(largest > largest_bound);  // otherwise products of 0 would pass the test
    }
  }
}

TEST_CASE("the measures weight-norm and alpha are norms of the parameters of a head", "[importance]") {
  MeasuredModel measured_model("mixer = 'mixhead-a'\ncombiner = 'alphas'\n");
  auto parameter = [&](const std::string& name) {
    const at::Tensor x = measured_model.model->parameters().find("decoder.layers.1.self." + name)->master();
    return x.detach().to(at::kDouble).reshape({x.size(0), -1}).contiguous();
  };
  // row_squares() and column_squares() return Σ w² over the rows or columns of a parameter that belong to a head.
  auto row_squares = [&](const std::string& name, int64_t head) {
    const at::Tensor x = parameter(name);
    const int64_t size = x.size(0) / 3;
    double sum = 0;
    for (int64_t i = head * size; i < (head + 1) * size; ++i)
      for (int64_t j = 0; j < x.size(1); ++j) sum += std::pow(x[i][j].item<double>(), 2);
    return sum;
  };
  auto column_squares = [&](const std::string& name, int64_t head) {
    const at::Tensor x = parameter(name);
    const int64_t size = x.size(1) / 3;
    double sum = 0;
    for (int64_t i = 0; i < x.size(0); ++i)
      for (int64_t j = head * size; j < (head + 1) * size; ++j) sum += std::pow(x[i][j].item<double>(), 2);
    return sum;
  };
  auto diagonal_square = [&](const std::string& name, int64_t i) {
    return std::pow(parameter(name)[i][i].item<double>(), 2);
  };
  const std::string m = "mixer.matrix", a = "combiner.alpha";
  std::map<std::string, std::map<SideSelection, HeadValues>> expected;
  for (int64_t i = 0; i < 3; ++i) {
    const double queries_keys = row_squares("query.weight", i) + row_squares("query.bias", i) +
                                row_squares("key.weight", i) + row_squares("key.bias", i),
                 values = row_squares("value.weight", i) + row_squares("value.bias", i),
                 outputs = column_squares("output.weight", i);
    const double matrices = row_squares(m, i) + column_squares(m, i) - diagonal_square(m, i) + row_squares(a, i) +
                            column_squares(a, i) - diagonal_square(a, i);
    expected["weight-norm"][SideSelection::score].push_back(std::sqrt(queries_keys + row_squares(m, i)));
    expected["weight-norm"][SideSelection::value].push_back(
        std::sqrt(values + column_squares(m, i) + column_squares(a, i)));
    expected["weight-norm"][SideSelection::output].push_back(std::sqrt(outputs + row_squares(a, i)));
    expected["weight-norm"][SideSelection::whole].push_back(std::sqrt(queries_keys + values + outputs + matrices));
    expected["alpha"][SideSelection::score].push_back(std::sqrt(row_squares(m, i)));
    expected["alpha"][SideSelection::value].push_back(std::sqrt(column_squares(m, i) + column_squares(a, i)));
    expected["alpha"][SideSelection::output].push_back(std::sqrt(row_squares(a, i)));
    expected["alpha"][SideSelection::whole].push_back(std::sqrt(matrices));
  }
  for (const auto& [measure, by_side] : expected)
    for (const auto& [side, scores] : by_side) {
      INFO(measure << " " << analysis::name_of(side));
      // Roundings: the sums in fp64 over the entries of the rows and columns of a head have fewer than 400 terms.
      CHECK(is_near(decoder_self_scores(importance_of(measure, measured_model.analysis_input(side)))[1], scores,
                    rounding::fp64_bound(400, 1)));
    }
}

TEST_CASE("normalise_by_layer() divides the scores of a layer by their l2 norm and leaves a layer of zeros unchanged",
          "[importance]") {
  LayerScores scores{{3, -4}, {0, 0}, {}};
  normalise_by_layer(scores);
  CHECK(scores == LayerScores{{0.6, -0.8}, {0, 0}, {}});
}

TEST_CASE("head discrepancy before and after the combiner equals plain loops", "[discrepancy]") {
  for (const std::string& model_lines : {std::string(), kTransformerXl}) {
    MeasuredModel measured_model("combiner = 'alphas'\n", model_lines);
    const ObservedTensors recording = observe_passes(measured_model);
    DiscrepancyObserver discrepancy;
    data::BatchVisitor visitor;
    visitor.observer = &discrepancy;
    visitor.visit = [](const data::ForwardedBatch&) {};
    data::for_each_batch(*measured_model.model, measured_model.text,
                         measured_model.analysis_input(SideSelection::whole, 3).scoring_options, visitor);
    const auto layers = discrepancy.layers().at(AttentionKind::decoder_self);
    REQUIRE(layers.size() == 2);
    for (size_t layer = 0; layer < 2; ++layer)
      for (auto point : {&DiscrepancyObserver::Layer::before_combiner, &DiscrepancyObserver::Layer::after_combiner}) {
        double cosine = 0, euclidean = 0, count = 0;
        for (const auto& pass : recording.layers[layer]) {
          if (pass.length == 0) continue;
          const at::Tensor z = point == &DiscrepancyObserver::Layer::before_combiner ? pass.z : pass.c;
          for (int64_t i = 0; i < 3; ++i)
            for (int64_t j = 0; j < 3; ++j) {
              if (i == j) continue;
              double dot = 0, a = 0, b = 0, squared_distance = 0;
              for (int64_t t = 0; t < pass.length; ++t)
                for (int64_t s = 0; s < z.size(2); ++s) {
                  const double x = element(z, i, t, s), y = element(z, j, t, s);
                  dot += x * y, a += x * x, b += y * y, squared_distance += (x - y) * (x - y);
                }
              cosine += 1 - dot / std::sqrt(a * b), euclidean += std::sqrt(squared_distance);
            }
          ++count;
        }
        const auto& actual = layers[layer].*point;
        CHECK(discrepancy.num_sequences() == static_cast<int64_t>(count));
        CHECK(actual.num_heads == 3);
        CHECK(actual.num_pairs() == 6);
        // A cosine is at most 1. `cosine` sums the cosines of 6 ordered pairs of heads, so it has 6 times the error of
        // one.
        CHECK(actual.cosine == rounding::within(cosine / count, measured_model.pass_bound() * 6));
        CHECK(actual.euclidean == rounding::within(euclidean / count, measured_model.pass_bound() * euclidean / count));
      }
    CHECK(std::abs(layers[0].before_combiner.cosine - layers[0].after_combiner.cosine) >
          measured_model.pass_bound() * 2 * 6);
  }
}

TEST_CASE("head discrepancy of equal, opposite and zero head outputs has the closed-form value and ignores padding",
          "[discrepancy]") {
  const attention::LayerSpec spec;
  DiscrepancyObserver discrepancy;
  discrepancy.begin_batch(at::tensor({2}, at::kLong));
  at::Tensor z = at::ones({1, 4, 3, 2});
  z.select(1, 1).neg_();
  z.select(1, 2).zero_();
  z.narrow(2, 2, 1).fill_(100);  // padding
  discrepancy.intercept_heads(HeadSide::value, spec, z);
  const auto layer = discrepancy.layers().at(spec.kind)[0];
  // Cosine distances of the heads (0, 1): 2, (0, 2): 1, (0, 3): 0, (1, 2): 1, (1, 3): 2, (2, 3): 1. Euclidean distances
  // in the same order: 4, 2, 0, 2, 4, 2. The sum over ordered pairs counts each distance twice.
  // The norms are 2 and 0, so that all results are exact.
  CHECK(layer.before_combiner.cosine == 14);
  CHECK(layer.before_combiner.euclidean == 28);
}

TEST_CASE("a layer without heads has no scores, and whole heads are refused in a layer with unequal head counts",
          "[importance]") {
  const MeasuredModel layer_without_heads("mixer = 'none'\n[attention.decoder.self.0]\nheads = 0\n");
  for (const std::string name : {"taylor", "avg-l2", "entropy", "weight-norm"}) {
    const LayerScores scores =
        importance_of(name, layer_without_heads.analysis_input(SideSelection::whole)).at(AttentionKind::decoder_self);
    CHECK(scores[0].empty());
    CHECK(scores[1].size() == 3);
  }
  const auto head_counts = head_counts_for_pairing(layer_without_heads.model->parameters(), PairSelection::random, 1, 0,
                                                   {}, {}, [](const char* key) { return std::string(key); });
  CHECK((head_counts.at(AttentionKind::decoder_self) == std::vector<int64_t>{0, 3}));
  const MeasuredModel unequal_model("mixer = 'mixhead-a'\nvalue_heads = 2\n");
  for (const std::string name : {"taylor", "weight-norm"}) {
    CHECK(status_of([&] { importance_of(name, unequal_model.analysis_input(SideSelection::whole)); }) == 2);
    CHECK(importance_of(name, unequal_model.analysis_input(SideSelection::score))
              .at(AttentionKind::decoder_self)[0]
              .size() == 3);
    CHECK(importance_of(name, unequal_model.analysis_input(SideSelection::value))
              .at(AttentionKind::decoder_self)[0]
              .size() == 2);
  }
}
