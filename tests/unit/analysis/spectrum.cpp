// Singular values, measures of rank and entropy, the sources of the analysed matrices, and attention dumps.
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
#include "fixtures/modern_options.h"
#include "fixtures/passes.h"
#include "fixtures/spectra.h"
#include "fixtures/status.h"
#include "io/checkpoint.h"
#include "model/model_config.h"

using namespace mh;
using namespace mh::analysis;
using numbers::doubles;
using numbers::max_relative_difference;
using numbers::normal;
using numbers::Vector;
using rounding::within;

namespace {

// Returns the min(m, n) singular values of x (m, n), in descending order, by one-sided Jacobi rotations: pairs of
// columns are rotated until all columns are orthogonal; the norms of the columns are then the singular values.
Vector naive_singular_values(const at::Tensor& x) {
  const auto m = static_cast<size_t>(x.size(0)), n = static_cast<size_t>(x.size(1));
  const Vector entries = doubles(x);
  std::vector<Vector> columns(n, Vector(m));
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) columns[j][i] = entries[i * n + j];
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
  double area = 0, effective_rank = 0, stable_rank = 0;
  spectra::RankErrors errors;
};

NaiveRanks naive_ranks(const Vector& values) {
  NaiveRanks r;
  double sum = 0, squares = 0, entropy = 0, partial_sum = 0;
  for (double v : values) sum += v, squares += v * v;
  for (double v : values) {
    r.curve.push_back((partial_sum += v) / sum);
    r.area += r.curve.back() / static_cast<double>(values.size());
    if (v > 0) entropy -= v / sum * std::log(v / sum);
  }
  r.effective_rank = std::exp(entropy);
  r.stable_rank = squares / (values[0] * values[0]);
  return r;
}

// Returns causal attention matrices (count, n, n); a larger `scale` makes rows more peaked.
at::Tensor causal_attention(int64_t count, int64_t n, double scale, uint64_t seed) {
  const at::Tensor logits = at::matmul(normal({count, n, 32}, seed), normal({count, 32, n}, seed + 1)) * scale;
  return at::softmax(logits.masked_fill(at::ones({n, n}, at::kBool).triu(1), -INFINITY), -1);
}

// `attention`, `lines`: further lines of [attention] and [model]. `overrides`: TOML that overrides the rest.
std::unique_ptr<model::LanguageModel> build_model(const std::string& attention, const std::string& lines = "",
                                                  const std::string& overrides = "") {
  Config config;
  config.load_text("[model]\nlayers = 2\nwidth = 12\nffn_dim = 16\n" + lines + "[attention]\nheads = 3\n" + attention,
                   "test");
  config.load_text(overrides, "overrides");
  auto model = model::build_language_model(model::ModelConfig::read(config), {7}, at::kCPU);
  model->parameters().initialise(3);
  c10::NoGradGuard no_gradient;
  uint64_t seed = 5;
  for (auto& p : model->parameters().all()) p.master().add_(normal(p.master().sizes().vec(), seed++), 0.3);
  return model;
}

const std::vector<int32_t>& make_text() {
  static const std::vector<int32_t> text = [] {
    std::vector<int32_t> t;
    for (int i = 0; i < 45; ++i) t.push_back(i * i * i % 7);
    return t;
  }();
  return text;
}

data::ScoringOptions options_of_blocks(int64_t sequence_length, int64_t sample = 0) {
  data::ScoringOptions options;
  options.sequence_length = sequence_length, options.sample.blocks = sample;
  return options;
}

// Returns the source `name` after it has collected the spectra of the model, on make_text() if the source reads text.
std::unique_ptr<SpectrumSource> collect_spectra(model::LanguageModel& model, const std::string& name,
                                                int64_t sequence_length = 6, int64_t sample = 0) {
  auto [source, argument] = parse_source(name, "--of");
  source->start(model, {argument, true, sequence_length});
  if (!source->reads_text()) return std::move(source);
  const data::Text text = corpora::text_of(make_text(), 0);
  run_with_observer({model, text, options_of_blocks(sequence_length, sample)}, *source);
  return std::move(source);
}

