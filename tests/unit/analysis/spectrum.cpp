// Singular values, what is said of them, entropies, and where the matrices come from.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "analysis/dump.h"
#include "analysis/observers.h"
#include "analysis/spectrum_source.h"
#include "attention/head_mix.h"
#include "data/text.h"
#include "fixtures/aten.h"
#include "fixtures/corpora.h"
#include "fixtures/folder.h"
#include "fixtures/layers.h"
#include "fixtures/status.h"
#include "io/checkpoint.h"
#include "model/model_config.h"

using namespace mh;
using namespace mh::analysis;
using numbers::doubles;
using numbers::normal;
using numbers::Vector;
using numbers::worst;

namespace {

// By one-sided Jacobi rotations: columns are turned until they are at right angles; their lengths are the values.
Vector naive_values(const at::Tensor& x) {
  const auto m = static_cast<size_t>(x.size(0)), n = static_cast<size_t>(x.size(1));
  const Vector data = doubles(x);
  std::vector<Vector> columns(n, Vector(m));
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) columns[j][i] = data[i * n + j];
  for (int sweep = 0; sweep < 60; ++sweep)
    for (size_t a = 0; a < n; ++a)
      for (size_t b = a + 1; b < n; ++b) {
        double aa = 0, bb = 0, ab = 0;
        for (size_t i = 0; i < m; ++i)
          aa += columns[a][i] * columns[a][i], bb += columns[b][i] * columns[b][i], ab += columns[a][i] * columns[b][i];
        if (ab == 0 || std::abs(ab) < 1e-15 * std::sqrt(aa * bb)) continue;
        const double angle = 0.5 * std::atan2(2 * ab, aa - bb), c = std::cos(angle), s = std::sin(angle);
        for (size_t i = 0; i < m; ++i) {
          const double p = columns[a][i], q = columns[b][i];
          columns[a][i] = c * p + s * q, columns[b][i] = c * q - s * p;
        }
      }
  Vector values;
  for (const Vector& column : columns) {
    double square = 0;
    for (double v : column) square += v * v;
    values.push_back(std::sqrt(square));
  }
  std::sort(values.begin(), values.end(), std::greater<>());
  values.resize(std::min(m, n));
  return values;
}

struct NaiveRanks {
  Vector curve;
  double area = 0, effective = 0, stable = 0;
};

NaiveRanks naive_ranks(const Vector& values) {
  NaiveRanks r;
  double sum = 0, squares = 0, entropy = 0, so_far = 0;
  for (double v : values) sum += v, squares += v * v;
  for (double v : values) {
    r.curve.push_back((so_far += v) / sum);
    r.area += r.curve.back() / static_cast<double>(values.size());
    if (v > 0) entropy -= v / sum * std::log(v / sum);
  }
  r.effective = std::exp(entropy);
  r.stable = squares / (values[0] * values[0]);
  return r;
}

// Attention that a causal model could have: how sharp follows from `scale`.
at::Tensor causal_attention(int64_t count, int64_t n, double scale, uint64_t seed) {
  const at::Tensor logits = at::matmul(normal({count, n, 32}, seed), normal({count, 32, n}, seed + 1)) * scale;
  return at::softmax(logits.masked_fill(at::ones({n, n}, at::kBool).triu(1), -INFINITY), -1);
}

std::unique_ptr<model::LanguageModel> build(const std::string& attention, const std::string& lines = "") {
  Config config;
  config.load_text("[model]\nlayers = 2\nwidth = 12\nffn = 16\n" + lines + "[attention]\nheads = 3\n" + attention,
                   "test");
  auto model = model::build_language_model(model::ModelConfig::read(config), 7, at::kCPU);
  model->parameters().initialise(3);
  c10::NoGradGuard no_gradient;
  uint64_t seed = 5;
  for (auto& p : model->parameters().all()) p.master().add_(normal(p.master().sizes().vec(), seed++), 0.3);
  return model;
}

const std::vector<int32_t>& some_text() {
  static const std::vector<int32_t> text = [] {
    std::vector<int32_t> t;
    for (int i = 0; i < 45; ++i) t.push_back(i * i * i % 7);
    return t;
  }();
  return text;
}

