// Importance of heads, each measure against plain loops over what a model shows; and how much heads differ.
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "analysis/discrepancy.h"
#include "analysis/head_products.h"
#include "analysis/rotation.h"
#include "attention/gated_combiner.h"
#include "attention/head_scales.h"
#include "data/text.h"
#include "fixtures/corpora.h"
#include "fixtures/numbers.h"
#include "fixtures/status.h"
#include "model/model_config.h"

using namespace mh;
using namespace mh::analysis;
using attention::HeadScales;
using attention::HeadSide;
using numbers::normal;

namespace {

constexpr Side kSides[] = {Side::whole, Side::score, Side::value, Side::output};

std::unique_ptr<model::LanguageModel> build(const std::string& attention, const std::string& more = "") {
  Config config;
  config.load_text("[model]\nlayers = 2\nwidth = 12\nffn = 16\nactivation = 'gelu'\n" + more +
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

const std::string kMemory = "backbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 6\n";

std::vector<int32_t> some_text(int n) {
  std::vector<int32_t> text;
  for (int i = 0; i < n; ++i) text.push_back(i * i * i % 7);
  return text;
}

// The last block is padded.
struct Asked {
  std::unique_ptr<model::LanguageModel> model;
  std::vector<int32_t> tokens = some_text(61);
  data::Text text = corpora::text_of(tokens, 0);
  data::ScoringOptions how;
  explicit Asked(const std::string& attention, const std::string& more = "") : model(build(attention, more)) {
    how.block = 8;
    if (!more.empty()) how.streams = 3;
    how.batch = 1;
    how = text.resolve(how, *model);
  }
  AnalysisInput subject(Side side, int64_t batch = 2) const {
    AnalysisInput s{*model, text, how, side};
    s.how.batch = batch;
    return s;
  }
  attention::AttentionLayer& layer(size_t i) { return *model->attention_layers()[i]; }
};

// What a layer shows in the passes over a text, one row a pass, with the gradient of the row's loss.
struct Shown {
  struct Pass {
    int64_t real = 0;
    at::Tensor x, p, z, c, w;  // into the mixer, (h, Tq, Tk); after it; (h, Tq, dv) before and after the combiner
    at::Tensor dx, dz, dc;
  };
  std::vector<std::vector<Pass>> layers{2};
};

struct Store : attention::Observer, attention::Subscriber<attention::WeightObservation> {
  int64_t real = 0;
  Shown::Pass now[2];
  void begin(const attention::Lengths& lengths) override { real = lengths.decoder[0].item<int64_t>(); }
  void probabilities(const attention::LayerSpec& s, const at::Tensor& p) override { now[s.layer].p = p; }
  at::Tensor heads(HeadSide side, const attention::LayerSpec& s, const at::Tensor& x) override {
    Shown::Pass& n = now[s.layer];
    return (side == HeadSide::score ? n.x : side == HeadSide::value ? n.z : n.c) = x;
  }
  void receive(const attention::LayerSpec& s, attention::WeightObservation& shown) override {
    now[s.layer].w = shown.weights;
  }
};

Shown shown(Asked& asked) {
  Shown all;
  Store store;
  data::BatchVisitor visitor;
  visitor.observer = &store;
  visitor.visit = [&](const data::VisitedBatch& pass) {
    const auto loss = asked.model->loss(pass.hidden, pass.batch.targets, 0).smoothed;
    // The sliced loss has its gradient once.
    std::vector<at::Tensor> of;
    for (const auto& n : store.now)
      for (const at::Tensor& t : {n.z, n.c, n.x})
        if (t.defined()) of.push_back(t);
    const auto gradients = torch::autograd::grad({loss}, of);
    size_t next = 0;
    for (size_t layer = 0; layer < 2; ++layer) {
      Shown::Pass& n = store.now[layer];
      n.real = store.real;
      n.dz = gradients[next++][0], n.dc = gradients[next++][0];
      if (n.x.defined()) n.dx = gradients[next++][0], n.x = n.x[0];
      n.p = n.p[0], n.z = n.z[0], n.c = n.c[0];
      for (at::Tensor* t : {&n.x, &n.p, &n.z, &n.c, &n.w, &n.dx, &n.dz, &n.dc})
        if (t->defined()) *t = t->detach().to(at::kDouble).contiguous();
      all.layers[layer].push_back(n);
    }
    for (auto& n : store.now) n = {};
  };
  data::for_each_batch(*asked.model, asked.text, asked.how, visitor);
  return all;
}

double entry(const at::Tensor& t, int64_t i, int64_t j, int64_t k) {
  return t.const_data_ptr<double>()[(i * t.size(1) + j) * t.size(2) + k];
}

using Row = std::vector<double>;

Row distances(const std::vector<Shown::Pass>& passes, const std::function<at::Tensor(const Shown::Pass&)>& of) {
  Row scores(3, 0.0);
  double count = 0;
  for (const auto& pass : passes) {
    if (pass.real == 0) continue;
    const at::Tensor x = of(pass);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 3; ++j) {
        double squares = 0;
        for (int64_t t = 0; t < pass.real; ++t)
          for (int64_t s = 0; s < x.size(2); ++s) squares += std::pow(entry(x, i, t, s) - entry(x, j, t, s), 2);
        scores[static_cast<size_t>(i)] += std::sqrt(squares) / 2;
      }
    ++count;
  }
  for (double& s : scores) s /= count;
  return scores;
}

// The mean over positions of what `at` gives for a pass, a head and a position.
Row mean_over_positions(const std::vector<Shown::Pass>& passes,
                        const std::function<double(const Shown::Pass&, int64_t, int64_t)>& at) {
  Row scores(3, 0.0);
  double count = 0;
  for (const auto& pass : passes) {
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t t = 0; t < pass.real; ++t) scores[static_cast<size_t>(i)] += at(pass, i, t);
    count += static_cast<double>(pass.real);
  }
  for (double& s : scores) s /= count;
  return scores;
}

double inner(const at::Tensor& x, const at::Tensor& d, int64_t i, int64_t t) {
  double sum = 0;
  for (int64_t s = 0; s < x.size(2); ++s) sum += entry(x, i, t, s) * entry(d, i, t, s);
  return sum;
}

// By plain loops.
Row reference(const std::string& measure, Side side, const std::vector<Shown::Pass>& passes,
              const attention::AttentionLayer& layer) {
  auto p_of = [&](const Shown::Pass& pass) { return side == Side::score ? pass.x : pass.p; };
  auto z_of = [&](const Shown::Pass& pass) { return side == Side::output ? pass.c : pass.z; };
  if (measure == "avg-l2") return distances(passes, p_of);
  if (measure == "avg-l2-outputs") return distances(passes, z_of);
  if (measure == "confidence")
    return mean_over_positions(passes, [&](const Shown::Pass& pass, int64_t i, int64_t t) {
      const at::Tensor p = p_of(pass);
      double largest = -1e9;
      for (int64_t s = 0; s < p.size(2); ++s) largest = std::max(largest, entry(p, i, t, s));
      return largest;
    });
  if (measure == "received")
    return mean_over_positions(passes, [&](const Shown::Pass& pass, int64_t i, int64_t s) {
      const at::Tensor p = p_of(pass);
      const int64_t memory = p.size(2) - p.size(1);
      double largest = -1e9;
      for (int64_t t = 0; t < pass.real; ++t) largest = std::max(largest, entry(p, i, t, memory + s));
      return largest;
    });
  if (measure == "entropy")
    return mean_over_positions(passes, [&](const Shown::Pass& pass, int64_t i, int64_t t) {
      const at::Tensor p = p_of(pass);
      double all = 0, sum = 0;
      for (int64_t s = 0; s < p.size(2); ++s) all += std::abs(entry(p, i, t, s));
      for (int64_t s = 0; s < p.size(2); ++s)
        if (const double q = std::abs(entry(p, i, t, s)) / all; q > 0) sum += q * std::log(q);
      return sum;
    });
  if (measure == "taylor")
    return mean_over_positions(passes, [&](const Shown::Pass& pass, int64_t i, int64_t t) {
      double sum = 0;
      const bool whole = side == Side::whole;
      if (side == Side::value || whole) sum += inner(pass.z, pass.dz, i, t);
      if (side == Side::score || (whole && layer.has_side(HeadSide::score))) sum += inner(pass.x, pass.dx, i, t);
      if (side == Side::output || (whole && layer.has_side(HeadSide::output))) sum += inner(pass.c, pass.dc, i, t);
      return std::abs(sum);
    });
  FAIL("no reference for " << measure);
  return {};
}

struct Stages {
  std::string attention;
  bool mixes, logits, alphas, weighs;
};
const std::vector<Stages>& all_stages() {
  static const std::vector<Stages> all{{"", false, false, false, false},
                                       {"mixer = 'mixhead-a'\n", true, false, false, false},
                                       {"mixer = 'mixhead-a'\nmixhead-a.on = 'logits'\n", true, true, false, false},
                                       {"mixer = 'mixhead-b'\ncombiner = 'alphas'\n", true, false, true, false},
                                       {"combiner = 'alphas'\n", false, false, true, false},
                                       {"combiner = 'gates'\ngates.input = true\n", false, false, false, true},
                                       {"combiner = 'mae'\n[attention.mae]\nhidden = 5\n", false, false, false, true}};
  return all;
}

bool exists(const std::string& measure, Side side, const Stages& s) {
  if (side == Side::score && !s.mixes) return false;
  if (side == Side::output && !s.alphas) return false;
  static const std::set<std::string> of_attention{"avg-l2", "confidence", "received", "entropy"};
  if (of_attention.count(measure) > 0) return side != Side::output && !(side == Side::score && s.logits);
  if (measure == "avg-l2-outputs") return side != Side::score;
  if (measure == "gate") return s.weighs && (side == Side::whole || side == Side::value);
  if (measure == "alpha") return side == Side::output ? s.alphas : side == Side::score ? s.mixes : s.mixes || s.alphas;
  return true;
}

bool near(const Row& found, const Row& wanted, double tolerance = 2e-5) {
  return found.size() == wanted.size() && numbers::worst(found, wanted) < tolerance;
}

const LayerScores& of_decoder(const std::map<AttentionKind, LayerScores>& all) {
  return all.at(AttentionKind::decoder_self);
}

}  // namespace

