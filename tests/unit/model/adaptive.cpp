// Adaptive input and adaptive softmax: published parameter counts, results against naive loops in double precision,
// updates, dropout, bf16, memory, initial values, and refusal of invalid options.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "fixtures/aten.h"
#include "fixtures/layers.h"
#include "fixtures/models.h"
#include "fixtures/passes.h"
#include "fixtures/peak_memory.h"
#include "fixtures/skip.h"
#include "model/bands.h"
#include "model/output.h"
#include "model/token_embedding.h"
#include "train/optimizer.h"

using namespace mh;
using namespace mh::model;
using namespace mh::nn;
using models::num_trainable_parameters;
using models::parse_model_config;
using models::random_tokens;

namespace {

struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;
  double at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * columns + c)]; }
};
using Vector = std::vector<double>;

// Adaptive input and softmax from the equations of token_embedding.cpp and adaptive_output.cpp, token by token.
struct Reference {
  ModelOptions options;
  int64_t vocabulary_size = 0;
  std::map<std::string, Matrix> parameters;

  int64_t num_rows() const { return options.vocabulary_rows > 0 ? options.vocabulary_rows : vocabulary_size; }
  int64_t num_scored_rows() const { return options.score_padded_rows ? num_rows() : vocabulary_size; }
  bool has(const std::string& name) const { return parameters.count(name) > 0; }

  // Returns the band of an entry and the first entry of this band.
  static std::pair<int64_t, int64_t> band_of(const std::vector<int64_t>& cutoffs, int64_t entry) {
    int64_t band = 0, first = 0;
    for (int64_t c : cutoffs)
      if (entry >= c) ++band, first = c;
    return {band, first};
  }
  static Vector multiply(const Matrix& m, const Vector& x) {
    Vector y(static_cast<size_t>(m.rows));
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t c = 0; c < m.columns; ++c) y[static_cast<size_t>(r)] += m.at(r, c) * x[static_cast<size_t>(c)];
    return y;
  }
  static Vector multiply_transposed(const Matrix& m, const Vector& x) {
    Vector y(static_cast<size_t>(m.columns));
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t c = 0; c < m.columns; ++c) y[static_cast<size_t>(c)] += m.at(r, c) * x[static_cast<size_t>(r)];
    return y;
  }
  static Vector row(const Matrix& m, int64_t r) {
    return {m.values.begin() + r * m.columns, m.values.begin() + (r + 1) * m.columns};
  }
  static double lse_of(const Vector& x) {
    double max_score = x[0], sum = 0;
    for (double v : x) max_score = std::max(max_score, v);
    for (double v : x) sum += std::exp(v - max_score);
    return max_score + std::log(sum);
  }

  Vector embed(int64_t token) const {
    Vector x;
    if (has("decoder.embedding.weight")) {
      x = row(parameters.at("decoder.embedding.weight"), token);
    } else {
      auto [band, first] = band_of(options.input_cutoffs, token);
      const std::string name = str("decoder.embedding.bands.", band);
      x = multiply(parameters.at(name + ".projection.weight"), row(parameters.at(name + ".weight"), token - first));
    }
    for (double& v : x) v *= options.scale_embedding ? std::sqrt(static_cast<double>(options.width)) : 1;
    return x;
  }

  // Returns the scores of the entries [first, end) of the vocabulary, all of them in band `band`, for the input x of
  // this band.
  Vector scores(int64_t band, int64_t first, int64_t end, const Vector& x) const {
    const std::string owner = options.tied ? "decoder.embedding" : "decoder.output";
    const bool has_one_table = has(owner + ".weight");
    const Matrix& table = parameters.at(has_one_table ? owner + ".weight" : str(owner, ".bands.", band, ".weight"));
    Vector y;
    for (int64_t e = first; e < end; ++e) {
      const int64_t r = has_one_table ? e : e - first;
      double sum = 0;
      for (int64_t c = 0; c < table.columns; ++c) sum += table.at(r, c) * x[static_cast<size_t>(c)];
      if (options.output_bias)
        sum += has_one_table || options.cutoff_factor == 1
                   ? parameters.at("decoder.output.bias").at(e, 0)
                   : parameters.at(str("decoder.output.bands.", band, ".bias")).at(e - first, 0);
      y.push_back(sum);
    }
    return y;
  }

  double log_p(const Vector& h, int64_t target) const {
    const int64_t first_cutoff = options.output_cutoffs[0];
    const Vector h0 =
        options.first_band_projection ? multiply(parameters.at("decoder.output.bands.0.projection.weight"), h) : h;
    Vector head = scores(0, 0, first_cutoff, h0),
           classes = multiply(parameters.at("decoder.output.classes.weight"), h0);
    for (size_t k = 0; k < classes.size(); ++k)
      if (options.output_bias)
        classes[k] += parameters.at("decoder.output.classes.bias").at(static_cast<int64_t>(k), 0);
    head.insert(head.end(), classes.begin(), classes.end());
    auto [band, first] = band_of(options.output_cutoffs, target);
    if (band == 0) return head[static_cast<size_t>(target)] - lse_of(head);
    const auto last_band = static_cast<int64_t>(options.output_cutoffs.size());
    const int64_t end = band == last_band ? num_scored_rows() : options.output_cutoffs[static_cast<size_t>(band)];
    Vector x = h;
    if (options.cutoff_factor > 1)
      x = options.tied_projections
              ? multiply_transposed(parameters.at(str("decoder.embedding.bands.", band, ".projection.weight")), h)
              : multiply(parameters.at(str("decoder.output.bands.", band, ".projection.weight")), h);
    const Vector tail = scores(band, first, end, x);
    return head[static_cast<size_t>(first_cutoff + band - 1)] - lse_of(head) +
           tail[static_cast<size_t>(target - first)] - lse_of(tail);
  }

  double nll(const std::vector<int64_t>& tokens, const std::vector<int64_t>& targets) const {
    double sum = 0;
    for (size_t i = 0; i < tokens.size(); ++i)
      if (targets[i] >= 0) sum -= log_p(embed(tokens[i]), targets[i]);
    return sum;
  }
};

