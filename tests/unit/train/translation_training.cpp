// Procedures and regularisers on translation models: separate treatment of the kinds of attention, and rows of
// different lengths.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <set>

#include "analysis/importance.h"
#include "analysis/rotation.h"
#include "attention/methods/mae/sample_experts.h"
#include "base/json_types.h"
#include "base/text.h"
#include "fixtures/passes.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "fixtures/translation.h"

using namespace mh;
using namespace mh::train;
using analysis::AttentionKind;
using analysis::HeadPair;

namespace {

// A folder with a shard of sentence pairs, and training runs on this shard.
struct PairTraining {
  Folder folder;
  pairs::SentencePairs sentences = translation::random_sentence_pairs(90);
  PairTraining() { pairs::write(folder.file("t.mhs"), sentences, 10, 7); }

  RunConfig run_config(const std::string& extra_toml) const {
    Config config;
    config.load_text(
        str("[model]\nbackbone = 'encoder-decoder'\nlayers = 2\nencoder-decoder.encoder_layers = 3\nwidth "
            "= 16\nffn_dim = "
            "16\n[attention]\nheads = 4\n[train]\nbatch.sequence_length = 11\nbatch.tokens = 150\nlr = 0.01\n"
            "validation.every = '1e'\nlog_every = '1e'\n[data]\ntrain = '",
            folder.file("t.mhs"), "'\nvalid = '", folder.file("t.mhs"), "'\n"),
        "test");
    config.load_text(extra_toml, "extra");
    return RunConfig::read(config);
  }
  model::LoadedModel train(const std::string& name, const std::string& extra_toml) const {
    return runs::run(run_config(extra_toml), folder.file(name));
  }
  // Returns the actions of head rotation in the log of a run, each with its pairs: "swapped EPOCH" or "undone EPOCH".
  std::vector<std::pair<std::string, std::vector<std::string>>> logged_actions(const std::string& name) const {
    std::vector<std::pair<std::string, std::vector<std::string>>> lines;
    for (const auto& line : runs::read_log(folder.file(name), "head-rotation")) {
      const auto& action = line.at("head-rotation");
      const char* name_of_action = action.contains("swapped") ? "swapped" : "undone";
      lines.emplace_back(str(name_of_action, " ", action.at("epoch").get<int>()),
                         action.at(name_of_action).get<std::vector<std::string>>());
    }
    return lines;
  }
};

std::string rotation_toml(const std::string& options) { return "[train.procedures.head-rotation]\n" + options; }
std::string train_length(const std::string& length, const std::string& lr = "0.01") {
  return str("[train]\nlength = '", length, "'\nlr = ", lr, "\n");
}

void check_equal(model::LoadedModel& a, model::LoadedModel& b) {
  for (const auto& p : a.model->parameters().all()) {
    INFO(p.name());
    CHECK(at::equal(p.master(), runs::find(b, p.name())));
  }
}

}  // namespace

TEST_CASE("head rotation of translation models swaps heads of every kind of attention in the listed epochs, and back",
          "[translation]") {
  const PairTraining data;
  const std::vector<std::string> pair_names{"encoder.self:0.1-2.3", "decoder.self:0.0-1.2", "decoder.cross:1.0-0.3"};
  const std::string method =
      rotation_toml(str("mode = 'manual'\npairs = ['", join(pair_names, "', '"), "']\nepochs = [2, 4]\n"));
  auto start = data.train("start", train_length("1u", "0.0"));
  for (auto [epochs, is_swapped] : {std::pair{1, false}, {2, true}, {3, true}, {4, false}}) {
    INFO(epochs);
    auto run = data.train(str("run", epochs), method + train_length(str(epochs, "e"), "0.0"));
    auto expected = data.train(str("start", epochs), train_length("1u", "0.0"));
    std::vector<HeadPair> pairs;
    for (const std::string& text : pair_names) pairs.push_back(analysis::parse_pair(text, "test"));
    if (is_swapped) analysis::swap_heads(expected.model->parameters(), pairs, {}, "test");
    check_equal(expected, run);
    for (const char* layer : {"encoder.layers.2.self", "decoder.layers.0.self", "decoder.layers.1.cross"})
      CHECK(at::equal(runs::find(run, str(layer, ".value.weight")), runs::find(start, str(layer, ".value.weight"))) !=
            is_swapped);
  }
  CHECK(data.logged_actions("run4") ==
        decltype(data.logged_actions("")){{"swapped 2", pair_names}, {"undone 4", pair_names}});
}