TEST_CASE("every measure is what plain loops over attention and head outputs give", "[importance]") {
  for (const std::string& more : {std::string(), kMemory})
    for (const Stages& stages : all_stages()) {
      Asked asked(stages.attention, more);
      const Shown seen = shown(asked);
      for (const char* measure : {"avg-l2", "avg-l2-outputs", "confidence", "received", "entropy", "taylor"})
        for (Side side : kSides) {
          if (!exists(measure, side, stages)) continue;
          INFO(stages.attention << more << measure << " " << analysis::name_of(side));
          const auto scores = of_decoder(importance_of(measure, asked.subject(side)));
          REQUIRE(scores.size() == 2);
          std::set<double> different;
          for (size_t layer = 0; layer < 2; ++layer) {
            CHECK(near(scores[layer], reference(measure, side, seen.layers[layer], asked.layer(layer))));
            different.insert(scores[layer].begin(), scores[layer].end());
          }
          CHECK(different.size() > 1);
        }
    }
}

TEST_CASE("a measure of heads that a layer does not have is refused, and no other", "[importance]") {
  for (const Stages& stages : all_stages()) {
    Asked asked(stages.attention);
    for (const std::string& measure : importances().names())
      for (Side side : kSides) {
        if (measure == "ablation") continue;
        INFO(stages.attention << measure << " " << analysis::name_of(side));
        const int status = status_of([&] { check_importance(measure, "--by", *asked.model, side); });
        CHECK(status == (exists(measure, side, stages) ? 0 : 2));
        if (status == 2) CHECK(status_of([&] { importance_of(measure, asked.subject(side)); }) == 2);
      }
  }
  Asked asked("");
  CHECK(status_of([&] { importance_of("tailor", asked.subject(Side::whole)); }) == 2);
}