// Records the matrices that an observer receives from layer 1, one tensor per forward pass.
struct MatrixRecorder : attention::Observer, attention::Subscriber<attention::MixingObservation> {
  std::vector<at::Tensor> p, before_mixing, logits, mixing_matrices;
  bool records_logits = false;
  bool wants_scores() const override { return records_logits; }
  void observe_scores(const attention::LayerSpec& s, const at::Tensor& x) override {
    if (s.layer == 1) logits.push_back(x);
  }
  at::Tensor intercept_heads(attention::HeadSide side, const attention::LayerSpec& s, const at::Tensor& x) override {
    if (side == attention::HeadSide::score && s.layer == 1) before_mixing.push_back(x);
    return x;
  }
  void observe_probabilities(const attention::LayerSpec& s, const at::Tensor& x) override {
    if (s.layer == 1) p.push_back(x);
  }
  void receive(const attention::LayerSpec& s, attention::MixingObservation& observation) override {
    if (s.layer == 1) mixing_matrices.push_back(observation.matrix);
  }
};

MatrixRecorder record_matrices(model::LanguageModel& model, bool records_logits, int64_t sequence_length = 6) {
  MatrixRecorder recorder;
  recorder.records_logits = records_logits;
  const data::Text text = corpora::text_of(make_text(), 0);
  run_with_observer({model, text, options_of_blocks(sequence_length)}, recorder);
  return recorder;
}

// Checks that the mean measures of rank of `entry` equal the means of naive_ranks() over `matrices` (blocks, h, m, n).
// `pass_bound`: bound on the relative difference between an entry of `matrices` and the same entry of the analysed
// matrices.
void check_mean_ranks(const SpectraEntry& entry, const at::Tensor& matrices, double pass_bound = 0) {
  const RankMeasures means = entry.spectra.means();
  REQUIRE(entry.spectra.num_blocks() == matrices.size(0));
  for (int64_t h = 0; h < matrices.size(1); ++h) {
    NaiveRanks mean;
    mean.curve.resize(static_cast<size_t>(means.curve.size(1)));
    const auto n = static_cast<double>(matrices.size(0));
    for (int64_t b = 0; b < matrices.size(0); ++b) {
      const Vector values = naive_singular_values(matrices[b][h]);
      const NaiveRanks r = naive_ranks(values);
      Vector value_errors = spectra::value_errors(values, matrices.size(2), matrices.size(3));
      spectra::add_perturbation(value_errors, values, pass_bound);
      mean.errors.add(spectra::rank_errors(values, value_errors), 1 / n);
      for (size_t k = 0; k < mean.curve.size(); ++k) mean.curve[k] += r.curve[k] / n;
      mean.area += r.area / n, mean.effective_rank += r.effective_rank / n, mean.stable_rank += r.stable_rank / n;
    }
    CHECK(max_relative_difference(doubles(means.curve[h]), mean.curve) <= mean.errors.curve);
    CHECK(means.area[h].item<double>() == within(mean.area, mean.errors.curve));
    CHECK(means.effective_rank[h].item<double>() == within(mean.effective_rank, mean.errors.effective_rank));
    CHECK(means.stable_rank[h].item<double>() == within(mean.stable_rank, mean.errors.stable_rank));
  }
}

}  // namespace