// An embedding and an output layer without hidden layers between them.
struct EmbeddingAndOutput {
  ModelOptions options;
  int64_t vocabulary_size;
  ParameterList parameters{at::kCPU};
  std::unique_ptr<TokenEmbedding> embedding;
  std::unique_ptr<OutputLayer> output;

  EmbeddingAndOutput(const ModelOptions& model_options, int64_t num_entries, uint64_t seed = 1)
      : options(model_options), vocabulary_size(num_entries) {
    check_bands(options, vocabulary_size);
    embedding = make_token_embedding(parameters, options, vocabulary_size);
    output = make_output(parameters, options, *embedding, vocabulary_size);
    parameters.initialise(1);
    c10::NoGradGuard no_gradient;
    // Larger values than the initial ones, so that biases are not zero and scores are not small.
    for (auto& p : parameters.all()) p.master().copy_(layers::normal(p.master().sizes().vec(), seed++) * 0.4);
  }
  // Returns a bound on the number of roundings in sequence from the tokens to a log-probability: the embedding, the
  // scores, and the sums of two softmaxes.
  int64_t num_roundings() const { return rounding::num_parameter_roundings(parameters) + 2 * vocabulary_size; }
  SlicedLoss loss(const at::Tensor& tokens, const at::Tensor& targets, const nn::ForwardContext& forward_context = {}) {
    return output->loss((*embedding)(tokens), {targets}, 0, forward_context);
  }
  Reference reference() const {
    Reference r{options, vocabulary_size, {}};
    for (const auto& p : parameters.all()) {
      const at::Tensor& m = p.master();
      r.parameters[p.name()] = {m.size(0), m.dim() > 1 ? m.size(1) : 1, layers::doubles(m)};
    }
    return r;
  }
};