TEST_CASE("head rotation ranks the heads of each kind of attention separately and ignores padding", "[translation]") {
  const PairTraining data;
  const data::Pairs corpus = translation::corpus_of(data.sentences);
  struct Case {
    std::string options;
    analysis::PairSelection selection;
    int64_t k;
    std::string measure;
    std::vector<std::string> kinds;
  };
  const std::vector<Case> cases{
      {"mode = 'hard'\nk = 4\n", analysis::PairSelection::hard, 4, "avg-l2", {}},
      {"mode = 'soft'\nk = 2\nmeasure = 'confidence'\n", analysis::PairSelection::soft, 2, "confidence", {}},
      {"mode = 'soft'\nsoft = 'released'\nk = 1\n", analysis::PairSelection::released, 1, "avg-l2", {}},
      {"mode = 'in-layer'\nk = 1\n", analysis::PairSelection::in_layer, 1, "avg-l2", {}},
      {"mode = 'hard'\nk = 2\nmeasure = 'received'\nkind = ['decoder.cross', 'encoder.self']\n",
       analysis::PairSelection::hard,
       2,
       "received",
       {"encoder.self", "decoder.cross"}}};
  int number = 0;
  for (const Case& c : cases) {
    INFO(c.options);
    const std::string name = str("run", number++);
    auto run = data.train(name, rotation_toml(c.options) + train_length("1e"));
    const auto measure =
        analysis::importance_measures().make(c.measure, "")->make_observer(analysis::SideSelection::whole);
    {
      const c10::NoGradGuard no_gradient;
      for (int64_t pair = 0; pair < static_cast<int64_t>(data.sentences.size()); ++pair) {
        const data::Batch batch = translation::load_pair(corpus, pair);
        measure->begin_batch(batch.input.lengths);
        run.model->hidden(batch.input, {}, nullptr, measure.get());
      }
    }
    std::vector<std::string> expected;
    for (const auto& [kind, scores] : measure->mean_scores()) {
      if (!c.kinds.empty() && std::find(c.kinds.begin(), c.kinds.end(), name_of(kind)) == c.kinds.end()) continue;
      for (const HeadPair& pair : analysis::pair_ranked(c.selection, kind, scores, c.k, 0))
        expected.push_back(to_string(pair));
    }
    const io::Checkpoint checkpoint(data.folder.file(name) + "/last.safetensors");
    const auto state = nlohmann::json::parse(checkpoint.metadata_entry(io::kTrainingKey));
    const auto procedure = nlohmann::json::parse(state.at("procedures").at("head-rotation").get<std::string>());
    CHECK(procedure.at("planned").get<std::vector<std::string>>() == expected);
  }
  // Random selection draws k pairs of each kind of attention, with no head in two pairs, and swaps the same pairs back.
  data.train("random", rotation_toml("mode = 'random'\nk = 3\nstart = 1\nfrequency = 1\nrest = 1\nend = 3\n") +
                           train_length("4e"));
  const auto actions = data.logged_actions("random");
  REQUIRE(actions.size() == 4);
  std::map<std::string, int> pairs_by_kind;
  std::set<std::string> used_heads;
  for (const std::string& text : actions[0].second) {
    const HeadPair pair = analysis::parse_pair(text, "test");
    ++pairs_by_kind[name_of(pair.kind)];
    for (const auto& head : {pair.a, pair.b})
      CHECK(used_heads.insert(str(name_of(pair.kind), head.layer, ".", head.head)).second);
  }
  CHECK(pairs_by_kind == std::map<std::string, int>{{"encoder.self", 3}, {"decoder.self", 3}, {"decoder.cross", 3}});
  CHECK(actions[1] == std::pair<std::string, std::vector<std::string>>{"undone 2", actions[0].second});
  CHECK(actions[2].first == "swapped 3");
  CHECK(actions[2].second != actions[0].second);
  // k = 5 exceeds the 4 pairs that decoder.self and decoder.cross allow, but not the 6 pairs that encoder.self allows.
  CHECK(status_of([&] { data.train("no", rotation_toml("mode = 'hard'\nk = 5\n") + train_length("1u")); }) == 2);
  CHECK(status_of([&] {
          data.train("no", rotation_toml("mode = 'hard'\nk = 5\nkind = ['encoder.self']\n") + train_length("1u"));
        }) == 0);
}