data::ScoringOptions blocks_of(int64_t block, int64_t sample = 0) {
  data::ScoringOptions o;
  o.block = block, o.sample.blocks = sample;
  return o;
}

std::unique_ptr<SpectrumSource> watched(model::LanguageModel& model, const std::string& of, int64_t block = 6,
                                        int64_t sample = 0) {
  auto [source, argument] = source_named(of, "--of");
  source->start(model, {argument, true, block});
  if (!source->reads_text()) return std::move(source);
  const data::Text text = corpora::text_of(some_text(), 0);
  observe({model, text, blocks_of(block, sample)}, *source);
  return std::move(source);
}

// All that an observer is shown of one layer, in order.
struct Keep : attention::Observer, attention::Subscriber<attention::MixingObservation> {
  std::vector<at::Tensor> p, before, logits, mixed;
  bool whole = false;
  bool wants_scores() const override { return whole; }
  void scores(const attention::LayerSpec& s, const at::Tensor& x) override {
    if (s.layer == 1) logits.push_back(x);
  }
  at::Tensor heads(attention::HeadSide side, const attention::LayerSpec& s, const at::Tensor& x) override {
    if (side == attention::HeadSide::score && s.layer == 1) before.push_back(x);
    return x;
  }
  void probabilities(const attention::LayerSpec& s, const at::Tensor& x) override {
    if (s.layer == 1) p.push_back(x);
  }
  void receive(const attention::LayerSpec& s, attention::MixingObservation& shown) override {
    if (s.layer == 1) mixed.push_back(shown.matrix);
  }
};

Keep kept(model::LanguageModel& model, bool whole, int64_t block = 6) {
  Keep keep;
  keep.whole = whole;
  const data::Text text = corpora::text_of(some_text(), 0);
  observe({model, text, blocks_of(block)}, keep);
  return keep;
}

// Means over the first `rows` rows of naive figures, head by head, against a place's.
void check_place(const PlaceSpectra& place, const at::Tensor& matrices) {
  const Ranks means = place.spectra.means();
  REQUIRE(place.spectra.blocks() == matrices.size(0));
  for (int64_t h = 0; h < matrices.size(1); ++h) {
    NaiveRanks mean;
    mean.curve.resize(static_cast<size_t>(means.curve.size(1)));
    const auto n = static_cast<double>(matrices.size(0));
    for (int64_t b = 0; b < matrices.size(0); ++b) {
      const NaiveRanks r = naive_ranks(naive_values(matrices[b][h]));
      for (size_t k = 0; k < mean.curve.size(); ++k) mean.curve[k] += r.curve[k] / n;
      mean.area += r.area / n, mean.effective += r.effective / n, mean.stable += r.stable / n;
    }
    CHECK(worst(doubles(means.curve[h]), mean.curve) < 1e-6);
    CHECK(means.area[h].item<double>() == Approx(mean.area).epsilon(1e-6));
    CHECK(means.effective[h].item<double>() == Approx(mean.effective).epsilon(1e-4));
    CHECK(means.stable[h].item<double>() == Approx(mean.stable).epsilon(1e-6));
  }
}

}  // namespace

TEST_CASE("singular values are those of Jacobi rotations", "[spectrum]") {
  CHECK(rc::check("of random shapes and ranks", [] {
    const auto m = *rc::gen::inRange(1, 40), n = *rc::gen::inRange(1, 40), rank = *rc::gen::inRange(1, 12);
    const auto kind = *rc::gen::inRange(0, 3);
    const auto seed = *rc::gen::inRange<uint64_t>(1, 1000);
    at::Tensor x =
        kind == 0 ? normal({2, m, n}, seed) : at::matmul(normal({2, m, rank}, seed), normal({2, rank, n}, seed + 1));
    if (kind == 2) x = x.tril(n - m);  // zeros at the ends of rows
    const at::Tensor values = singular_values(x);
    RC_ASSERT(values.sizes() == at::IntArrayRef({2, std::min(m, n)}));
    for (int64_t i = 0; i < 2; ++i) {
      const Vector wanted = naive_values(x[i]), found = doubles(values[i]);
      for (size_t k = 0; k < wanted.size(); ++k) RC_ASSERT(std::abs(found[k] - wanted[k]) <= 1e-7 * wanted[0]);
    }
  }));
  CHECK(doubles(singular_values(at::zeros({3, 2, 4}))) == Vector(6, 0));
  CHECK(singular_values(at::empty({0, 3, 3})).numel() == 0);
  CHECK(status_of([] { singular_values(at::full({4, 4}, std::numeric_limits<float>::quiet_NaN())); }) == 1);
  CHECK(status_of([] { singular_values(at::full({40, 40}, INFINITY)); }) == 1);
}