std::vector<int64_t> to_vector(const at::Tensor& t) {
  at::Tensor flat = t.flatten().contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

ModelOptions options_with(std::vector<int64_t> cutoffs, int64_t factor, int64_t width) {
  ModelOptions model_options;
  model_options.width = width;
  model_options.input_cutoffs = model_options.output_cutoffs = std::move(cutoffs);
  model_options.cutoff_factor = factor;
  return model_options;
}

}  // namespace

TEST_CASE("models with adaptive input and softmax have the published parameter counts", "[adaptive]") {
  // Baevski & Auli on WikiText-103, with heads of size 128, and tables 7 to 10 of the Mixhead paper, which keep the
  // width and change the size of heads; the comments give the published counts. fairseq's dictionary has 267,744 rows,
  // padded to a multiple of 8; the 267,735 entries without padding give the same digits.
  auto baevski = [](const char* cutoffs, int64_t head_size, int64_t vocabulary_size) {
    return num_trainable_parameters(
        str("[model]\nlayers = 16\nwidth = 1024\nffn_dim = 4096\nfinal_norm = false\ntied_projections = true\n"
            "input_cutoffs = ",
            cutoffs, "\noutput_cutoffs = ", cutoffs, "\n[attention]\nheads = 8\nhead_size = ", head_size),
        vocabulary_size);
  };
  const char* wt103 = "[20000, 60000]";
  CHECK(baevski(wt103, 128, 267744) == 246933504);  // 246.93M
  CHECK(baevski(wt103, 64, 267744) == 213354496);   // 213.4M
  CHECK(baevski(wt103, 32, 267744) == 196564992);   // 196.6M
  CHECK(baevski(wt103, 256, 267744) == 314091520);  // 314.1M
  CHECK(baevski(wt103, 512, 267744) == 448407552);  // 448.4M
  CHECK(baevski(wt103, 128, 267735) / 10000 == 24693);
  CHECK(baevski("[60000, 160000]", 128, 793471) == 330500032);  // One Billion Word: 330.5M

  auto xl = [](const std::string& sizes, const std::string& attention, int64_t vocabulary_size) {
    return num_trainable_parameters(
        "[model]\nbackbone = 'transformer-xl'\nnorm = 'post'\npositions = 'none'\ninit = 'transformer-xl'\n"
        "output_bias = true\ninput_cutoffs = [20000, 40000, 200000]\noutput_cutoffs = [20000, 40000, 200000]\n" +
            sizes + "[attention]\nbias = false\nscore = 'relative'\n" + attention,
        vocabulary_size);
  };
  // Transformer-XL on WikiText-103, 151M. Bands as wide as the model have no projections, so that the adaptive softmax
  // adds only the weights and biases of the classes, one for each tail band, to a plain softmax.
  CHECK(xl("layers = 16\nwidth = 410\nffn_dim = 2100\ncutoff_factor = 1\n", "heads = 10\n", 267735) == 151107538);
  // Transformer-XL on One Billion Word, 294M in the Mixhead paper: separate projections of input and output, also for
  // the first band.
  CHECK(xl("layers = 18\nwidth = 1024\nffn_dim = 4096\nfirst_band_projection = true\n", "heads = 8\n", 793471) ==
        294452082);
  // Skip Cross-Head on WikiText-103, 122M: nothing tied; bands of width 624, 156, 39 and 9.
  CHECK(xl("layers = 15\nwidth = 624\nffn_dim = 2496\nfirst_band_projection = true\ntied = false\n", "heads = 16\n",
           267735) == 122215992);
}