TEST_CASE("nuclear growth refuses a ratio for a kind of attention without alphas", "[translation]") {
  const PairTraining data;
  const std::string growth =
      "[attention.decoder.self]\ncombiner = 'alphas'\n[train.regularisers.nuclear-growth]\nweight = 0.5\n";
  const auto growth_error = [&](const std::string& extra_toml) {
    RunConfig config = data.run_config(growth + extra_toml);
    auto model = translation::build_model(config.model);
    return refusal([&] { config.regularisers.start(model->parameters(), config.model.attention); });
  };
  CHECK(growth_error("") == "");
  CHECK(growth_error("[train.regularisers.nuclear-growth.decoder.self]\nratio = 2.0\n") == "");
  CHECK(growth_error("[train.regularisers.nuclear-growth.decoder.cross]\nratio = 2.0\n")
            .find("nuclear-growth.decoder.cross.ratio: expected a kind of attention whose layers have alphas") !=
        std::string::npos);
}

TEST_CASE("nuclear growth freezes alphas until its start, then grows their nuclear norm by the ratio of each kind",
          "[translation]") {
  const PairTraining data;
  const std::string growth =
      "[attention]\ncombiner = 'alphas'\n[train.regularisers.nuclear-growth]\nweight = 0.5\nstart = 0.5\n"
      "[train.regularisers.nuclear-growth.decoder.cross]\nratio = 2.0\n"
      "[train.regularisers.nuclear-growth.decoder.self]\nratio = 0.0\n";
  // The gradient of the term with respect to the alphas α = U S Vᵀ of an attention layer is -γ r U Vᵀ, with weight γ
  // and ratio r.
  RunConfig config = data.run_config(growth);
  auto model = translation::build_model(config.model);
  config.regularisers.start(model->parameters(), config.model.attention);
  CHECK_FALSE(config.regularisers.loss({4, 0, 10}).defined());
  const at::Tensor value = config.regularisers.loss({5, 0, 10});
  REQUIRE(value.defined());
  value.backward();
  int num_layers = 0;
  double norm_sum = 0;  // γ Σ r |α|_* over layers
  for (const auto& p : model->parameters().all()) {
    if (!matches_pattern("*.combiner.alpha", p.name())) continue;
    ++num_layers;
    INFO(p.name());
    const AttentionKind kind = analysis::layer_of(p.name())->kind;
    const double ratio = kind == AttentionKind::decoder_cross ? 2 : kind == AttentionKind::decoder_self ? 0 : 1;
    CHECK(config.regularisers.freezes(p, {4, 0, 10}));
    CHECK(config.regularisers.freezes(p, {5, 0, 10}) == (ratio == 0));
    if (ratio == 0) {
      CHECK_FALSE(p.master().grad().defined());
      continue;
    }
    const auto [u, s, v] = at::linalg_svd(p.master().detach().to(at::kDouble), false);
    // The gradient is computed in fp64 from the same decomposition and rounded to fp32.
    CHECK(rounding::agree(p.master().grad(), -0.5 * ratio * at::matmul(u, v), 1));
    norm_sum += 0.5 * ratio * s.sum().item<double>();
  }
  // The value is γ Δ Σ r over the layers, with margin Δ. It is computed as a sum of differences of nuclear norms,
  // rounded to fp32. A norm has the error of a singular value decomposition in fp64 with up to 10 sweeps of rotations.
  const double expected = 0.5 * 1e-4 * (3 + 2 * 2);
  CHECK(value.item<double>() == rounding::within(expected, tolerance::chain_error_bound(1, tolerance::kFp32, expected) +
                                                               rounding::fp64_bound(10 * 8, norm_sum)));
  CHECK(num_layers == 7);
  auto until_start = data.train("half", growth + train_length("2e") + "schedule.length = '4e'\n"),
       full_length = data.train("whole", growth + train_length("4e"));
  for (const auto& p : until_start.model->parameters().all()) {
    if (!matches_pattern("*.combiner.alpha", p.name())) continue;
    INFO(p.name());
    const at::Tensor trained_matrix = runs::find(full_length, p.name());
    CHECK(at::equal(p.master(), at::eye(4)));
    const bool stays_frozen = analysis::layer_of(p.name())->kind == AttentionKind::decoder_self;
    CHECK(at::equal(trained_matrix, at::eye(4)) == stays_frozen);
    if (!stays_frozen) CHECK(at::linalg_svdvals(trained_matrix).sum().item<double>() > 4);
  }
}