TEST_CASE("received in cross-attention is the mean over the keys that are seen", "[importance]") {
  attention::LayerSpec shape;
  shape.kind = AttentionKind::decoder_cross;
  // Two heads, two queries, of which the second row's last is padding, and three keys, of which its last is masked.
  at::Tensor p = at::tensor({0.2, 0.5, 0.3, 0.6, 0.3, 0.1, 0.1, 0.1, 0.8, 0.4, 0.4, 0.2,  //
                             0.9, 0.1, 0.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.0, 0.0, 0.0, 1.0},
                            at::kFloat)
                     .view({2, 2, 2, 3});
  const auto measure = importances().make("received", "")->observing_measure(Side::whole);
  measure->begin(at::tensor({2, 1}, at::kLong));
  measure->probabilities(shape, p);
  const auto scores = measure->mean_scores().at(AttentionKind::decoder_cross)[0];
  CHECK(near(scores, {(0.6 + 0.5 + 0.3 + 0.9 + 0.1) / 5, (0.4 + 0.4 + 0.8 + 0.5 + 0.5) / 5}));
}

TEST_CASE("gate is the mean of what heads are weighed by", "[importance]") {
  for (const std::string& attention :
       {std::string("combiner = 'gates'\ngates.input = true\n"), std::string("combiner = 'hard-concrete'\n"),
        std::string("combiner = 'head-weights'\nhead-weights.weights = [1, -2, 0.5]\n"),
        std::string("combiner = 'mixture-of-heads'\nmixture-of-heads.shared = 1\nmixture-of-heads.chosen = 1\n"),
        std::string("combiner = 'mae'\n[attention.mae]\nhidden = 5\ndrop = 2\n"),
        std::string("combiner = 'mae'\nmae.gate = 'uniform'\n")}) {
    INFO(attention);
    Asked asked(attention);
    const Shown seen = shown(asked);
    const auto scores = of_decoder(importance_of("gate", asked.subject(Side::whole)));
    for (size_t layer = 0; layer < 2; ++layer) {
      CHECK(near(scores[layer],
                 mean_over_positions(seen.layers[layer], [](const Shown::Pass& pass, int64_t i, int64_t t) {
                   const at::Tensor w = pass.w.dim() == 1 ? pass.w : pass.w[0][t];
                   return std::abs(w[i].item<double>());
                 })));
      // Weights are what stands between what the combiner takes and gives.
      for (const auto& pass : seen.layers[layer])
        for (int64_t i = 0; i < 3; ++i)
          for (int64_t t = 0; t < pass.real; ++t) {
            const at::Tensor w = pass.w.dim() == 1 ? pass.w : pass.w[0][t];
            CHECK(at::allclose(pass.z[i][t] * w[i], pass.c[i][t], 1e-4, 1e-5));
          }
    }
  }
}