TEST_CASE("many matrices by operations on tensors have the values that each has by itself", "[spectrum]") {
  CHECK(rc::check([] {
    const auto m = *rc::gen::inRange(0, 40), n = *rc::gen::inRange(1, 40), rank = *rc::gen::inRange(1, 12);
    const auto heads = *rc::gen::inRange(1, 4);
    const auto seed = *rc::gen::inRange<uint64_t>(1, 1000);
    at::Tensor x = at::matmul(normal({3, heads, m, rank}, seed), normal({3, heads, rank, n}, seed + 1));
    if (*rc::gen::arbitrary<bool>()) x = x.tril(n - m);
    if (*rc::gen::arbitrary<bool>()) x = x.to(at::kBFloat16);
    x[1].zero_();
    const at::Tensor wanted = singular_values(x), found = values_by_tensors(x);
    RC_ASSERT(found.sizes() == wanted.sizes());
    RC_ASSERT(found.scalar_type() == at::kDouble);
    if (m > 0) RC_ASSERT(((found - wanted).abs() <= 1e-7 * wanted.narrow(-1, 0, 1)).all().item<bool>());
  }));
  CHECK(values_by_tensors(at::full({2, 3, 3}, INFINITY).narrow(0, 0, 0)).numel() == 0);
}

TEST_CASE("curves of large causal matrices agree with LAPACK's to 1e-6", "[spectrum]") {
  const int64_t n = 300;
  std::vector<at::Tensor> cases;
  for (double scale : {0.0, 0.02, 0.2, 1.0, 20.0}) cases.push_back(causal_attention(1, n, scale, 3)[0]);
  cases.push_back(causal_attention(1, n, 1, 9)[0].mm(causal_attention(1, n, 0.1, 11)[0]));
  cases.push_back(normal({n, n}, 4));
  cases.push_back(causal_attention(1, n, 1, 7)[0].narrow(0, 100, 200));  // a memory in front
  for (const at::Tensor& x : cases) {
    const at::Tensor found = singular_values(x), wanted = at::linalg_svdvals(x.to(at::kDouble));
    CHECK(((found - wanted).abs().max() / wanted[0]).item<double>() < 1e-7);
    const Ranks a = ranks_of(found), b = ranks_of(wanted);
    CHECK((a.curve - b.curve).abs().max().item<double>() < 1e-6);
    CHECK((a.effective / b.effective - 1).abs().item<double>() < 1e-4);
  }
  // All values but one are 0: the worst case of the Gram matrix.
  const at::Tensor even = at::full({n, n}, 1.0F / static_cast<float>(n));
  CHECK((ranks_of(singular_values(even)).curve - 1).abs().max().item<double>() < 1e-5);
}