TEST_CASE("block coordinate descent trains all gates in every second epoch and all other parameters in every epoch",
          "[translation]") {
  const PairTraining data;
  const std::string model =
      "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[attention.encoder.self.mae]\nmean = 'full'\n";
  const std::string method = model +
                             "[train.groups.gates]\nmatch = ['*.gate.*']\nrule = 'sgd'\nlr = 1.0\n"
                             "[train.procedures.block-coordinate]\nevery = 2\n";
  auto start = data.train("start", model + train_length("1u", "0.0")),
       first = data.train("first", method + train_length("1e")),
       second = data.train("second", method + train_length("2e")),
       third = data.train("third", method + train_length("3e"));
  std::set<std::string> kinds;
  for (const auto& p : start.model->parameters().all()) {
    INFO(p.name());
    const at::Tensor after_1 = runs::find(first, p.name()), after_2 = runs::find(second, p.name()),
                     after_3 = runs::find(third, p.name());
    if (!matches_pattern("*.gate.*", p.name())) {
      CHECK_FALSE(at::equal(after_1, after_2));
      CHECK_FALSE(at::equal(after_2, after_3));
      continue;
    }
    kinds.insert(name_of(analysis::layer_of(p.name())->kind));
    CHECK_FALSE(at::equal(p.master(), after_1));
    CHECK(at::equal(after_1, after_2));
    CHECK_FALSE(at::equal(after_2, after_3));
  }
  CHECK(kinds.size() == 3);
}

namespace {

// The results of a forward and backward pass: the loss, the regulariser's term, gradients, and the values of parameters
// that are not trainable (batch norm statistics).
struct LossAndGradients {
  double loss = 0, term = 0;
  double pass_bound = 0, gradient_bound = 0;  // rounding::pass_bound() and gradient_bound() of the model
  std::map<std::string, at::Tensor> gradients, statistics;
};

// Runs the forward and backward pass of training on one batch of the pairs `order`, in this order. Adds `extra_padding`
// target positions and 2 · extra_padding source positions of padding. `regulariser`: text of a section, without its
// initial "[train.regularisers."; empty: no regulariser. `samples_experts`: requests sampled experts
// (attention::SampleExpertsRequest).
LossAndGradients forward_backward(const model::ModelConfig& config, const std::string& regulariser,
                                  const data::Pairs& corpus, const std::vector<int64_t>& order, int64_t extra_padding,
                                  bool samples_experts) {
  Config section;
  if (!regulariser.empty()) section.load_text("[train.regularisers." + regulariser, "test");
  Regularisers terms;
  if (!regulariser.empty()) terms.read(section, "train.regularisers", regularisers());
  const auto model = translation::build_model(config);
  if (!regulariser.empty()) terms.start(model->parameters(), config.attention);
  std::vector<data::Row> rows;
  for (int64_t pair : order) rows.push_back(corpus.row_of(pair));
  data::Batch batch = data::load_pairs(corpus, rows);
  const auto pad = [&](const at::Tensor& x, int64_t count, int64_t value) {
    return at::constant_pad_nd(x, {0, count}, static_cast<double>(value));
  };
  batch.input.tokens = pad(batch.input.tokens, extra_padding, 3);
  batch.input.source = pad(batch.input.source, 2 * extra_padding, 5);
  batch.targets = pad(batch.targets, extra_padding, -1);
  nn::ForwardContext forward_context;
  nn::Requests requests;
  if (samples_experts) requests.add(std::make_shared<attention::SampleExpertsRequest>());
  forward_context.training = true, forward_context.seed = 7, forward_context.requests = &requests;
  attention::Observer* observer = regulariser.empty() ? nullptr : terms.observer();
  if (observer != nullptr) observer->begin_batch(batch.input.lengths);
  const nn::SlicedLoss loss = model->loss(model->hidden(batch.input, forward_context, nullptr, observer),
                                          {batch.targets}, 0.1, forward_context);
  const at::Tensor term = regulariser.empty() ? at::Tensor() : terms.loss({0, 0, 1});
  at::Tensor sum = loss.smoothed;
  LossAndGradients result;
  const int64_t keys = std::max(batch.input.tokens.size(1), batch.input.source.size(1));
  result.pass_bound = rounding::pass_bound(*model, keys),
  result.gradient_bound = rounding::gradient_bound(*model, keys);
  result.loss = sum.item<double>();
  if (term.defined()) {
    result.term = term.item<double>();
    sum = sum + term * static_cast<double>(loss.num_scored);
  }
  sum.backward();
  for (const auto& p : model->parameters().all()) {
    if (p.master().grad().defined()) result.gradients[p.name()] = p.master().grad().clone();
    if (!p.traits().trainable) result.statistics[p.name()] = p.master().detach().clone();
  }
  return result;
}

// Checks that the results are equal up to rounding: the loss, the term and the statistics follow from forward passes,
// the gradients from forward and backward passes. Padding adds only zeros, so the bounds of `a` hold for both.
void check_close(const LossAndGradients& a, const LossAndGradients& b) {
  CHECK(a.loss == rounding::within(b.loss, a.pass_bound * b.loss));
  CHECK(a.term == rounding::within(b.term, a.pass_bound * std::abs(b.term)));
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (const auto& [name, gradient] : a.gradients) {
    if (matches_pattern("*.key.bias", name))
      continue;  // 0 but for rounding: a key bias shifts all logits of a query equally
    INFO(name);
    const double size = std::max(1.0, gradient.abs().max().item<double>());
    CHECK((gradient - b.gradients.at(name)).abs().max().item<double>() <= a.gradient_bound * size);
  }
  REQUIRE(a.statistics.size() == b.statistics.size());
  for (const auto& [name, x] : a.statistics)
    CHECK(numbers::error(x, b.statistics.at(name)) <= a.pass_bound * std::max(1.0, numbers::max_abs(x)));
}

}  // namespace