TEST_CASE("Bands::split assigns each entry to exactly one band", "[adaptive]") {
  CHECK(rc::check("split", [] {
    const auto vocabulary_size = *rc::gen::inRange<int64_t>(4, 60);
    auto cutoffs = *rc::gen::unique<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, vocabulary_size));
    cutoffs.resize(std::min<size_t>(cutoffs.size(), 4));
    std::sort(cutoffs.begin(), cutoffs.end());
    const auto input_entries =
        *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(-2, vocabulary_size));
    Bands bands(cutoffs, vocabulary_size);
    const auto splits = bands.split(at::tensor(input_entries, at::kLong));
    std::vector<int64_t> reassembled_entries(input_entries.size(), -7);
    for (size_t b = 0; b < splits.size(); ++b) {
      const auto positions = to_vector(splits[b].positions), offsets = to_vector(splits[b].offsets);
      RC_ASSERT(positions.size() == offsets.size());
      RC_ASSERT(std::is_sorted(positions.begin(), positions.end()));
      for (size_t i = 0; i < positions.size(); ++i) {
        RC_ASSERT(offsets[i] >= 0);
        RC_ASSERT(offsets[i] < bands.size(b));
        RC_ASSERT(reassembled_entries[static_cast<size_t>(positions[i])] == -7);
        reassembled_entries[static_cast<size_t>(positions[i])] = offsets[i] + bands.first_entry(b);
      }
    }
    for (size_t i = 0; i < input_entries.size(); ++i)
      RC_ASSERT(reassembled_entries[i] == (input_entries[i] < 0 ? -7 : input_entries[i]));
    const auto sizes = bands.sizes();
    RC_ASSERT(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == vocabulary_size);
  }));
}