TEST_CASE("singular_values() equals Jacobi rotations on random matrices and refuses matrices that are not finite",
          "[spectrum]") {
  CHECK(rc::check("singular values of matrices of random shape and rank equal the results of Jacobi rotations", [] {
    const auto m = *rc::gen::inRange(1, 40), n = *rc::gen::inRange(1, 40), rank = *rc::gen::inRange(1, 12);
    const auto kind = *rc::gen::inRange(0, 3);
    const auto seed = *rc::gen::inRange<uint64_t>(1, 1000);
    at::Tensor x =
        kind == 0 ? normal({2, m, n}, seed) : at::matmul(normal({2, m, rank}, seed), normal({2, rank, n}, seed + 1));
    if (kind == 2) x = x.tril(n - m);  // lower triangular, like causal attention after n - m memory keys
    const at::Tensor values = singular_values(x);
    RC_ASSERT(values.sizes() == at::IntArrayRef({2, std::min(m, n)}));
    for (int64_t i = 0; i < 2; ++i) {
      const Vector expected = naive_singular_values(x[i]), actual = doubles(values[i]);
      const Vector errors = spectra::value_errors(expected, m, n);
      for (size_t k = 0; k < expected.size(); ++k) RC_ASSERT(std::abs(actual[k] - expected[k]) <= errors[k]);
    }
  }));
  CHECK(doubles(singular_values(at::zeros({3, 2, 4}))) == Vector(6, 0));
  CHECK(singular_values(at::empty({0, 3, 3})).numel() == 0);
  CHECK(status_of([] { singular_values(at::full({4, 4}, std::numeric_limits<float>::quiet_NaN())); }) == 1);
  CHECK(status_of([] { singular_values(at::full({40, 40}, INFINITY)); }) == 1);
  CHECK_THROWS_WITH(singular_values(at::full({4, 4}, INFINITY)), Catch::Contains("found NaN or infinity"));
  // x xᵀ overflows, so the iteration fails although x is finite.
  CHECK_THROWS_WITH(singular_values(at::full({4, 4}, 1e200, at::kDouble)), Catch::Contains("found no convergence"));
}

TEST_CASE("batched_singular_values() equals singular_values() on batches of fp32 and bf16 matrices", "[spectrum]") {
  CHECK(rc::check([] {
    const auto m = *rc::gen::inRange(0, 40), n = *rc::gen::inRange(1, 40), rank = *rc::gen::inRange(1, 12);
    const auto heads = *rc::gen::inRange(1, 4);
    const auto seed = *rc::gen::inRange<uint64_t>(1, 1000);
    at::Tensor x = at::matmul(normal({3, heads, m, rank}, seed), normal({3, heads, rank, n}, seed + 1));
    if (*rc::gen::arbitrary<bool>()) x = x.tril(n - m);
    if (*rc::gen::arbitrary<bool>()) x = x.to(at::kBFloat16);
    x[1].zero_();
    const at::Tensor expected = singular_values(x), actual = batched_singular_values(x);
    RC_ASSERT(actual.sizes() == expected.sizes());
    RC_ASSERT(actual.scalar_type() == at::kDouble);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < heads; ++j) {
        const Vector a = doubles(actual[i][j]), b = doubles(expected[i][j]), errors = spectra::value_errors(b, m, n);
        for (size_t k = 0; k < b.size(); ++k)
          RC_ASSERT(std::abs(a[k] - b[k]) <= 2 * errors[k]);  // errors of both methods
      }
  }));
  CHECK(batched_singular_values(at::full({2, 3, 3}, INFINITY).narrow(0, 0, 0)).numel() == 0);
}

TEST_CASE("singular values, spectrum curves and effective ranks of matrices with 300 columns agree with LAPACK",
          "[spectrum]") {
  const int64_t n = 300;
  std::vector<at::Tensor> cases;
  for (double scale : {0.0, 0.02, 0.2, 1.0, 20.0}) cases.push_back(causal_attention(1, n, scale, 3)[0]);
  cases.push_back(causal_attention(1, n, 1, 9)[0].mm(causal_attention(1, n, 0.1, 11)[0]));
  cases.push_back(normal({n, n}, 4));
  cases.push_back(causal_attention(1, n, 1, 7)[0].narrow(0, 100, 200));  // 200 queries after a memory of 100
  for (const at::Tensor& x : cases) {
    const at::Tensor actual = singular_values(x), expected = at::linalg_svdvals(x.to(at::kDouble));
    const Vector computed = doubles(actual), values = doubles(expected),
                 errors = spectra::value_errors(values, x.size(0), x.size(1));
    for (size_t k = 0; k < values.size(); ++k) CHECK(computed[k] == within(values[k], errors[k]));
    const RankMeasures a = rank_measures_of(actual), b = rank_measures_of(expected);
    const spectra::RankErrors bounds = spectra::rank_errors(values, errors);
    CHECK(numbers::error(a.curve, b.curve) <= bounds.curve);
    CHECK(a.effective_rank.item<double>() == within(b.effective_rank.item<double>(), bounds.effective_rank));
  }
  // A matrix of rank 1 is the worst case for singular values computed as eigenvalues of the Gram matrix.
  const at::Tensor uniform = at::full({n, n}, 1.0F / static_cast<float>(n));
  Vector rank_1(static_cast<size_t>(n));
  rank_1[0] = 1;
  CHECK((rank_measures_of(singular_values(uniform)).curve - 1).abs().max().item<double>() <=
        spectra::rank_errors(rank_1, spectra::value_errors(rank_1, n, n)).curve);
}

