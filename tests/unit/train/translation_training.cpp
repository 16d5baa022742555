// Procedures and terms of the loss on translation models: each kind of attention by itself, rows of different lengths.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <set>

#include "analysis/importance.h"
#include "analysis/rotation.h"
#include "attention/methods/mae/sample_experts.h"
#include "base/json_types.h"
#include "base/text.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "fixtures/translation.h"

using namespace mh;
using namespace mh::train;
using analysis::AttentionKind;
using analysis::HeadPair;

namespace {

struct Data {
  Folder folder;
  pairs::Sentences sentences = translation::sentences(90);
  Data() { pairs::write(folder.file("t.mhs"), sentences, 10, 7); }

  RunConfig config(const std::string& extra) const {
    Config config;
    config.load_text(
        str("[model]\nbackbone = 'encoder-decoder'\nlayers = 2\nencoder-decoder.encoder_layers = 3\nwidth = 16\nffn = "
            "16\n[attention]\nheads = 4\n[train]\nbatch.block = 11\nbatch.tokens = 150\nlr = 0.01\n"
            "validation.every = '1e'\nlog_every = '1e'\n[data]\ntrain = '",
            folder.file("t.mhs"), "'\nvalid = '", folder.file("t.mhs"), "'\n"),
        "test");
    config.load_text(extra, "extra");
    return RunConfig::read(config);
  }
  model::LoadedModel run(const std::string& name, const std::string& extra) const {
    return runs::run(config(extra), folder.file(name));
  }
  // What the log says of the rotation: "swapped 2", and the pairs.
  std::vector<std::pair<std::string, std::vector<std::string>>> told(const std::string& name) const {
    std::vector<std::pair<std::string, std::vector<std::string>>> lines;
    for (const auto& line : runs::logged(folder.file(name), "head-rotation")) {
      const auto& did = line.at("head-rotation");
      const char* what = did.contains("swapped") ? "swapped" : "undone";
      lines.emplace_back(str(what, " ", did.at("epoch").get<int>()), did.at(what).get<std::vector<std::string>>());
    }
    return lines;
  }
};

std::string rotation(const std::string& options) { return "[train.procedures.head-rotation]\n" + options; }
std::string length(const std::string& of, const std::string& lr = "0.01") {
  return str("[train]\nlength = '", of, "'\nlr = ", lr, "\n");
}

void check_equal(model::LoadedModel& a, model::LoadedModel& b) {
  for (const auto& p : a.model->parameters().all()) {
    INFO(p.name());
    CHECK(at::equal(p.master(), runs::find(b, p.name())));
  }
}

}  // namespace

TEST_CASE("head rotation of translation models: pairs of any kind, there and back", "[kinds]") {
  const Data data;
  const std::vector<std::string> named{"encoder.self:0.1-2.3", "decoder.self:0.0-1.2", "decoder.cross:1.0-0.3"};
  const std::string method = rotation(str("mode = 'manual'\npairs = ['", join(named, "', '"), "']\nepochs = [2, 4]\n"));
  auto start = data.run("start", length("1u", "0.0"));
  for (auto [epochs, swapped] : {std::pair{1, false}, {2, true}, {3, true}, {4, false}}) {
    INFO(epochs);
    auto run = data.run(str("run", epochs), method + length(str(epochs, "e"), "0.0"));
    auto expected = data.run(str("start", epochs), length("1u", "0.0"));
    std::vector<HeadPair> moved;
    for (const std::string& text : named) moved.push_back(analysis::parse_pair(text, "test"));
    if (swapped) analysis::swap_heads(expected.model->parameters(), moved, {}, "test");
    check_equal(expected, run);
    for (const char* layer : {"encoder.layers.2.self", "decoder.layers.0.self", "decoder.layers.1.cross"})
      CHECK(at::equal(runs::find(run, str(layer, ".value.weight")), runs::find(start, str(layer, ".value.weight"))) !=
            swapped);
  }
  CHECK(data.told("run4") == decltype(data.told("")){{"swapped 2", named}, {"undone 4", named}});
}