TEST_CASE("adaptive input and softmax and their gradients match the equations over random options", "[adaptive]") {
  CHECK(rc::check("outputs and gradients", [] {
    ModelOptions model_options;
    model_options.cutoff_factor = *rc::gen::element<int64_t>(1, 2, 3);
    model_options.width = *rc::gen::element<int64_t>(12, 17, 20);
    const auto vocabulary_size = *rc::gen::inRange<int64_t>(4, 40);
    auto cutoffs =
        *rc::gen::nonEmpty(rc::gen::unique<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, vocabulary_size)));
    cutoffs.resize(std::min<size_t>(cutoffs.size(), model_options.cutoff_factor == 3 ? 2 : 3));
    std::sort(cutoffs.begin(), cutoffs.end());
    model_options.output_cutoffs = cutoffs;
    model_options.tied = *rc::gen::arbitrary<bool>();
    const bool has_projections = model_options.cutoff_factor > 1;
    if ((model_options.tied && has_projections) || *rc::gen::arbitrary<bool>()) model_options.input_cutoffs = cutoffs;
    model_options.tied_projections =
        has_projections && model_options.input_cutoffs == cutoffs && *rc::gen::arbitrary<bool>();
    model_options.first_band_projection = has_projections && *rc::gen::arbitrary<bool>();
    model_options.output_bias = *rc::gen::arbitrary<bool>();
    model_options.scale_embedding = *rc::gen::arbitrary<bool>();
    model_options.vocabulary_rows = *rc::gen::element<int64_t>(0, vocabulary_size + 3);
    model_options.score_padded_rows = *rc::gen::arbitrary<bool>();
    const auto seed = *rc::gen::inRange<uint64_t>(1, 1000);
    EmbeddingAndOutput model(model_options, vocabulary_size, seed);
    Reference reference = model.reference();
    at::Tensor tokens = random_tokens(3, 4, vocabulary_size, seed),
               targets = random_tokens(3, 4, vocabulary_size, seed + 1);
    targets[1][2] = -1;
    const auto token_ids = to_vector(tokens), target_ids = to_vector(targets);

    at::Tensor hidden = (*model.embedding)(tokens);
    const at::Tensor log_p = model.output->target_log_probabilities(hidden, targets).flatten(),
                     all_log_p = model.output->logits(hidden).flatten(0, 1);
    RC_ASSERT(all_log_p.size(1) == vocabulary_size);
    Vector expected_hidden, expected_log_p, expected_all;
    for (size_t i = 0; i < token_ids.size(); ++i) {
      const Vector h = reference.embed(token_ids[i]);
      expected_hidden.insert(expected_hidden.end(), h.begin(), h.end());
      expected_log_p.push_back(target_ids[i] < 0 ? 0 : reference.log_p(h, target_ids[i]));
      for (int64_t e = 0; e < vocabulary_size; ++e) expected_all.push_back(reference.log_p(h, e));
    }
    const auto tensor_like = [](const Vector& values, const at::Tensor& t) {
      return at::tensor(values, at::kDouble).view(t.sizes());
    };
    // Since log p = logit - lse, the rounding error is relative to the logits, not to the difference. The logits are
    // about as large as the largest |log p|.
    const at::Tensor expected_all_log_p = tensor_like(expected_all, all_log_p);
    const double largest_score = std::max(1.0, numbers::max_abs(expected_all_log_p));
    const int64_t num_roundings = model.num_roundings();
    RC_ASSERT(rounding::agree(hidden, tensor_like(expected_hidden, hidden), num_roundings));
    RC_ASSERT(rounding::agree(log_p, tensor_like(expected_log_p, log_p), num_roundings, largest_score));
    RC_ASSERT(rounding::agree(all_log_p, expected_all_log_p, num_roundings, largest_score));

    SlicedLoss loss = model.loss(tokens, targets);
    const double expected = reference.nll(token_ids, target_ids),
                 loss_error = 11 * rounding::bound(at::kFloat, at::kDouble, num_roundings, largest_score);
    RC_ASSERT(loss.num_scored == 11);
    RC_ASSERT(std::abs(loss.nll.item<double>() - expected) <= loss_error);
    RC_ASSERT(std::abs(loss.smoothed.item<double>() - expected) <= loss_error);

    // The gradients are compared with finite differences at four random entries of every parameter. The bound on their
    // error counts as many roundings for the backward pass as for the forward pass. Its factor `largest_score` covers
    // errors of scores, which are relative errors of probabilities.
    loss.smoothed.backward();
    double largest_gradient = 1;
    for (auto& parameter : model.parameters.all())
      if (const at::Tensor& g = parameter.master().grad(); g.defined())
        largest_gradient = std::max(largest_gradient, numbers::max_abs(g));
    const double gradient_error =
        tolerance::chain_error_bound(2 * num_roundings, tolerance::kFp32, largest_score * largest_gradient);
    for (auto& parameter : model.parameters.all()) {
      const at::Tensor& gradient = parameter.master().grad();
      const auto actual = gradient.defined() ? layers::doubles(gradient) : Vector();
      Matrix& m = reference.parameters.at(parameter.name());
      for (int trial = 0; trial < 4; ++trial) {
        const auto k = static_cast<size_t>(*rc::gen::inRange<int64_t>(0, m.rows * m.columns));
        const auto nll_at = [&](double step) {
          const double original_value = m.values[k];
          m.values[k] = original_value + step;
          const double nll = reference.nll(token_ids, target_ids);
          m.values[k] = original_value;
          return nll;
        };
        const rounding::Slope slope = rounding::slope(nll_at, 1e-5, num_roundings, 11 * largest_score);
        RC_ASSERT(std::abs((actual.empty() ? 0 : actual[k]) - slope.value) <= slope.error + gradient_error);
      }
    }
  }));
}

TEST_CASE("every trainable parameter has a nonzero gradient if a batch has tokens of all bands", "[adaptive]") {
  for (const char* backbone : {"positions = 'none'\nbackbone = 'transformer-xl'\n", "backbone = 'decoder'\n"})
    for (const char* bands :
         {"", "tied_projections = true\n", "tied = false\nfirst_band_projection = true\n", "cutoff_factor = 1\n",
          "cutoff_factor = 1\ntied = false\n", "input_cutoffs = []\ntied = false\n"}) {
      const std::string cutoffs = std::string(bands).find("input_cutoffs") == std::string::npos
                                      ? "input_cutoffs = [10, 20]\noutput_cutoffs = [10, 20]\n"
                                      : "output_cutoffs = [10, 20]\n";
      auto model =
          build_language_model(parse_model_config(str("[model]\n", backbone, cutoffs, bands,
                                                      "output_bias = true\nlayers = 1\nwidth = 16\nffn_dim = 8\n"
                                                      "[attention]\nheads = 2\n")),
                               {30}, at::kCPU);
      model->parameters().initialise(1);
      at::Tensor tokens = at::arange(30, at::kLong).view({2, 15}), targets = (tokens + 7) % 30;
      model->loss(model->hidden(model::Input{tokens}, {}), {targets}, 0).smoothed.backward();
      for (auto& p : model->parameters().all()) {
        INFO(backbone << bands << p.name());
        REQUIRE(p.master().grad().defined());
        // Key biases have no gradient except for rounding, since a key bias shifts all logits of a query equally.
        if (p.name().find("key.bias") == std::string::npos) CHECK(p.master().grad().abs().max().item<float>() > 0);
      }
    }
}