TEST_CASE("ranks and entropies of uniform, identity and uniform causal attention equal their closed forms",
          "[spectrum]") {
  const int64_t n = 24;
  const at::Tensor uniform = at::full({1, 1, n, n}, 1.0 / n, at::kDouble), identity = at::eye(n).view({1, 1, n, n});
  const RankMeasures uniform_ranks = rank_measures_of(singular_values(uniform)),
                     identity_ranks = rank_measures_of(singular_values(identity));
  Vector rank_1(static_cast<size_t>(n)), all_ones(static_cast<size_t>(n), 1);  // singular values
  rank_1[0] = 1;
  const auto errors_of = [&](const Vector& values) {
    return spectra::rank_errors(values, spectra::value_errors(values, n, n));
  };
  const spectra::RankErrors uniform_errors = errors_of(rank_1), identity_errors = errors_of(all_ones);
  CHECK(uniform_ranks.effective_rank.item<double>() == within(1, uniform_errors.effective_rank));
  CHECK(uniform_ranks.stable_rank.item<double>() == within(1, uniform_errors.stable_rank));
  CHECK(uniform_ranks.area.item<double>() == within(1, uniform_errors.curve));
  CHECK(identity_ranks.effective_rank.item<double>() == within(n, identity_errors.effective_rank));
  CHECK(identity_ranks.stable_rank.item<double>() == within(n, identity_errors.stable_rank));
  CHECK(identity_ranks.area.item<double>() == within((n + 1.0) / (2.0 * n), identity_errors.curve));
  CHECK(std::isnan(rank_measures_of(singular_values(at::zeros({3, 3}))).effective_rank.item<double>()));
  EntropyMeans uniform_entropy, identity_entropy, causal_entropy;
  uniform_entropy.add(uniform), identity_entropy.add(identity);
  // Roundings: sums in fp64 over n keys and over n queries.
  CHECK(uniform_entropy.entropy().item<double>() == rounding::fp64(std::log(n), 2 * n));
  CHECK(uniform_entropy.normalised_entropy().item<double>() == rounding::fp64(1, 2 * n));
  CHECK(identity_entropy.entropy().item<double>() == 0);
  CHECK(std::isnan(
      identity_entropy.normalised_entropy().item<double>()));  // undefined: each query attends to a single key
  double mean_log = 0;
  for (int64_t t = 0; t < n; ++t) mean_log += std::log(t + 1.0) / n;
  causal_entropy.add(causal_attention(1, n, 0, 1).unsqueeze(0));
  // Roundings in fp32: the quotient of the softmax, and the logarithm and product of each term of the entropy. The
  // errors are relative to numbers of at most 1 + ln n.
  const double bound = tolerance::chain_error_bound(3, tolerance::kFp32, 1 + std::log(n));
  CHECK(causal_entropy.entropy().item<double>() == within(mean_log, bound));
  CHECK(causal_entropy.normalised_entropy().item<double>() == within(1, bound));
}