TEST_CASE("taylor does not depend on the batch, and leaves the model as it was", "[importance]") {
  Asked asked("mixer = 'mixhead-a'\n");
  auto& parameters = asked.model->parameters();
  parameters.all()[1].set_trained(false);
  const auto one = of_decoder(importance_of("taylor", asked.subject(Side::whole, 1)));
  const auto all = of_decoder(importance_of("taylor", asked.subject(Side::whole, 100)));
  for (size_t layer = 0; layer < 2; ++layer) CHECK(near(one[layer], all[layer]));
  for (const auto& p : parameters.all()) {
    CHECK_FALSE(p.master().grad().defined());
    CHECK(p.master().requires_grad() == (p.traits().trainable && &p != &parameters.all()[1]));
  }
}

TEST_CASE("taylor's products sum to the change of the loss with a head's weight", "[importance]") {
  for (const Stages& stages : all_stages()) {
    Asked asked(stages.attention);
    for (Side side : kSides) {
      if (!exists("taylor", side, stages)) continue;
      INFO(stages.attention << analysis::name_of(side));
      HeadProducts products(*asked.model, side);
      std::vector<at::Tensor> sums(2);
      data::BatchVisitor visitor;
      visitor.observer = &products;
      visitor.visit = [&](const data::VisitedBatch& pass) {
        for (const auto& layer : products.take(asked.model->loss(pass.hidden, pass.batch.targets, 0).smoothed)) {
          at::Tensor& sum = sums[static_cast<size_t>(layer.layer_spec->layer)];
          const at::Tensor now = layer.products.to(at::kDouble).sum(at::IntArrayRef({0, 2}));
          sum = sum.defined() ? sum + now : now;
        }
      };
      data::for_each_batch(*asked.model, asked.text, asked.how, visitor);
      double largest = 0;
      for (size_t layer = 0; layer < 2; ++layer)
        for (int64_t head = 0; head < 3; ++head) {
          auto loss = [&](double weight) {
            at::Tensor scale = at::ones({3});
            scale[head] = weight;
            HeadScales scales;
            const auto sides = sides_in(asked.layer(layer), side);
            for (HeadSide s : sides)
              (s == HeadSide::score ? scales.score : s == HeadSide::value ? scales.value : scales.output) = scale;
            set_head_scales(asked.layer(layer), scales);
            const double nll = task::score(*asked.model, asked.text, asked.how).nll;
            set_head_scales(asked.layer(layer), {});
            return nll;
          };
          // Central differences at two steps, so that cubic terms fall out.
          constexpr double kStep = 0.01;
          auto difference = [&](double step) { return (loss(1 + step) - loss(1 - step)) / (2 * step); };
          const double slope = (4 * difference(kStep) - difference(2 * kStep)) / 3;
          const double found = sums[layer][head].item<double>();
          CHECK(std::abs(found - slope) < 0.01 + 0.01 * std::abs(slope));
          largest = std::max(largest, std::abs(slope));
        }
      CHECK(largest > 0.1);  // or nothing has been tested
    }
  }
}