TEST_CASE("bands without tokens in a batch have no gradient and are not updated by the optimiser", "[adaptive]") {
  auto model_options = options_with({10, 20}, 4, 32);
  model_options.output_bias = true;
  EmbeddingAndOutput model(model_options, 30);
  train::TrainOptions options;
  options.optimizer.rule = "adamw";
  train::ParameterGroups groups;
  train::Optimizer optimizer(model.parameters, options, groups);
  // The first batch has tokens of all bands, so that no moment is zero; the second batch has tokens of the first and
  // the last band only.
  for (auto tokens :
       {at::arange(30, at::kLong).view({1, 30}), at::tensor({1, 4, 27, 25, 9, 29}, at::kLong).view({1, 6})}) {
    std::map<std::string, at::Tensor> old_values;
    for (auto& p : model.parameters.all()) old_values[p.name()] = p.master().detach().clone();
    model.parameters.zero_gradients();
    model.loss(tokens, tokens).smoothed.backward();
    optimizer.step(0.1, 1);
    for (auto& p : model.parameters.all()) {
      const bool has_tokens = tokens.numel() == 30 || p.name().find("bands.1.") == std::string::npos;
      INFO(p.name());
      CHECK(p.master().grad().defined() == has_tokens);
      CHECK(at::equal(p.master(), old_values[p.name()]) != has_tokens);
      CHECK(optimizer.steps().at(p.name()) == (tokens.numel() == 30 || !has_tokens ? 1 : 2));
    }
  }
}

TEST_CASE("in training dropout_tail drops inputs of tail bands as a function of the position of a token in the update",
          "[adaptive]") {
  auto model_options = options_with({10, 20}, 2, 32);
  EmbeddingAndOutput model_without_dropout(model_options, 30);
  model_options.dropout_tail = 0.4;
  EmbeddingAndOutput model(model_options, 30);
  at::Tensor tokens = random_tokens(6, 5, 30, 1), targets = random_tokens(6, 5, 30, 2), head_targets = targets % 10;
  nn::ForwardContext forward_context{true, 3, 7, 0};
  c10::NoGradGuard no_gradient;
  const double nll_without_dropout = model_without_dropout.loss(tokens, targets).nll.item<double>(),
               nll_with_dropout = model.loss(tokens, targets, forward_context).nll.item<double>();
  const auto same_nll = [&](double nll) {
    return rounding::within(nll, rounding::bound(at::kFloat, at::kFloat, model.num_roundings(), nll));
  };
  CHECK(nll_with_dropout != same_nll(nll_without_dropout));
  CHECK(model.loss(tokens, targets).nll.item<double>() == nll_without_dropout);
  CHECK(model.loss(tokens, targets, forward_context).nll.item<double>() == nll_with_dropout);
  CHECK(model.loss(tokens, head_targets, forward_context).nll.item<double>() ==
        model_without_dropout.loss(tokens, head_targets).nll.item<double>());
  double micro_batch_sum = 0;
  for (auto [row, rows] : {std::pair{0, 1}, {1, 2}, {3, 3}}) {
    forward_context.row_offset = row;
    micro_batch_sum +=
        model.loss(tokens.narrow(0, row, rows), targets.narrow(0, row, rows), forward_context).nll.item<double>();
  }
  CHECK(micro_batch_sum == same_nll(nll_with_dropout));
  // Another update draws another mask.
  forward_context.row_offset = 0;
  forward_context.update = 8;
  CHECK(model.loss(tokens, targets, forward_context).nll.item<double>() != nll_with_dropout);
}