TEST_CASE("entropy of attention rows with negative weights uses normalised absolute values and skips rows of zeros",
          "[spectrum]") {
  const at::Tensor p = normal({2, 3, 4, 5}, 3).masked_fill(normal({2, 1, 4, 5}, 4) > 0.7, 0);
  EntropyMeans means;
  means.add(p);
  for (int64_t h = 0; h < 3; ++h) {
    double sum = 0, normalised_sum = 0, queries = 0, multi_key_queries = 0;
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t t = 0; t < 4; ++t) {
        double row_sum = 0, entropy = 0, visible = 0;
        for (int64_t s = 0; s < 5; ++s) row_sum += std::abs(p[b][h][t][s].item<double>());
        for (int64_t s = 0; s < 5; ++s) {
          const double x = std::abs(p[b][h][t][s].item<double>()) / row_sum;
          if (x > 0) entropy -= x * std::log(x), ++visible;
        }
        if (row_sum == 0) continue;
        sum += entropy, ++queries;
        if (visible > 1) normalised_sum += entropy / std::log(visible), ++multi_key_queries;
      }
    // Roundings in fp32: the logarithm and product of each term. The errors are relative to the entropy, at most ln 5,
    // and to the logarithm of the sum of a row, at most ln 8. Normalised entropies are divided by at least ln 2.
    const double bound = tolerance::chain_error_bound(2, tolerance::kFp32, std::log(5) + std::log(8));
    CHECK(means.entropy()[h].item<double>() == within(sum / queries, bound));
    CHECK(means.normalised_entropy()[h].item<double>() ==
          within(normalised_sum / multi_key_queries, bound / std::log(2)));
  }
  CHECK(std::isnan(entropy_of_rows(at::zeros({3})).item<double>()));
}

TEST_CASE("percentiles of spectrum curves over blocks are exact for few blocks and estimated from a sample for many",
          "[spectrum]") {
  const at::Tensor values = std::get<0>(normal({11, 2, 5}, 3).to(at::kDouble).abs().sort(-1, true));
  SpectrumMeans means(true);
  means.add(values.narrow(0, 0, 4)), means.add(values.narrow(0, 4, 0)), means.add(values.narrow(0, 4, 7));
  CHECK(means.num_blocks() == 11);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t k = 0; k < 5; ++k) {
      Vector curves;
      double mean = 0;
      for (int64_t b = 0; b < 11; ++b) {
        curves.push_back(naive_ranks(doubles(values[b][h])).curve[static_cast<size_t>(k)]);
        mean += curves.back() / 11;
      }
      std::sort(curves.begin(), curves.end());
      // Roundings in fp64: two sums over 5 singular values, and the mean over 11 blocks.
      CHECK(means.means().curve[h][k].item<double>() == rounding::fp64(mean, 2 * 5 + 11));
      // The bound is one rounding: curve_quantile() reads curves that are stored in fp32.
      const double bound = tolerance::chain_error_bound(1, tolerance::kFp32, 1);
      CHECK(means.curve_quantile(0.5)[h][k].item<double>() == within(curves[5], bound));
      CHECK(means.curve_quantile(0.1)[h][k].item<double>() == within(curves[1], bound));
      CHECK(means.curve_quantile(0.25)[h][k].item<double>() == within((curves[2] + curves[3]) / 2, bound));
    }
  // 4000 blocks are more than kSampleSize, so percentiles are estimated from a sample. The first points of the curves
  // are evenly spaced from 0.5 to 1.
  SpectrumMeans sampled(true);
  for (int64_t i = 0; i < 40; ++i) {
    const at::Tensor first = 0.5 + at::arange(i * 100, i * 100 + 100, at::kDouble) / 8000;
    sampled.add(at::stack({first, 1 - first}, -1).unsqueeze(1));
  }
  CHECK(sampled.num_blocks() == 4000);
  // A quantile q of kSampleSize values of density 2 has the standard deviation √(q (1 - q) / kSampleSize) / 2; the
  // bound is 4 standard deviations.
  for (double q : {0.1, 0.5})
    CHECK(sampled.curve_quantile(q)[0][0].item<double>() ==
          within(0.5 + q / 2, 4 * std::sqrt(q * (1 - q) / static_cast<double>(SpectrumMeans::kSampleSize)) / 2));
  CHECK(sampled.means().curve[0][0].item<double>() == rounding::fp64(0.5 + 3999. / 16000, 4000));
}