TEST_CASE("closed cases: even attention, the identity, the even causal one", "[spectrum]") {
  const int64_t n = 24;
  const at::Tensor even = at::full({1, 1, n, n}, 1.0 / n, at::kDouble), one = at::eye(n).view({1, 1, n, n});
  const Ranks of_even = ranks_of(singular_values(even)), of_one = ranks_of(singular_values(one));
  CHECK(of_even.effective.item<double>() == Approx(1).epsilon(1e-4));
  CHECK(of_even.stable.item<double>() == Approx(1));
  CHECK(of_even.area.item<double>() == Approx(1).epsilon(1e-5));
  CHECK(of_one.effective.item<double>() == Approx(n));
  CHECK(of_one.stable.item<double>() == Approx(n));
  CHECK(of_one.area.item<double>() == Approx((n + 1.0) / (2.0 * n)));
  CHECK(std::isnan(ranks_of(singular_values(at::zeros({3, 3}))).effective.item<double>()));
  EntropyMeans entropy, sharp, causal;
  entropy.add(even), sharp.add(one);
  CHECK(entropy.entropy().item<double>() == Approx(std::log(n)));
  CHECK(entropy.share().item<double>() == Approx(1));
  CHECK(sharp.entropy().item<double>() == Approx(0).margin(1e-12));
  CHECK(std::isnan(sharp.share().item<double>()));  // one key is visible
  double logs = 0;
  for (int64_t t = 0; t < n; ++t) logs += std::log(t + 1.0) / n;
  causal.add(causal_attention(1, n, 0, 1).unsqueeze(0));
  CHECK(causal.entropy().item<double>() == Approx(logs).epsilon(1e-6));
  CHECK(causal.share().item<double>() == Approx(1).epsilon(1e-6));
}

TEST_CASE("entropy of mixed rows is that of their shares without signs", "[spectrum]") {
  const at::Tensor p = normal({2, 3, 4, 5}, 3).masked_fill(normal({2, 1, 4, 5}, 4) > 0.7, 0);
  EntropyMeans means;
  means.add(p);
  for (int64_t h = 0; h < 3; ++h) {
    double sum = 0, share = 0, count = 0, many = 0;
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t t = 0; t < 4; ++t) {
        double size = 0, entropy = 0, visible = 0;
        for (int64_t s = 0; s < 5; ++s) size += std::abs(p[b][h][t][s].item<double>());
        for (int64_t s = 0; s < 5; ++s) {
          const double x = std::abs(p[b][h][t][s].item<double>()) / size;
          if (x > 0) entropy -= x * std::log(x), ++visible;
        }
        if (size == 0) continue;
        sum += entropy, ++count;
        if (visible > 1) share += entropy / std::log(visible), ++many;
      }
    CHECK(means.entropy()[h].item<double>() == Approx(sum / count).epsilon(1e-5));
    CHECK(means.share()[h].item<double>() == Approx(share / many).epsilon(1e-5));
  }
  CHECK(std::isnan(entropy_of_rows(at::zeros({3})).item<double>()));
}

TEST_CASE("means and percentiles over blocks, and a sample of many", "[spectrum]") {
  const at::Tensor values = std::get<0>(normal({11, 2, 5}, 3).to(at::kDouble).abs().sort(-1, true));
  SpectrumMeans means(true);
  means.add(values.narrow(0, 0, 4)), means.add(values.narrow(0, 4, 0)), means.add(values.narrow(0, 4, 7));
  CHECK(means.blocks() == 11);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t k = 0; k < 5; ++k) {
      Vector curves;
      double mean = 0;
      for (int64_t b = 0; b < 11; ++b) {
        curves.push_back(naive_ranks(doubles(values[b][h])).curve[static_cast<size_t>(k)]);
        mean += curves.back() / 11;
      }
      std::sort(curves.begin(), curves.end());
      CHECK(means.means().curve[h][k].item<double>() == Approx(mean));
      CHECK(means.percentile(0.5)[h][k].item<double>() == Approx(curves[5]));
      CHECK(means.percentile(0.1)[h][k].item<double>() == Approx(curves[1]));
      CHECK(means.percentile(0.25)[h][k].item<double>() == Approx((curves[2] + curves[3]) / 2));
    }
  // Of 4000 blocks whose first share runs evenly from 0.5 to 1, the kept ones still tell the percentiles.
  SpectrumMeans many(true);
  for (int64_t i = 0; i < 40; ++i) {
    const at::Tensor share = 0.5 + at::arange(i * 100, i * 100 + 100, at::kDouble) / 8000;
    many.add(at::stack({share, 1 - share}, -1).unsqueeze(1));
  }
  CHECK(many.blocks() == 4000);
  CHECK(many.percentile(0.5)[0][0].item<double>() == Approx(0.75).margin(0.06));
  CHECK(many.percentile(0.1)[0][0].item<double>() == Approx(0.55).margin(0.06));
  CHECK(many.means().curve[0][0].item<double>() == Approx(0.75).margin(1e-3));
}