TEST_CASE("bands with bf16 copies of the parameters have the loss and gradients of fp32 up to rounding", "[adaptive]") {
  for (int64_t factor : {1, 4}) {
    auto model_options = options_with({10, 20}, factor, 32);
    model_options.tied_projections = model_options.first_band_projection = factor > 1;
    model_options.output_bias = true;
    model_options.dropout_tail = 0.1;
    EmbeddingAndOutput fp32_model(model_options, 30), bf16_model(model_options, 30), perturbed_model(model_options, 30);
    at::Tensor tokens = at::arange(30, at::kLong).view({2, 15}), targets = (tokens + 7) % 30;
    const nn::ForwardContext forward_context{true, 3, 7, 0};
    bf16_model.parameters.use_bf16_copies(true);
    // bf16 rounds the weights, the activations and the gradients. Each of these three roundings has about the effect of
    // a change of each weight by one unit roundoff.
    {
      c10::NoGradGuard no_gradient;
      at::manual_seed(15);
      for (auto& p : perturbed_model.parameters.all())
        p.master().mul_(1 + tolerance::kBf16 * (2 * at::randint(2, p.master().sizes()).to(at::kFloat) - 1));
    }
    const auto nll_of = [&](EmbeddingAndOutput& model) {
      const SlicedLoss loss = model.loss(tokens, targets, forward_context);
      loss.smoothed.backward();
      model.parameters.collect_gradients();
      return loss.nll.item<double>();
    };
    const auto bound = [](double perturbation_error, double size) {
      return tolerance::composed_error_bound(3 * perturbation_error, tolerance::kBf16, size);
    };
    const double nll = nll_of(fp32_model), perturbed_nll = nll_of(perturbed_model);
    CHECK(nll_of(bf16_model) == rounding::within(nll, bound(std::abs(perturbed_nll - nll), nll)));
    for (auto& p : bf16_model.parameters.all()) {
      INFO(p.name());
      const at::Tensor expected = fp32_model.parameters.find(p.name())->master().grad(), actual = p.master().grad(),
                       perturbed = perturbed_model.parameters.find(p.name())->master().grad();
      REQUIRE(actual.defined());
      CHECK((actual - expected).norm().item<double>() <=
            bound((perturbed - expected).norm().item<double>(), expected.norm().item<double>()));
    }
  }
}

TEST_CASE("an adaptive softmax never stores all scores of a tail band", "[adaptive]") {
  if (!reset_peak_memory()) SKIP("peak memory cannot be reset on this system");
  const int64_t n = 4096, vocabulary_size = 40000;  // all scores of the last band: 650 MB
  auto model_options = options_with({100, 200}, 2, 64);
  EmbeddingAndOutput model(model_options, vocabulary_size);
  at::Tensor hidden = at::randn({1, n, 64}).requires_grad_();
  at::Tensor targets = at::randint(200, vocabulary_size, {1, n}, at::kLong);
  reset_peak_memory();
  const int64_t initial_kb = peak_memory_kb();
  model.output->loss(hidden, {targets}, 0, {}).smoothed.backward();
  CHECK(peak_memory_kb() - initial_kb < 200 * 1024);
}