TEST_CASE("singular_values_of_product() equals the singular values of the product", "[spectrum]") {
  const at::Tensor a = normal({2, 20, 4}, 1), b = normal({2, 4, 15}, 2);
  for (int64_t i = 0; i < 2; ++i) {
    const at::Tensor product = a[i].to(at::kDouble).mm(b[i].to(at::kDouble));
    const Vector expected = naive_singular_values(product), actual = doubles(singular_values_of_product(a, b)[i]),
                 errors = spectra::value_errors(expected, 20, 15);
    REQUIRE(actual.size() == 4);
    for (size_t k = 0; k < 4; ++k) CHECK(actual[k] == within(expected[k], errors[k]));
  }
}

TEST_CASE("spectra of attention, logits and mixing matrices follow from the observed matrices", "[spectrum]") {
  c10::NoGradGuard no_gradient;
  for (const char* attention : {"", "mixer = 'mixhead-b'\n", "mixer = 'talking-heads'\n", "score = 'relative'\n"}) {
    INFO(attention);
    auto model = build_model(attention);
    const bool mixes_logits = std::string(attention).find("talking") != std::string::npos;
    // The recorder also observes logits; a pass that computes the logits of masked pairs of query and key, too, may add
    // products in a different order than a pass that skips these pairs.
    const MatrixRecorder recorder = record_matrices(*model, true);
    const double bound = rounding::pass_bound(*model, 6);
    // 45 tokens in blocks of 6: the last block has 3 tokens and is left out of the spectra.
    const auto full_blocks = [](const std::vector<at::Tensor>& passes) { return nn::cat(passes).narrow(0, 0, 7); };
    const auto attention_source = collect_spectra(*model, "attention");
    REQUIRE(attention_source->entries().size() == 2);
    const SpectraEntry& entry = *attention_source->entries()[1];
    CHECK(entry.name == "decoder.layers.1.self");
    CHECK(entry.attention_kind == "decoder.self");
    CHECK(entry.layer == 1);
    check_mean_ranks(entry, full_blocks(recorder.p), bound);
    EntropyMeans entropy;
    entropy.add(full_blocks(recorder.p));
    // Relative errors ε of the probabilities change Σ p ln p by at most ε Σ p |ln p + 1| ≤ ε (1 + ln n).
    CHECK(numbers::error(entry.entropy.entropy(), entropy.entropy()) <= bound * (1 + std::log(6)));
    check_mean_ranks(*collect_spectra(*model, "logits")->entries()[1], full_blocks(recorder.logits), bound);
    if (recorder.before_mixing.empty()) {
      CHECK(status_of([&] { collect_spectra(*model, "before-mixing"); }) == 2);
      CHECK(status_of([&] { collect_spectra(*model, "mixing"); }) == 2);
      CHECK(status_of([&] { collect_spectra(*model, "alphas"); }) == 2);
      continue;
    }
    const auto before_mixing = collect_spectra(*model, "before-mixing");
    CHECK(before_mixing->entries()[1]->matrix_kind ==
          (mixes_logits ? "logits-before-mixing" : "attention-before-mixing"));
    CHECK(before_mixing->entries()[1]->has_entropy == !mixes_logits);
    check_mean_ranks(*before_mixing->entries()[1], full_blocks(recorder.before_mixing), bound);
    const auto mixing = collect_spectra(*model, "mixing");
    at::Tensor m = recorder.mixing_matrices.front();
    if (m.dim() == 2) m = m.unsqueeze(0);
    else m = full_blocks(recorder.mixing_matrices).flatten(0, 1);
    check_mean_ranks(*mixing->entries()[1], m.unsqueeze(1), bound);
    CHECK(numbers::error(mixing->entries()[1]->mean_matrix, m.to(at::kDouble).mean(0)) <= bound * numbers::max_abs(m));
  }
}