TEST_CASE("values of a product come from its factors", "[spectrum]") {
  const at::Tensor a = normal({2, 20, 4}, 1), b = normal({2, 4, 15}, 2);
  for (int64_t i = 0; i < 2; ++i) {
    const Vector wanted = naive_values(a[i].mm(b[i])), found = doubles(singular_values_of_product(a, b)[i]);
    REQUIRE(found.size() == 4);
    for (size_t k = 0; k < 4; ++k) CHECK(found[k] == Approx(wanted[k]).epsilon(1e-5));
  }
}

TEST_CASE("spectra of a model are those of the matrices it shows", "[spectrum]") {
  c10::NoGradGuard no_gradient;
  for (const char* attention : {"", "mixer = 'mixhead-b'\n", "mixer = 'talking-heads'\n", "score = 'relative'\n"}) {
    INFO(attention);
    auto model = build(attention);
    const bool logits_mixed = std::string(attention).find("talking") != std::string::npos;
    const Keep keep = kept(*model, true);
    // Blocks of 6 of 45 tokens: the last row has 3 and is left out.
    const auto all = [](const std::vector<at::Tensor>& passes) { return at::cat(passes).narrow(0, 0, 7); };
    const auto attention_of = watched(*model, "attention");
    REQUIRE(attention_of->places().size() == 2);
    const PlaceSpectra& place = *attention_of->places()[1];
    CHECK(place.name == "decoder.layers.1.self");
    CHECK(place.kind == "decoder.self");
    CHECK(place.layer == 1);
    check_place(place, all(keep.p));
    EntropyMeans entropy;
    entropy.add(all(keep.p));
    CHECK(numbers::close(place.entropy.entropy(), entropy.entropy()));
    check_place(*watched(*model, "logits")->places()[1], all(keep.logits));
    if (keep.before.empty()) {
      CHECK(status_of([&] { watched(*model, "before-mixing"); }) == 2);
      CHECK(status_of([&] { watched(*model, "mixing"); }) == 2);
      CHECK(status_of([&] { watched(*model, "alphas"); }) == 2);
      continue;
    }
    const auto before = watched(*model, "before-mixing");
    CHECK(before->places()[1]->of == (logits_mixed ? "logits-before-mixing" : "attention-before-mixing"));
    CHECK(before->places()[1]->has_entropy == !logits_mixed);
    check_place(*before->places()[1], all(keep.before));
    const auto mixing = watched(*model, "mixing");
    at::Tensor m = keep.mixed.front();
    if (m.dim() == 2) m = m.unsqueeze(0);
    else m = all(keep.mixed).flatten(0, 1);
    check_place(*mixing->places()[1], m.unsqueeze(1));
    CHECK(numbers::close(mixing->places()[1]->picture, m.to(at::kDouble).mean(0)));
  }
}

TEST_CASE("a sample of blocks, and a memory in front of them", "[spectrum]") {
  auto model =
      build("score = 'relative'\n", "backbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 6\n");
  const auto some = watched(*model, "attention", 6, 3);
  REQUIRE(some->places().size() == 2);
  CHECK(some->places()[0]->spectra.blocks() == 3);
  CHECK(some->places()[0]->spectra.means().curve.sizes() == at::IntArrayRef({3, 6}));
  CHECK(watched(*model, "logits", 6, 3)->places()[0]->spectra.blocks() == 3);
}