TEST_CASE("initial standard deviations of bands follow the initialisation scheme", "[adaptive]") {
  struct ExpectedDeviations {
    InitScheme scheme;
    double embedding, projection, output, classes;
  };
  // Xavier-uniform has a standard deviation of √(2 / (fan in + fan out)).
  const auto xavier = [](double in, double out) { return std::sqrt(2 / (in + out)); };
  for (const ExpectedDeviations& e :
       {ExpectedDeviations{InitScheme::fairseq, 1 / 8.0, xavier(256, 64), xavier(64, 1000), xavier(256, 2)},
        {InitScheme::transformer_xl, .02, .01, .02, .02}}) {
    auto model_options = options_with({1000, 2000}, 4, 256);
    model_options.tied = false;
    model_options.first_band_projection = model_options.output_bias = true;
    model_options.init = e.scheme;
    EmbeddingAndOutput model(model_options, 3000);
    model.parameters.initialise(1);
    // The margin is four standard deviations. The root mean square of n normal numbers of standard deviation σ has the
    // standard deviation σ / √(2 n); for uniform numbers it is smaller.
    const auto check = [&](const std::string& name, double expected) {
      INFO(name);
      const at::Tensor& x = model.parameters.find("decoder." + name)->master();
      CHECK(std::sqrt(x.square().mean().item<double>()) ==
            rounding::within(expected, 4 * expected / std::sqrt(2 * static_cast<double>(x.numel()))));
    };
    check("embedding.bands.1.weight", e.embedding);
    check("embedding.bands.1.projection.weight", e.projection);
    check("output.bands.1.weight", e.output);
    check("output.bands.1.projection.weight", e.projection);
    check("output.classes.weight", e.classes);
    check("output.bands.1.bias", 0);
    check("output.classes.bias", 0);
  }
}

TEST_CASE("invalid options of bands are rejected with an error that names the key", "[adaptive]") {
  const std::string cutoff_lines = "input_cutoffs = [10, 20]\noutput_cutoffs = [10, 20]\n";
  auto build = [](const std::string& lines) {
    build_language_model(parse_model_config("[model]\nlayers = 1\nwidth = 32\nffn_dim = 8\n" + lines), {30}, at::kMeta);
  };
  for (const auto& valid_toml :
       {std::string(), cutoff_lines, cutoff_lines + "tied_projections = true\n", cutoff_lines + "cutoff_factor = 1\n",
        std::string("output_cutoffs = [10]\ncutoff_factor = 1\n"), std::string("input_cutoffs = [10]\ntied = false\n"),
        std::string("output_cutoffs = [10]\ntied = false\nfirst_band_projection = true\ndropout_tail = 0.2\n")})
    CHECK_NOTHROW(build(valid_toml));
  for (auto [key, invalid] : std::vector<std::pair<std::string, std::string>>{
           {"model.input_cutoffs", "input_cutoffs = [20, 10]\noutput_cutoffs = [20, 10]\n"},
           {"model.output_cutoffs", "tied = false\noutput_cutoffs = [10, 10]\n"},
           {"model.output_cutoffs", "tied = false\noutput_cutoffs = [0]\n"},
           {"model.output_cutoffs", "tied = false\noutput_cutoffs = [30]\n"},
           {"model.cutoff_factor", cutoff_lines + "cutoff_factor = 6\n"},
           {"model.cutoff_factor", "cutoff_factor = 2\n"},
           {"model.cutoff_factor", cutoff_lines + "cutoff_factor = 0\n"},
           {"model.tied", "output_cutoffs = [10]\n"},
           {"model.tied", "input_cutoffs = [10]\n"},
           {"model.tied", "input_cutoffs = [10]\noutput_cutoffs = [11]\n"},
           {"model.tied_projections", "tied_projections = true\n"},
           {"model.tied_projections", cutoff_lines + "tied_projections = true\ncutoff_factor = 1\n"},
           {"model.tied_projections", "output_cutoffs = [10]\ntied = false\ntied_projections = true\n"},
           {"model.first_band_projection", "first_band_projection = true\n"},
           {"model.first_band_projection", cutoff_lines + "first_band_projection = true\ncutoff_factor = 1\n"},
           {"model.dropout_tail", "dropout_tail = 0.1\n"}}) {
    INFO(invalid);
    try {
      build(invalid);
      FAIL_CHECK("the options were accepted");
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::usage);
      CHECK(std::string(error.what()).find(key) != std::string::npos);
    }
  }
  EmbeddingAndOutput model(options_with({10, 20}, 4, 32), 30);
  at::Tensor tokens = random_tokens(1, 4, 30, 1);
  CHECK_THROWS_AS(model.output->loss((*model.embedding)(tokens), {tokens}, 0.1, {}), Error);
}