TEST_CASE("with any option of modern decoders, spectra of attention, logits and W_O W_V come from explicit matrices",
          "[spectrum]") {
  c10::NoGradGuard no_gradient;
  for (const modern_options::Configuration& c : modern_options::all()) {
    INFO(c.name);
    auto model = build_model("head_size = 5\n", "", c.toml);
    const attention::LayerSpec& spec = model->attention_layers()[1]->layer_spec();
    const MatrixRecorder recorder = record_matrices(*model, true);
    const double bound = rounding::pass_bound(*model, 6);
    const auto full_blocks = [](const std::vector<at::Tensor>& passes) { return nn::cat(passes).narrow(0, 0, 7); };
    check_mean_ranks(*collect_spectra(*model, "attention")->entries()[1], full_blocks(recorder.p), bound);
    check_mean_ranks(*collect_spectra(*model, "logits")->entries()[1], full_blocks(recorder.logits), bound);
    const auto product = collect_spectra(*model, "output-value");
    const auto weight = [&](const char* name) {
      return model->parameters()
          .find(str("decoder.layers.1.self.", name, ".weight"))
          ->master()
          .detach()
          .to(at::kDouble);
    };
    const at::Tensor v = weight("value").view({-1, spec.value_size, 12}),
                     o = weight("output").view({12, spec.heads, spec.value_size});
    for (int64_t h = 0; h < spec.heads; ++h) {
      Vector values = naive_singular_values(o.select(1, h).mm(v[h * v.size(0) / spec.heads]));
      values.resize(static_cast<size_t>(spec.value_size));
      CHECK(product->entries()[1]->spectra.means().effective_rank[h].item<double>() ==
            within(naive_ranks(values).effective_rank,
                   spectra::rank_errors(values, spectra::value_errors(values, 12, 12)).effective_rank));
    }
  }
}

TEST_CASE("spectra of a sample of blocks contain only the sampled blocks, also with a Transformer-XL memory",
          "[spectrum]") {
  auto model = build_model("score = 'relative'\n",
                           "backbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 6\n");
  const auto sampled = collect_spectra(*model, "attention", 6, 3);
  REQUIRE(sampled->entries().size() == 2);
  CHECK(sampled->entries()[0]->spectra.num_blocks() == 3);
  CHECK(sampled->entries()[0]->spectra.means().curve.sizes() == at::IntArrayRef({3, 6}));
  CHECK(collect_spectra(*model, "logits", 6, 3)->entries()[0]->spectra.num_blocks() == 3);
}

TEST_CASE("observed logits include masked query-key pairs, and observing logits does not change the output",
          "[spectrum]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, 8}, 1);
  attention::Mask mask;
  mask.causal = true;
  for (const auto& score : attention::scores().names()) {
    INFO(score);
    layers::PerturbedLayer layer("heads = 2\nscore = '" + score + "'\nmixer = 'talking-heads'\n", 8, 3);
    // The test compares only the outputs of the layer; MatrixRecorder records nothing of layer 0.
    MatrixRecorder without_logits, with_logits;
    with_logits.records_logits = true;
    // A pass that computes the logits of all pairs of query and key may add products in another order than a pass that
    // skips masked pairs.
    CHECK(rounding::agree(layer(x, x, mask, {}, &with_logits), layer(x, x, mask, {}, &without_logits),
                          rounding::num_parameter_roundings(layer.parameters) + 2 * 5));
  }
  layers::PerturbedLayer layer("heads = 2\n", 8, 3);
  struct LogitRecorder : attention::Observer {
    at::Tensor logits;
    bool wants_scores() const override { return true; }
    void observe_scores(const attention::LayerSpec&, const at::Tensor& observed) override { logits = observed; }
  } recorder;
  layer(x, x, mask, {}, &recorder);
  REQUIRE(recorder.logits.sizes() == at::IntArrayRef({2, 2, 5, 5}));
  const auto projected = [&](const char* projection) {
    const auto parameter = [&](const char* name) { return layer[std::string(projection) + name].to(at::kDouble); };
    return (at::matmul(x.to(at::kDouble), parameter(".weight").t()) + parameter(".bias")).view({2, 5, 2, 4});
  };
  const at::Tensor q = projected("query"), k = projected("key");
  // Roundings in fp32: products over 8 features, the biases, the sum over 4 entries and the scale. The terms of the
  // sum may cancel; they are of the magnitude of |q| |k|.
  const double bound =
      tolerance::chain_error_bound(8 + 1 + 4 + 1, tolerance::kFp32, 4 * numbers::max_abs(q) * numbers::max_abs(k) / 2);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t t = 0; t < 5; ++t)
      for (int64_t s = 0; s < 5; ++s)
        CHECK(recorder.logits[1][h][t][s].item<double>() ==
              within((q[1][t][h] * k[1][s][h]).sum().item<double>() / 2, bound));
}