TEST_CASE("weight-norm and alpha are norms of what belongs to a head", "[importance]") {
  Asked asked("mixer = 'mixhead-a'\ncombiner = 'alphas'\n");
  auto numbers_of = [&](const std::string& name) {
    const at::Tensor x = asked.model->parameters().find("decoder.layers.1.self." + name)->master();
    return x.detach().to(at::kDouble).reshape({x.size(0), -1}).contiguous();
  };
  // Σ w² over rows or columns of a head.
  auto rows = [&](const std::string& name, int64_t head) {
    const at::Tensor x = numbers_of(name);
    const int64_t size = x.size(0) / 3;
    double sum = 0;
    for (int64_t i = head * size; i < (head + 1) * size; ++i)
      for (int64_t j = 0; j < x.size(1); ++j) sum += std::pow(x[i][j].item<double>(), 2);
    return sum;
  };
  auto columns = [&](const std::string& name, int64_t head) {
    const at::Tensor x = numbers_of(name);
    const int64_t size = x.size(1) / 3;
    double sum = 0;
    for (int64_t i = 0; i < x.size(0); ++i)
      for (int64_t j = head * size; j < (head + 1) * size; ++j) sum += std::pow(x[i][j].item<double>(), 2);
    return sum;
  };
  auto diagonal = [&](const std::string& name, int64_t i) {
    return std::pow(numbers_of(name)[i][i].item<double>(), 2);
  };
  const std::string m = "mixer.matrix", a = "combiner.alpha";
  std::map<std::string, std::map<Side, Row>> wanted;
  for (int64_t i = 0; i < 3; ++i) {
    const double queries_keys =
                     rows("query.weight", i) + rows("query.bias", i) + rows("key.weight", i) + rows("key.bias", i),
                 values = rows("value.weight", i) + rows("value.bias", i), outputs = columns("output.weight", i);
    const double matrices = rows(m, i) + columns(m, i) - diagonal(m, i) + rows(a, i) + columns(a, i) - diagonal(a, i);
    wanted["weight-norm"][Side::score].push_back(std::sqrt(queries_keys + rows(m, i)));
    wanted["weight-norm"][Side::value].push_back(std::sqrt(values + columns(m, i) + columns(a, i)));
    wanted["weight-norm"][Side::output].push_back(std::sqrt(outputs + rows(a, i)));
    wanted["weight-norm"][Side::whole].push_back(std::sqrt(queries_keys + values + outputs + matrices));
    wanted["alpha"][Side::score].push_back(std::sqrt(rows(m, i)));
    wanted["alpha"][Side::value].push_back(std::sqrt(columns(m, i) + columns(a, i)));
    wanted["alpha"][Side::output].push_back(std::sqrt(rows(a, i)));
    wanted["alpha"][Side::whole].push_back(std::sqrt(matrices));
  }
  for (const auto& [measure, by_side] : wanted)
    for (const auto& [side, row] : by_side) {
      INFO(measure << " " << analysis::name_of(side));
      CHECK(near(of_decoder(importance_of(measure, asked.subject(side)))[1], row, 1e-10));
    }
}

TEST_CASE("scores of a layer divided by their norm", "[importance]") {
  LayerScores scores{{3, -4}, {0, 0}, {}};
  normalise_by_layer(scores);
  CHECK(scores == LayerScores{{0.6, -0.8}, {0, 0}, {}});
}