TEST_CASE("losses and gradients are independent of the order of the rows and of padding", "[translation]") {
  const pairs::SentencePairs sentences = translation::random_sentence_pairs(9);
  const data::Pairs corpus = translation::corpus_of(sentences);
  const std::vector<int64_t> order{0, 1, 2, 3, 4, 5, 6, 7, 8}, shuffled{7, 2, 5, 0, 8, 1, 6, 4, 3};
  const std::string mae_lines = "combiner = 'mae'\n[attention.mae]\nhidden = 6\ndropout = 0.0\n",
                    full_mean = "[attention.encoder.self.mae]\nmean = 'full'\n";
  struct Case {
    std::string attention, regulariser;
    bool samples_experts = false;
  };
  const std::vector<Case> cases{
      {"", "disagreement]\nproperty = 'outputs'\nweight = 0.5\n"},
      {"", "disagreement]\nproperty = 'positions'\nweight = 0.5\n"},
      {"", "subspace-overlap]\nsubspace = 'rows'\nweight = 0.5\n"},
      {"", "subspace-overlap]\nsubspace = 'columns'\nweight = 0.5\n"},
      {"mixer = 'mixhead-b'\n", "orthogonal-mixing]\nmatrix_source = 'positions'\nweight = 0.5\n"},
      {"combiner = 'mixture-of-heads'\n", "head-balance]\nweight = 0.5\n"},
      {"combiner = 'alphas'\n", "nuclear-growth]\nweight = 0.5\nstart = 0.0\n"},
      {mae_lines, ""},
      {mae_lines + full_mean, ""},
      {mae_lines, "", true},
      {mae_lines + full_mean, "", true},
      {"combiner = 'mae'\nmae.gate = 'uniform'\n", "", true}};
  for (const Case& c : cases) {
    INFO(c.attention << c.regulariser << c.samples_experts);
    const auto config = translation::config_of(c.attention);
    const LossAndGradients expected = forward_backward(config, c.regulariser, corpus, order, 0, c.samples_experts);
    CHECK(std::isfinite(expected.loss));
    if (!c.regulariser.empty()) CHECK(expected.term != 0);
    check_close(expected, forward_backward(config, c.regulariser, corpus, order, 3, c.samples_experts));
    // Sampled experts depend on the index of a row in its batch.
    if (!c.samples_experts) check_close(expected, forward_backward(config, c.regulariser, corpus, shuffled, 0, false));
  }
  // Without regularisers and batch norm, the loss and the gradients of a batch are the sums over its rows.
  const auto config = translation::config_of("mixer = 'mixhead-b'\n");
  const LossAndGradients full_batch = forward_backward(config, "", corpus, order, 0, false);
  LossAndGradients sum;
  for (int64_t pair : order) {
    const LossAndGradients row = forward_backward(config, "", corpus, {pair}, 0, false);
    sum.loss += row.loss;
    for (const auto& [name, gradient] : row.gradients)
      sum.gradients[name] = sum.gradients.count(name) > 0 ? sum.gradients[name] + gradient : gradient;
  }
  check_close(full_batch, sum);
}

TEST_CASE("skip-retain is refused for translation models", "[translation]") {
  const PairTraining data;
  const std::string message =
      refusal([&] { data.train("skip", train_length("4e") + "[train.procedures.skip-retain]\nuntil = '2e'\n"); });
  INFO(message);
  CHECK(message.find("a model that can skip layers") != std::string::npos);
}