TEST_CASE("spectra of parameters equal the spectra of their matrices, and unknown names of sources are refused",
          "[spectrum]") {
  auto model = build_model("mixer = 'mixhead-a'\ncombiner = 'alphas'\n");
  const auto parameter = [&](const std::string& name) { return model->parameters().find(name)->master().detach(); };
  const auto alphas = collect_spectra(*model, "alphas");
  REQUIRE(alphas->entries().size() == 4);
  for (const auto& entry : alphas->entries()) check_mean_ranks(*entry, parameter(entry->name).view({1, 1, 3, 3}));
  const auto product = collect_spectra(*model, "output-value");
  const at::Tensor v = parameter("decoder.layers.1.self.value.weight").view({3, 4, 12});
  const at::Tensor o = parameter("decoder.layers.1.self.output.weight").view({12, 3, 4});
  const RankMeasures means = product->entries()[1]->spectra.means();
  for (int64_t h = 0; h < 3; ++h) {
    // Head i maps a vector x of the residual stream to W^O_i W^V_i x.
    Vector values = naive_singular_values(o.select(1, h).to(at::kDouble).mm(v[h].to(at::kDouble)));
    CHECK(values[4] <= spectra::value_errors(values, 12, 12)[0]);
    values.resize(4);
    CHECK(means.effective_rank[h].item<double>() ==
          within(naive_ranks(values).effective_rank,
                 spectra::rank_errors(values, spectra::value_errors(values, 12, 12)).effective_rank));
  }
  const auto weight = collect_spectra(*model, "weight:decoder.layers.1.self.query.weight");
  check_mean_ranks(*weight->entries()[0], parameter("decoder.layers.1.self.query.weight").view({1, 1, 12, 12}));
  CHECK(weight->entries()[0]->layer == 1);
  for (const char* unknown_name :
       {"weight", "weight:", "alphas:x", "attentoin", "weight:decoder.layers.1.self.query.weigth",
        "weight:decoder.layers.1.self.query.bias"}) {
    INFO(unknown_name);
    CHECK(status_of([&] { collect_spectra(*model, unknown_name); }) == 2);
  }
}

TEST_CASE("an attention dump holds the attention matrices of the sampled blocks in order", "[spectrum]") {
  auto model = build_model("mixer = 'mixhead-a'\n");
  Folder folder;
  AttentionDump dump(*model, 7, 6, 6);
  MatrixRecorder recorder;
  Observers observers({&recorder, &dump});
  const data::Text text = corpora::text_of(make_text(), 0);
  data::ScoringOptions scoring_options = options_of_blocks(6, 7);
  scoring_options.batch = 2;
  run_with_observer({*model, text, scoring_options}, observers);
  auto sink = open_sink(folder.file("p.safetensors"));
  dump.write(*sink, {{"multihead.model", "x"}});
  sink->close();
  const io::Checkpoint file(folder.file("p.safetensors"));
  REQUIRE(file.tensors().size() == 2);
  const at::Tensor expected = nn::cat(recorder.p).contiguous();
  REQUIRE(file.find("decoder.layers.1.self")->shape == std::vector<int64_t>({7, 3, 6, 6}));
  const auto* data = static_cast<const float*>(file.data("decoder.layers.1.self"));
  CHECK(std::equal(data, data + expected.numel(), expected.const_data_ptr<float>()));
  // 2 layers of 3 heads take 24 bytes per pair of query and key.
  const auto advice = [&](int64_t blocks, int64_t sequence_length) {
    return refusal([&] { AttentionDump(*model, blocks, sequence_length, sequence_length); });
  };
  CHECK_THAT(advice(int64_t{1} << 30, 6), Catch::EndsWith("; lower --blocks to 2485513"));
  CHECK_THAT(advice(1, 10000), Catch::EndsWith("found 1 block of 2.4 GB; lower --sequence-length"));
}