TEST_CASE("head discrepancy is what plain loops give, before and after the heads are mixed", "[discrepancy]") {
  for (const std::string& more : {std::string(), kMemory}) {
    Asked asked("combiner = 'alphas'\n", more);
    const Shown seen = shown(asked);
    Discrepancy discrepancy;
    data::BatchVisitor visitor;
    visitor.observer = &discrepancy;
    visitor.visit = [](const data::VisitedBatch&) {};
    data::for_each_batch(*asked.model, asked.text, asked.subject(Side::whole, 3).how, visitor);
    const auto layers = discrepancy.layers().at(AttentionKind::decoder_self);
    REQUIRE(layers.size() == 2);
    for (size_t layer = 0; layer < 2; ++layer)
      for (auto part : {&Discrepancy::Layer::before, &Discrepancy::Layer::after}) {
        double cosine = 0, euclidean = 0, count = 0;
        for (const auto& pass : seen.layers[layer]) {
          if (pass.real == 0) continue;
          const at::Tensor z = part == &Discrepancy::Layer::before ? pass.z : pass.c;
          for (int64_t i = 0; i < 3; ++i)
            for (int64_t j = 0; j < 3; ++j) {
              if (i == j) continue;
              double dot = 0, a = 0, b = 0, apart = 0;
              for (int64_t t = 0; t < pass.real; ++t)
                for (int64_t s = 0; s < z.size(2); ++s) {
                  const double x = entry(z, i, t, s), y = entry(z, j, t, s);
                  dot += x * y, a += x * x, b += y * y, apart += (x - y) * (x - y);
                }
              cosine += 1 - dot / std::sqrt(a * b), euclidean += std::sqrt(apart);
            }
          ++count;
        }
        const auto& found = layers[layer].*part;
        CHECK(discrepancy.sequences() == static_cast<int64_t>(count));
        CHECK(found.heads == 3);
        CHECK(found.pairs() == 6);
        CHECK(found.cosine == Approx(cosine / count).epsilon(1e-5));
        CHECK(found.euclidean == Approx(euclidean / count).epsilon(1e-5));
      }
    CHECK(layers[0].before.cosine != Approx(layers[0].after.cosine).epsilon(1e-3));
  }
}

TEST_CASE("heads that are zero, alike or opposite", "[discrepancy]") {
  const attention::LayerSpec shape;
  Discrepancy discrepancy;
  discrepancy.begin(at::tensor({2}, at::kLong));
  at::Tensor z = at::ones({1, 4, 3, 2});
  z.select(1, 1).neg_();
  z.select(1, 2).zero_();
  z.narrow(2, 2, 1).fill_(100);  // padding
  discrepancy.heads(HeadSide::value, shape, z);
  const auto layer = discrepancy.layers().at(shape.kind)[0];
  // Pairs 01: 2, 02: 1, 03: 0, 12: 1, 13: 2, 23: 1; each twice. Distances 4, 2, 0, 2, 4, 2.
  CHECK(layer.before.cosine == Approx(14));
  CHECK(layer.before.euclidean == Approx(28));
}

TEST_CASE("layers that have lost heads: of all of them, or of one side", "[importance]") {
  const Asked none("mixer = 'none'\n[attention.decoder.self.0]\nheads = 0\n");
  for (const std::string name : {"taylor", "avg-l2", "entropy", "weight-norm"}) {
    const LayerScores scores = importance_of(name, none.subject(Side::whole)).at(AttentionKind::decoder_self);
    CHECK(scores[0].empty());
    CHECK(scores[1].size() == 3);
  }
  const auto pairs = heads_to_pair(none.model->parameters(), Selection::random, 1, 0, {}, {},
                                   [](const char* key) { return std::string(key); });
  CHECK((pairs.at(AttentionKind::decoder_self) == std::vector<int64_t>{0, 3}));
  const Asked fewer("mixer = 'mixhead-a'\nvalue_heads = 2\n");
  for (const std::string name : {"taylor", "weight-norm"}) {
    CHECK(status_of([&] { importance_of(name, fewer.subject(Side::whole)); }) == 2);
    CHECK(importance_of(name, fewer.subject(Side::score)).at(AttentionKind::decoder_self)[0].size() == 3);
    CHECK(importance_of(name, fewer.subject(Side::value)).at(AttentionKind::decoder_self)[0].size() == 2);
  }
}