TEST_CASE("head rotation ranks each kind by itself, on sentences without what fills them up", "[kinds]") {
  const Data data;
  const data::Pairs corpus = translation::corpus_of(data.sentences);
  struct Case {
    std::string options;
    analysis::Selection selection;
    int64_t k;
    std::string measure;
    std::vector<std::string> kinds;
  };
  const std::vector<Case> cases{
      {"mode = 'hard'\nk = 4\n", analysis::Selection::hard, 4, "avg-l2", {}},
      {"mode = 'soft'\nk = 2\nmeasure = 'confidence'\n", analysis::Selection::soft, 2, "confidence", {}},
      {"mode = 'soft'\nsoft = 'released'\nk = 1\n", analysis::Selection::released, 1, "avg-l2", {}},
      {"mode = 'hard'\nk = 2\nmeasure = 'received'\nkind = ['decoder.cross', 'encoder.self']\n",
       analysis::Selection::hard,
       2,
       "received",
       {"encoder.self", "decoder.cross"}}};
  int number = 0;
  for (const Case& c : cases) {
    INFO(c.options);
    const std::string name = str("run", number++);
    auto run = data.run(name, rotation(c.options) + length("1e"));
    const auto measure = analysis::importances().make(c.measure, "")->observing_measure(analysis::Side::whole);
    {
      const c10::NoGradGuard no_gradient;
      for (int64_t pair = 0; pair < static_cast<int64_t>(data.sentences.size()); ++pair) {
        const data::Batch batch = translation::load_pair(corpus, pair);
        measure->begin(batch.input.lengths);
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
    const auto state = nlohmann::json::parse(checkpoint.entry(io::kTrainingKey));
    const auto mine = nlohmann::json::parse(state.at("procedures").at("head-rotation").get<std::string>());
    CHECK(mine.at("planned").get<std::vector<std::string>>() == expected);
  }
  // Drawn ones: as many of each kind, no head twice, put back as they went.
  data.run("random", rotation("mode = 'random'\nk = 3\nstart = 1\nfrequency = 1\nrest = 1\nend = 3\n") + length("4e"));
  const auto told = data.told("random");
  REQUIRE(told.size() == 4);
  std::map<std::string, int> of_kind;
  std::set<std::string> heads;
  for (const std::string& text : told[0].second) {
    const HeadPair pair = analysis::parse_pair(text, "test");
    ++of_kind[name_of(pair.kind)];
    for (const auto& head : {pair.a, pair.b})
      CHECK(heads.insert(str(name_of(pair.kind), head.layer, ".", head.head)).second);
  }
  CHECK(of_kind == std::map<std::string, int>{{"encoder.self", 3}, {"decoder.self", 3}, {"decoder.cross", 3}});
  CHECK(told[1] == std::pair<std::string, std::vector<std::string>>{"undone 2", told[0].second});
  CHECK(told[2].first == "swapped 3");
  CHECK(told[2].second != told[0].second);
  // More pairs than the smallest kind has.
  CHECK(status_of([&] { data.run("no", rotation("mode = 'hard'\nk = 5\n") + length("1u")); }) == 2);
  CHECK(status_of(
            [&] { data.run("no", rotation("mode = 'hard'\nk = 5\nkind = ['encoder.self']\n") + length("1u")); }) == 0);
}

TEST_CASE("a ratio of growth for a kind of attention without alphas is refused", "[kinds]") {
  const Data data;
  const std::string growth =
      "[attention.decoder.self]\ncombiner = 'alphas'\n[train.regularisers.nuclear-growth]\nweight = 0.5\n";
  const auto refused = [&](const std::string& more) {
    RunConfig config = data.config(growth + more);
    auto model = translation::built(config.model);
    return refusal([&] { config.regularisers.start(model->parameters(), config.model.attention); });
  };
  CHECK(refused("") == "");
  CHECK(refused("[train.regularisers.nuclear-growth.decoder.self]\nratio = 2.0\n") == "");
  CHECK(refused("[train.regularisers.nuclear-growth.decoder.cross]\nratio = 2.0\n")
            .find("nuclear-growth.decoder.cross.ratio: expected a kind of attention with alphas") != std::string::npos);
}

TEST_CASE("alphas of every kind rest until a share of training, then their nuclear norm grows by the kind's ratio",
          "[kinds]") {
  const Data data;
  const std::string growth =
      "[attention]\ncombiner = 'alphas'\n[train.regularisers.nuclear-growth]\nweight = 0.5\nstart = 0.5\n"
      "[train.regularisers.nuclear-growth.decoder.cross]\nratio = 2.0\n"
      "[train.regularisers.nuclear-growth.decoder.self]\nratio = 0.0\n";
  // The term's gradient is -γ r U Vᵀ in each module.
  RunConfig config = data.config(growth);
  auto model = translation::built(config.model);
  config.regularisers.start(model->parameters(), config.model.attention);
  CHECK_FALSE(config.regularisers.loss({4, 0, 10}).defined());
  const at::Tensor value = config.regularisers.loss({5, 0, 10});
  REQUIRE(value.defined());
  CHECK(value.item<double>() == Approx(0.5 * 1e-4 * (3 + 2 * 2)).epsilon(0.02));  // γ Δ Σ r
  value.backward();
  int modules = 0;
  for (const auto& p : model->parameters().all()) {
    if (!matches("*.combiner.alpha", p.name())) continue;
    ++modules;
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
    CHECK(numbers::close(p.master().grad().to(at::kDouble), -0.5 * ratio * at::matmul(u, v)));
  }
  CHECK(modules == 7);
  auto half = data.run("half", growth + length("2e") + "schedule.length = '4e'\n"),
       whole = data.run("whole", growth + length("4e"));
  for (const auto& p : half.model->parameters().all()) {
    if (!matches("*.combiner.alpha", p.name())) continue;
    INFO(p.name());
    const at::Tensor now = runs::find(whole, p.name());
    CHECK(at::equal(p.master(), at::eye(4)));
    const bool rests = analysis::layer_of(p.name())->kind == AttentionKind::decoder_self;
    CHECK(at::equal(now, at::eye(4)) == rests);
    if (!rests) CHECK(at::linalg_svdvals(now).sum().item<double>() > 4);
  }
}

TEST_CASE("block coordinate descent trains the gates of all kinds in its epochs, and all else in every one",
          "[kinds]") {
  const Data data;
  const std::string model =
      "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[attention.encoder.self.mae]\nmean = 'full'\n";
  const std::string method = model +
                             "[train.groups.gates]\nmatch = ['*.gate.*']\nrule = 'sgd'\nlr = 1.0\n"
                             "[train.procedures.block-coordinate]\nevery = 2\n";
  auto start = data.run("start", model + length("1u", "0.0")), first = data.run("first", method + length("1e")),
       second = data.run("second", method + length("2e")), third = data.run("third", method + length("3e"));
  std::set<std::string> kinds;
  for (const auto& p : start.model->parameters().all()) {
    INFO(p.name());
    const at::Tensor one = runs::find(first, p.name()), two = runs::find(second, p.name()),
                     three = runs::find(third, p.name());
    if (!matches("*.gate.*", p.name())) {
      CHECK_FALSE(at::equal(one, two));
      CHECK_FALSE(at::equal(two, three));
      continue;
    }
    kinds.insert(name_of(analysis::layer_of(p.name())->kind));
    CHECK_FALSE(at::equal(p.master(), one));
    CHECK(at::equal(one, two));
    CHECK_FALSE(at::equal(two, three));
  }
  CHECK(kinds.size() == 3);
}

namespace {

// A pass of training over these rows, in this order, the terms of the loss included.
struct Trained {
  double loss = 0, term = 0;
  std::map<std::string, at::Tensor> gradients, statistics;
};

Trained trained(const model::ModelConfig& config, const std::string& regulariser, const data::Pairs& corpus,
                const std::vector<int64_t>& order, int64_t wider, bool samples) {
  Config section;
  if (!regulariser.empty()) section.load_text("[train.regularisers." + regulariser, "test");
  Regularisers terms;
  if (!regulariser.empty()) terms.read(section, "train.regularisers", regularisers());
  const auto model = translation::built(config);
  if (!regulariser.empty()) terms.start(model->parameters(), config.attention);
  std::vector<data::Row> rows;
  for (int64_t pair : order) rows.push_back(corpus.row_of(pair));
  data::Batch batch = data::load_pairs(corpus, rows);
  const auto widened = [&](const at::Tensor& x, int64_t by, int64_t value) {
    return at::constant_pad_nd(x, {0, by}, static_cast<double>(value));
  };
  batch.input.tokens = widened(batch.input.tokens, wider, 3);
  batch.input.source = widened(batch.input.source, 2 * wider, 5);
  batch.targets = widened(batch.targets, wider, -1);
  nn::ForwardContext step;
  nn::Requests requests;
  if (samples) requests.add(std::make_shared<attention::SampleExperts>());
  step.training = true, step.seed = 7, step.requests = &requests;
  attention::Observer* observer = regulariser.empty() ? nullptr : terms.observer();
  if (observer != nullptr) observer->begin(batch.input.lengths);
  const nn::SlicedLoss loss =
      model->loss(model->hidden(batch.input, step, nullptr, observer), batch.targets, 0.1, step);
  const at::Tensor term = regulariser.empty() ? at::Tensor() : terms.loss({0, 0, 1});
  at::Tensor sum = loss.smoothed;
  Trained t;
  t.loss = sum.item<double>();
  if (term.defined()) {
    t.term = term.item<double>();
    sum = sum + term * static_cast<double>(loss.scored);
  }
  sum.backward();
  for (const auto& p : model->parameters().all()) {
    if (p.master().grad().defined()) t.gradients[p.name()] = p.master().grad().clone();
    if (!p.traits().trainable) t.statistics[p.name()] = p.master().detach().clone();
  }
  return t;
}

void check_same(const Trained& a, const Trained& b) {
  CHECK(a.loss == Approx(b.loss).epsilon(1e-5));
  CHECK(a.term == Approx(b.term).epsilon(1e-5));
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (const auto& [name, gradient] : a.gradients) {
    if (matches("*.key.bias", name)) continue;  // 0 but for rounding: it moves all logits of a query alike
    INFO(name);
    const double size = std::max(1.0, gradient.abs().max().item<double>());
    CHECK((gradient - b.gradients.at(name)).abs().max().item<double>() < 3e-5 * size);
  }
  REQUIRE(a.statistics.size() == b.statistics.size());
  for (const auto& [name, x] : a.statistics) CHECK(numbers::close(x, b.statistics.at(name)));
}

}  // namespace

TEST_CASE("a pass of training is the same in any order of its rows and however far they are filled up", "[kinds]") {
  const pairs::Sentences sentences = translation::sentences(9);
  const data::Pairs corpus = translation::corpus_of(sentences);
  const std::vector<int64_t> order{0, 1, 2, 3, 4, 5, 6, 7, 8}, other{7, 2, 5, 0, 8, 1, 6, 4, 3};
  const std::string mae = "combiner = 'mae'\n[attention.mae]\nhidden = 6\ndropout = 0.0\n",
                    full = "[attention.encoder.self.mae]\nmean = 'full'\n";
  struct Case {
    std::string attention, regulariser;
    bool samples = false;
  };
  const std::vector<Case> cases{{"", "disagreement]\nof = 'outputs'\nweight = 0.5\n"},
                                {"", "disagreement]\nof = 'positions'\nweight = 0.5\n"},
                                {"", "subspace-overlap]\nof = 'rows'\nweight = 0.5\n"},
                                {"", "subspace-overlap]\nof = 'columns'\nweight = 0.5\n"},
                                {"mixer = 'mixhead-b'\n", "orthogonal-mixing]\nof = 'positions'\nweight = 0.5\n"},
                                {"combiner = 'mixture-of-heads'\n", "head-balance]\nweight = 0.5\n"},
                                {"combiner = 'alphas'\n", "nuclear-growth]\nweight = 0.5\nstart = 0.0\n"},
                                {mae, ""},
                                {mae + full, ""},
                                {mae, "", true},
                                {mae + full, "", true},
                                {"combiner = 'mae'\nmae.gate = 'uniform'\n", "", true}};
  for (const Case& c : cases) {
    INFO(c.attention << c.regulariser << c.samples);
    const auto config = translation::config_of(c.attention);
    const Trained one = trained(config, c.regulariser, corpus, order, 0, c.samples);
    CHECK(std::isfinite(one.loss));
    if (!c.regulariser.empty()) CHECK(one.term != 0);
    check_same(one, trained(config, c.regulariser, corpus, order, 3, c.samples));
    // Experts are drawn by the place of a row.
    if (!c.samples) check_same(one, trained(config, c.regulariser, corpus, other, 0, false));
  }
  // Without terms, and without a batch norm, a pass is the sum of its rows.
  const auto config = translation::config_of("mixer = 'mixhead-b'\n");
  const Trained all = trained(config, "", corpus, order, 0, false);
  Trained sum;
  for (int64_t pair : order) {
    const Trained row = trained(config, "", corpus, {pair}, 0, false);
    sum.loss += row.loss;
    for (const auto& [name, gradient] : row.gradients)
      sum.gradients[name] = sum.gradients.count(name) > 0 ? sum.gradients[name] + gradient : gradient;
  }
  check_same(all, sum);
}

TEST_CASE("layers of a translation model are not skipped", "[kinds]") {
  const Data data;
  const std::string said =
      refusal([&] { data.run("skip", length("4e") + "[train.procedures.skip-retain]\nuntil = '2e'\n"); });
  INFO(said);
  CHECK(said.find("a model that can skip layers") != std::string::npos);
}