TEST_CASE("whole logits are those of all pairs, and change nothing behind them", "[spectrum]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, 8}, 1);
  attention::Mask mask;
  mask.causal = true;
  for (const auto& score : attention::scores().names()) {
    INFO(score);
    layers::Shaken l("heads = 2\nscore = '" + score + "'\nmixer = 'talking-heads'\n", 8, 3);
    Keep without, with;
    with.whole = true;
    // The layer is number 0, of which Keep keeps nothing; the outputs are what counts.
    CHECK(numbers::close(l(x, x, mask, {}, &with), l(x, x, mask, {}, &without)));
  }
  layers::Shaken l("heads = 2\n", 8, 3);
  struct Scores : attention::Observer {
    at::Tensor x;
    bool wants_scores() const override { return true; }
    void scores(const attention::LayerSpec&, const at::Tensor& given) override { x = given; }
  } seen;
  l(x, x, mask, {}, &seen);
  REQUIRE(seen.x.sizes() == at::IntArrayRef({2, 2, 5, 5}));
  const auto projected = [&](const char* part) {
    return (at::matmul(x, l[std::string(part) + ".weight"].t()) + l[std::string(part) + ".bias"])
        .view({2, 5, 2, 4})
        .to(at::kDouble);
  };
  const at::Tensor q = projected("query"), k = projected("key");
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t t = 0; t < 5; ++t)
      for (int64_t s = 0; s < 5; ++s)
        CHECK(seen.x[1][h][t][s].item<double>() ==
              Approx((q[1][t][h] * k[1][s][h]).sum().item<double>() / 2).margin(1e-4));
}

TEST_CASE("spectra of parameters, and names that are none", "[spectrum]") {
  auto model = build("mixer = 'mixhead-a'\ncombiner = 'alphas'\n");
  const auto parameter = [&](const std::string& name) { return model->parameters().find(name)->master().detach(); };
  const auto alphas = watched(*model, "alphas");
  REQUIRE(alphas->places().size() == 4);
  for (const auto& place : alphas->places()) check_place(*place, parameter(place->name).view({1, 1, 3, 3}));
  const auto product = watched(*model, "output-value");
  const at::Tensor v = parameter("decoder.layers.1.self.value.weight").view({3, 4, 12});
  const at::Tensor o = parameter("decoder.layers.1.self.output.weight").view({12, 3, 4});
  const Ranks means = product->places()[1]->spectra.means();
  for (int64_t h = 0; h < 3; ++h) {
    // Row x of the residual stream becomes W^O_i W^V_i x.
    Vector values = naive_values(o.select(1, h).mm(v[h]));
    CHECK(values[4] < 1e-6 * values[0]);
    values.resize(4);
    CHECK(means.effective[h].item<double>() == Approx(naive_ranks(values).effective).epsilon(1e-4));
  }
  const auto weight = watched(*model, "weight:decoder.layers.1.self.query.weight");
  check_place(*weight->places()[0], parameter("decoder.layers.1.self.query.weight").view({1, 1, 12, 12}));
  CHECK(weight->places()[0]->layer == 1);
  for (const char* wrong : {"weight", "weight:", "alphas:x", "attentoin", "weight:decoder.layers.1.self.query.weigth",
                            "weight:decoder.layers.1.self.query.bias"}) {
    INFO(wrong);
    CHECK(status_of([&] { watched(*model, wrong); }) == 2);
  }
}

TEST_CASE("a dump holds the attention matrices of the sample", "[spectrum]") {
  auto model = build("mixer = 'mixhead-a'\n");
  Folder folder;
  AttentionDump dump(*model, 7, 6, 6);
  Keep keep;
  Observers both({&keep, &dump});
  const data::Text text = corpora::text_of(some_text(), 0);
  data::ScoringOptions how = blocks_of(6, 7);
  how.batch = 2;
  observe({*model, text, how}, both);
  auto sink = open_sink(folder.file("p.safetensors"));
  dump.write(*sink, {{"multihead.model", "x"}});
  sink->close();
  const io::Checkpoint file(folder.file("p.safetensors"));
  REQUIRE(file.tensors().size() == 2);
  const at::Tensor wanted = at::cat(keep.p).contiguous();
  REQUIRE(file.find("decoder.layers.1.self")->shape == std::vector<int64_t>({7, 3, 6, 6}));
  const auto* data = static_cast<const float*>(file.data("decoder.layers.1.self"));
  CHECK(std::equal(data, data + wanted.numel(), wanted.const_data_ptr<float>()));
  CHECK(status_of([&] { AttentionDump(*model, int64_t{1} << 30, 6, 6); }) == 2);
}
