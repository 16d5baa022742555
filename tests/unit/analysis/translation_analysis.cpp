// Analyses of translation models: encoder.self, decoder.self and decoder.cross, rows of different lengths. Each against
// plain loops over sentences that are looked at one by one, so that nothing is filled up.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <set>

#include "analysis/curve.h"
#include "analysis/discrepancy.h"
#include "analysis/experts_report.h"
#include "analysis/prune.h"
#include "analysis/rotation.h"
#include "analysis/spectrum_source.h"
#include "attention/gated_combiner.h"
#include "attention/head_mix.h"
#include "attention/head_scales.h"
#include "fixtures/status.h"
#include "fixtures/translation.h"

using namespace mh;
using namespace mh::analysis;

namespace {

const std::map<AttentionKind, int64_t> kLayers{
    {AttentionKind::encoder_self, 3}, {AttentionKind::decoder_self, 2}, {AttentionKind::decoder_cross, 2}};

struct Asked {
  model::ModelConfig config;
  std::unique_ptr<model::LanguageModel> model;
  pairs::Sentences sentences;
  data::Pairs corpus;

  explicit Asked(const std::string& attention, int count = 13)
      : config(translation::config_of(attention)),
        model(translation::built(config)),
        sentences(translation::sentences(count)),
        corpus(translation::corpus_of(sentences)) {}
  // `tokens`: so many in a pass, at most; those of one pair at least.
  AnalysisInput subject(int64_t tokens = 1 << 12, Side side = Side::whole, const Kinds& kinds = {}) const {
    AnalysisInput s{*model, corpus, {}, side, {}, kinds};
    s.how = corpus.resolve(s.how, *model);
    s.how.batch = std::max<int64_t>(1, tokens / s.how.block);
    return s;
  }
  int64_t size() const { return static_cast<int64_t>(sentences.size()); }
};

// Random heads of all kinds.
HeadSet some_heads(model::LanguageModel& model, int64_t step = 1) {
  HeadSet some;
  for (const auto& [kind, heads] : all_heads(model, Side::whole))
    for (const Head& head : heads)
      if (head.head % step == 0 && *rc::gen::inRange(0, 4) == 0)
        for (int64_t i = 0; i < step; ++i) some[kind].insert({head.layer, head.head + i});
  return some;
}

// One pair after the other.
task::Score alone(const Asked& asked) {
  task::Score sum;
  for (const auto& pair : asked.sentences) {
    const task::Score s = task::score(*asked.model, translation::corpus_of({pair}), {});
    sum.nll += s.nll, sum.tokens += s.tokens;
  }
  return sum;
}

// What one layer shows of one pair, with the gradient of the pair's loss.
struct Shown {
  at::Tensor p, z, dz;  // (h, T, S), (h, T, dv)
};
using Place = std::pair<AttentionKind, int64_t>;

// By place, pair by pair.
std::map<Place, std::vector<Shown>> shown(const Asked& asked) {
  struct Store : attention::Observer {
    std::map<Place, Shown> now;
    void probabilities(const attention::LayerSpec& s, const at::Tensor& x) override { now[{s.kind, s.layer}].p = x; }
    at::Tensor heads(attention::HeadSide side, const attention::LayerSpec& s, const at::Tensor& x) override {
      return side == attention::HeadSide::value ? now[{s.kind, s.layer}].z = x : x;
    }
  };
  std::map<Place, std::vector<Shown>> all;
  for (int64_t pair = 0; pair < asked.size(); ++pair) {
    Store store;
    const data::Batch batch = translation::alone(asked.corpus, pair);
    const at::Tensor hidden = asked.model->hidden(batch.input, {}, nullptr, &store);
    const at::Tensor loss = asked.model->loss(hidden, batch.targets, 0).smoothed;
    std::vector<at::Tensor> outputs;
    for (const auto& [place, s] : store.now) outputs.push_back(s.z);
    const auto gradients = torch::autograd::grad({loss}, outputs);
    size_t next = 0;
    for (auto& [place, s] : store.now) {
      s.dz = gradients[next++][0].to(at::kDouble);
      s.p = s.p.detach()[0].to(at::kDouble), s.z = s.z.detach()[0].to(at::kDouble);
      all[place].push_back(s);
    }
  }
  return all;
}

// By plain loops. Words: of the encoder's side all but the last, of the decoder's all but the first.
std::vector<double> reference(const std::string& measure, AttentionKind kind, const std::vector<Shown>& all) {
  const int64_t heads = all[0].p.size(0);
  std::vector<double> scores;
  for (int64_t i = 0; i < heads; ++i) {
    double sum = 0, count = 0;
    for (const Shown& s : all) {
      const int64_t queries = s.p.size(1), keys = s.p.size(2);
      const auto at = [&](int64_t t, int64_t k) { return s.p[i][t][k].item<double>(); };
      const bool from_encoder = kind == AttentionKind::encoder_self, to_encoder = kind != AttentionKind::decoder_self;
      const int64_t first = from_encoder ? 0 : 1, last = from_encoder ? queries - 1 : queries;
      if (measure == "confidence" || measure == "entropy") {
        for (int64_t t = first; t < last; ++t, ++count) {
          double largest = 0, h = 0;
          for (int64_t k = 0; k < keys; ++k) {
            largest = std::max(largest, at(t, k));
            if (at(t, k) > 0) h += at(t, k) * std::log(at(t, k));
          }
          sum += measure == "entropy" ? h : largest;
        }
      } else if (measure == "received") {
        for (int64_t k = to_encoder ? 0 : 1; k < (to_encoder ? keys - 1 : keys); ++k, ++count) {
          double largest = 0;
          for (int64_t t = 0; t < queries; ++t) largest = std::max(largest, at(t, k));
          sum += largest;
        }
      } else if (measure == "taylor") {
        for (int64_t t = 0; t < queries; ++t, ++count) sum += std::abs((s.z[i][t] * s.dz[i][t]).sum().item<double>());
      } else {
        const at::Tensor& x = measure == "avg-l2" ? s.p : s.z;
        for (int64_t j = 0; j < heads; ++j) sum += (x[i] - x[j]).square().sum().sqrt().item<double>() / (heads - 1.0);
        ++count;
      }
    }
    scores.push_back(sum / count);
  }
  return scores;
}

void check_near(const std::map<AttentionKind, LayerScores>& a, const std::map<AttentionKind, LayerScores>& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [kind, layers] : a) {
    REQUIRE(layers.size() == b.at(kind).size());
    for (size_t i = 0; i < layers.size(); ++i) CHECK(numbers::worst(layers[i], b.at(kind)[i]) < 2e-5);
  }
}

}  // namespace

TEST_CASE("models without heads of any kind score together as one after the other, pair by pair", "[kinds]") {
  const std::vector<std::string> stages{
      "",
      "mixer = 'mixhead-b'\ncombiner = 'alphas'\n",
      "mixer = 'talking-heads'\n",
      "combiner = 'mae'\n[attention.encoder.self.mae]\nmean = 'full'\n",
      "combiner = 'gates'\ngates.input = true\n",
      "pairing = 'cross-head'\nnormaliser = 'sigsoftmax'\n",
      "[attention.encoder.self]\nscore = 'relative'\nheads = 3\n",
      "[attention.decoder.cross]\nheads = 2\n[attention.encoder.self.1]\nheads = 0\n"};
  size_t checks = 0;
  CHECK(rc::check([&] {
    if (checks >= 24) return;  // each asks for many passes
    const std::string stage = stages[checks++ % stages.size()];
    const Asked asked(stage, 7);
    std::vector<HeadSet> sets;
    for (int i = *rc::gen::inRange(1, 6); i > 0; --i) sets.push_back(some_heads(*asked.model));
    const auto found = score_without(asked.subject(*rc::gen::elementOf(std::vector<int64_t>{1, 25, 4096})), sets,
                                     *rc::gen::elementOf(std::vector<int64_t>{1, 40, 1 << 14}));
    for (size_t i = 0; i < sets.size(); ++i) {
      const Masked masked(*asked.model, Side::whole, sets[i]);
      const task::Score wanted = alone(asked);
      RC_ASSERT(found[i].tokens == wanted.tokens);
      RC_ASSERT(std::abs(found[i].nll - wanted.nll) < 2e-5 * wanted.nll);
    }
    for (auto* layer : asked.model->attention_layers()) RC_ASSERT(!head_scales(*layer).value.defined());
  }));
  CHECK(checks >= stages.size());
  // Heads of every kind change something.
  const Asked asked("");
  const auto all = all_heads(*asked.model, Side::whole);
  const auto scores =
      score_without(asked.subject(), {{},
                                      {{AttentionKind::encoder_self, all.at(AttentionKind::encoder_self)}},
                                      {{AttentionKind::decoder_self, all.at(AttentionKind::decoder_self)}},
                                      {{AttentionKind::decoder_cross, all.at(AttentionKind::decoder_cross)}}});
  for (size_t i = 1; i < 4; ++i) CHECK(std::abs(scores[i].nll / scores[0].nll - 1) > 1e-3);
}

TEST_CASE("measures of importance are what plain loops over sentences give, in each kind", "[kinds]") {
  const Asked asked("");
  const auto seen = shown(asked);
  for (const char* measure : {"avg-l2", "avg-l2-outputs", "confidence", "received", "entropy", "taylor"})
    for (const int64_t tokens : {1, 4096}) {
      INFO(measure << " " << tokens);
      const auto scores = importance_of(measure, asked.subject(tokens));
      REQUIRE(scores.size() == 3);
      for (const auto& [place, rows] : seen) {
        INFO(name_of(place.first) << " " << place.second);
        const auto& found = scores.at(place.first)[static_cast<size_t>(place.second)];
        CHECK(numbers::worst(found, reference(measure, place.first, rows)) < 2e-5);
      }
    }
}

TEST_CASE("every measure gives the same in any batch, and of some kinds what it gives of all", "[kinds]") {
  for (const char* stage : {"mixer = 'mixhead-a'\ncombiner = 'alphas'\n",
                            "combiner = 'mae'\n[attention.encoder.self.mae]\nmean = 'full'\n"}) {
    const Asked asked(stage);
    for (const std::string& measure : importances().names()) {
      if (status_of([&] { check_importance(measure, "--by", *asked.model, Side::whole); }) != 0) continue;
      INFO(stage << measure);
      const auto one = importance_of(measure, asked.subject(1)), all = importance_of(measure, asked.subject());
      check_near(one, all);
      std::set<double> different;
      for (const auto& [kind, layers] : kLayers) {
        REQUIRE(static_cast<int64_t>(all.at(kind).size()) == layers);
        for (const auto& layer : all.at(kind)) different.insert(layer.begin(), layer.end());
      }
      CHECK(different.size() == 28);
      auto cross = importance_of(measure, asked.subject(4096, Side::whole, {AttentionKind::decoder_cross}));
      REQUIRE(cross.size() == 1);
      if (measure != "random")
        check_near(cross, {{AttentionKind::decoder_cross, all.at(AttentionKind::decoder_cross)}});
    }
  }
  // A side that only one kind has.
  const Asked asked("[attention.encoder.self]\nmixer = 'mixhead-a'\n");
  CHECK(status_of([&] { importance_of("confidence", asked.subject(4096, Side::score)); }) == 2);
  const auto scores = importance_of("confidence", asked.subject(4096, Side::score, {AttentionKind::encoder_self}));
  REQUIRE(scores.size() == 1);
  CHECK(scores.at(AttentionKind::encoder_self).size() == 3);
  CHECK(importance_of("ablation", asked.subject(4096, Side::score, {AttentionKind::encoder_self})).size() == 1);
}

TEST_CASE("what stands on the end of a sentence counts for confidence only in a text", "[kinds]") {
  // Two heads, three queries, three keys; the last of the source, or the first of the target, is no word.
  const at::Tensor p = numbers::normal({1, 2, 3, 3}, 1).softmax(-1);
  const at::Tensor three = at::tensor({3}, at::kLong);
  const auto score = [&](AttentionKind kind, const attention::Lengths& lengths) {
    attention::LayerSpec shape;
    shape.kind = kind;
    const auto measure = importances().make("confidence", "")->observing_measure(Side::whole);
    measure->begin(lengths);
    measure->probabilities(shape, p);
    return measure->mean_scores().at(kind)[0];
  };
  const auto mean = [&](int64_t first, int64_t count) {
    return numbers::doubles(p[0].narrow(1, first, count).amax(-1).to(at::kDouble).mean(1));
  };
  CHECK(numbers::worst(score(AttentionKind::decoder_self, three), mean(0, 3)) < 1e-6);
  CHECK(numbers::worst(score(AttentionKind::decoder_self, {three, three}), mean(1, 2)) < 1e-6);
  CHECK(numbers::worst(score(AttentionKind::decoder_cross, {three, three}), mean(1, 2)) < 1e-6);
  CHECK(numbers::worst(score(AttentionKind::encoder_self, {three, three}), mean(0, 2)) < 1e-6);
  CHECK(numbers::worst(score(AttentionKind::encoder_self, {three, at::tensor({2}, at::kLong)}), mean(0, 1)) < 1e-6);
}

TEST_CASE("a cut translation model is the whole one with those heads masked, in every stage and kind", "[kinds]") {
  for (const std::string& stage : translation::stages()) {
    INFO(stage);
    const Asked asked(stage, 5);
    const bool by_pairs =
        stage.find("differential") != std::string::npos || stage.find("pair-norm") != std::string::npos;
    // Of each kind some heads of one layer, and all of another.
    HeadSet cut;
    for (const auto& [kind, layers] : kLayers) {
      for (int64_t head : {0, 1, 2, 3}) cut[kind].insert({layers - 1, head});
      cut[kind].insert({0, 2});
      if (by_pairs) cut[kind].insert({0, 3});
    }
    const PrunedModel left =
        prune_heads(asked.config, *asked.model, kept_without(*asked.model, cut, Side::whole, "--heads"));
    for (const auto* layer : left.model->attention_layers()) {
      const auto& s = layer->layer_spec();
      const int64_t lost = s.layer == kLayers.at(s.kind) - 1 ? 4 : s.layer == 0 ? (by_pairs ? 2 : 1) : 0;
      CHECK(s.value_heads == 4 - lost);
    }
    const data::Pairs& all = asked.corpus;
    std::vector<data::Row> rows;
    for (int64_t pair = 0; pair < asked.size(); ++pair) rows.push_back(all.row_of(pair));
    const data::Batch batch = data::load_pairs(all, rows);
    {
      c10::NoGradGuard no_gradient;
      const Masked masked(*asked.model, Side::whole, cut);
      const at::Tensor wanted = asked.model->logits(asked.model->hidden(batch.input, {})),
                       found = left.model->logits(left.model->hidden(batch.input, {}));
      for (size_t b = 0; b < rows.size(); ++b)
        CHECK(numbers::close(found[static_cast<int64_t>(b)].narrow(0, 0, rows[b].length),
                             wanted[static_cast<int64_t>(b)].narrow(0, 0, rows[b].length), 3e-5));
      // Token by token, layers without heads included.
      const data::Batch one = translation::alone(asked.corpus, 1);
      const at::Tensor full = left.model->logits(left.model->hidden(one.input, {}));
      auto state = left.model->new_state();
      for (int64_t t = 0; t < one.input.tokens.size(1); ++t)
        CHECK(numbers::close(left.model->logits(left.model->hidden(
                                 {one.input.tokens.narrow(1, t, 1), one.input.source, {{}, one.input.lengths.encoder}},
                                 {}, state.get())),
                             full.narrow(1, t, 1), 3e-5));
    }
    // What is written builds the same parameters, and they train.
    const auto again = translation::built(models::configured(left.config.toml()));
    for (const auto& p : left.model->parameters().all()) {
      const auto* same = again->parameters().find(p.name());
      REQUIRE(same != nullptr);
      CHECK(same->master().sizes() == p.master().sizes());
    }
    nn::ForwardContext step;
    step.training = true;
    const at::Tensor loss = left.model->loss(left.model->hidden(batch.input, step), batch.targets, 0.1).smoothed;
    loss.backward();
    CHECK(std::isfinite(loss.item<double>()));
    CHECK(left.model->parameters()
              .find("encoder.layers.1.self.value.weight")
              ->master()
              .grad()
              .abs()
              .sum()
              .item<double>() > 0);
  }
}

TEST_CASE("heads change places within a kind; twice is the identity", "[kinds]") {
  Asked asked("mixer = 'mixhead-b'\ncombiner = 'alphas'\n");
  auto& parameters = asked.model->parameters();
  const auto copy = [&] {
    std::map<std::string, at::Tensor> all;
    for (const auto& p : parameters.all()) all[p.name()] = p.master().detach().clone();
    return all;
  };
  const auto before = copy();
  const std::map<AttentionKind, HeadPair> of{
      {AttentionKind::encoder_self, {AttentionKind::encoder_self, {0, 1}, {2, 3}}},
      {AttentionKind::decoder_self, {AttentionKind::decoder_self, {0, 0}, {1, 0}}},
      {AttentionKind::decoder_cross, {AttentionKind::decoder_cross, {1, 2}, {0, 1}}}};
  const SwapOptions everything{true, true};
  for (const auto& [kind, pair] : of) {
    swap_heads(parameters, {pair}, everything, "test");
    for (const auto& [name, x] : copy()) {
      const auto layer = layer_of(name);
      if (!layer || layer->kind != kind) CHECK(at::equal(x, before.at(name)));
    }
    const std::string query = prefix_of(kind, pair.a.layer) + ".query.weight";
    CHECK(at::equal(parameters.find(query)->master().narrow(0, 3 * pair.a.head, 3),
                    before.at(prefix_of(kind, pair.b.layer) + ".query.weight").narrow(0, 3 * pair.b.head, 3)));
    swap_heads(parameters, {pair}, everything, "test");
    for (const auto& [name, x] : copy()) CHECK(at::equal(x, before.at(name)));
  }
  // All at once, and within a layer with all that is theirs the model stays what it is.
  std::vector<HeadPair> across, within;
  for (const auto& [kind, pair] : of) across.push_back(pair), within.push_back({kind, {1, 0}, {1, 3}});
  const double score = alone(asked).nll;
  swap_heads(parameters, across, {}, "test");
  CHECK(std::abs(alone(asked).nll / score - 1) > 1e-4);
  swap_heads(parameters, across, {}, "test");
  swap_heads(parameters, within, everything, "test");
  CHECK(alone(asked).nll == Approx(score).epsilon(1e-5));
  CHECK(status_of([] { parse_pair("decoder.self:0.0-decoder.cross:1.0", "--pairs"); }) == 2);
  CHECK(status_of([&] {
          check_swap(parameters, {{AttentionKind::decoder_cross, {0, 0}, {2, 0}}}, {}, "--pairs");
        }) == 2);
  // A kind by itself, or all, each among its own layers.
  const auto key = [](const char* name) { return std::string(name); };
  const auto all = heads_to_pair(parameters, Selection::soft, 2, 0, {}, {}, key);
  CHECK(all.at(AttentionKind::encoder_self) == std::vector<int64_t>{4, 4, 4});
  CHECK(all.at(AttentionKind::decoder_cross) == std::vector<int64_t>{4, 4});
  CHECK(heads_to_pair(parameters, Selection::hard, 4, 0, {"decoder.cross"}, {}, key).size() == 1);
  CHECK(status_of([&] { heads_to_pair(parameters, Selection::hard, 5, 0, {}, {}, key); }) == 2);
}

TEST_CASE("a curve takes heads of all kinds together, or of one", "[kinds]") {
  const Asked asked("");
  for (const Kinds& kinds : {Kinds{}, Kinds{AttentionKind::decoder_cross}}) {
    const AnalysisInput s = asked.subject(4096, Side::whole, kinds);
    const auto points = pruning_curve(s, s, "confidence", {0.25, false, false, false});
    REQUIRE(points.size() == 5);
    const auto order = ranked(importance_of("confidence", s), false);
    const size_t heads = kinds.empty() ? 28 : 8;
    REQUIRE(order.size() == heads);
    for (size_t i = 0; i < points.size(); ++i) {
      HeadSet wanted;
      for (size_t r = 0; r < heads * i / 4; ++r) wanted[order[r].kind].insert(order[r].head);
      HeadSet masked = points[i].masked;
      for (auto it = masked.begin(); it != masked.end();) it = it->second.empty() ? masked.erase(it) : std::next(it);
      CHECK((masked == wanted));
      const Masked masking(*asked.model, Side::whole, wanted);
      CHECK(points[i].score.nll == Approx(alone(asked).nll).epsilon(2e-5));
    }
  }
}

TEST_CASE("head discrepancy of sentences leaves out what they are filled up with", "[kinds]") {
  c10::NoGradGuard no_gradient;
  const Asked asked("combiner = 'alphas'\n");
  Discrepancy together;
  observe(asked.subject(), together);
  CHECK(together.sequences() == asked.size());
  c10::AutoGradMode gradients(true);
  const auto seen = shown(asked);
  for (const auto& [place, rows] : seen) {
    double cosine = 0, euclidean = 0;
    for (const Shown& s : rows)
      for (int64_t i = 0; i < 4; ++i)
        for (int64_t j = 0; j < 4; ++j) {
          if (i == j) continue;
          const at::Tensor a = s.z[i].flatten(), b = s.z[j].flatten();
          euclidean += (a - b).norm().item<double>() / static_cast<double>(rows.size());
          cosine += (1 - a.dot(b) / (a.norm() * b.norm())).item<double>() / static_cast<double>(rows.size());
        }
    const auto found = together.layers().at(place.first)[static_cast<size_t>(place.second)];
    CHECK(found.before.euclidean == Approx(euclidean).epsilon(1e-5));
    CHECK(found.before.cosine == Approx(cosine).epsilon(1e-5));
    CHECK(found.after.euclidean != Approx(euclidean).epsilon(1e-3));
  }
}

namespace {

// Means over pairs of what a matrix of each has, and the curve by share.
struct Means {
  double first = 0, area = 0, effective = 0, share = 0, stable = 0, size = 0;
  std::vector<double> curve = std::vector<double>(100);
};

Means means_of(const std::vector<at::Tensor>& matrices) {
  Means m;
  const auto count = static_cast<double>(matrices.size());
  for (const at::Tensor& x : matrices) {
    const auto values = numbers::doubles(at::linalg_svdvals(x.to(at::kDouble)));
    const auto n = static_cast<double>(values.size());
    double sum = 0, squares = 0, entropy = 0, so_far = 0;
    for (double v : values) sum += v, squares += v * v;
    std::vector<double> c{0};
    for (double v : values) {
      c.push_back((so_far += v) / sum);
      m.area += c.back() / n / count;
      if (v > 0) entropy -= v / sum * std::log(v / sum);
    }
    m.first += c[1] / count, m.size += n / count;
    m.effective += std::exp(entropy) / count, m.share += std::exp(entropy) / n / count;
    m.stable += squares / (values[0] * values[0]) / count;
    for (size_t j = 1; j <= 100; ++j) {
      const double at = static_cast<double>(j) * n / 100;
      const auto below = std::min(static_cast<size_t>(at + 1e-9), values.size() - 1);
      m.curve[j - 1] += (c[below] + (at - static_cast<double>(below)) * (c[below + 1] - c[below])) / count;
    }
  }
  return m;
}

void check_spectra(const PlaceSpectra& place, const std::vector<at::Tensor>& matrices) {  // (h, m, n) each
  const Ranks found = place.spectra.means();
  REQUIRE(place.spectra.blocks() == static_cast<int64_t>(matrices.size()));
  CHECK(place.spectra.by_share());
  for (int64_t h = 0; h < matrices[0].size(0); ++h) {
    std::vector<at::Tensor> of_head;
    for (const at::Tensor& x : matrices) of_head.push_back(x[h]);
    const Means m = means_of(of_head);
    CHECK(place.spectra.size() == Approx(m.size));
    CHECK(found.first[h].item<double>() == Approx(m.first).epsilon(1e-6));
    CHECK(found.area[h].item<double>() == Approx(m.area).epsilon(1e-6));
    CHECK(found.effective[h].item<double>() == Approx(m.effective).epsilon(1e-4));
    CHECK(found.share[h].item<double>() == Approx(m.share).epsilon(1e-4));
    CHECK(found.stable[h].item<double>() == Approx(m.stable).epsilon(1e-6));
    CHECK(numbers::worst(numbers::doubles(found.curve[h]), m.curve) < 1e-5);
  }
}

std::unique_ptr<SpectrumSource> watched(const Asked& asked, const std::string& of, int64_t tokens,
                                        const Kinds& kinds = {}) {
  auto [source, argument] = source_named(of, "--of");
  const AnalysisInput s = asked.subject(tokens);
  source->start(*asked.model, {argument, true, s.how.block, true, kinds});
  if (source->reads_text()) observe(s, *source);
  return std::move(source);
}

}  // namespace

TEST_CASE("spectra of sentences are those of their own real matrices, laid over each other by share", "[kinds]") {
  const Asked asked("");
  const auto seen = shown(asked);
  for (const int64_t tokens : {1, 70, 4096}) {
    INFO(tokens);
    const auto source = watched(asked, "attention", tokens);
    REQUIRE(source->places().size() == 7);
    std::set<std::string> kinds;
    for (const auto& place : source->places()) {
      INFO(place->name);
      kinds.insert(place->kind);
      std::vector<at::Tensor> matrices;
      std::vector<double> entropy(4), share(4), queries(4), many(4);
      for (const Shown& s : seen.at({kind_named(place->kind, ""), place->layer})) {
        matrices.push_back(s.p);
        for (int64_t h = 0; h < 4; ++h)
          for (int64_t t = 0; t < s.p.size(1); ++t) {
            double e = 0, visible = 0;
            for (int64_t k = 0; k < s.p.size(2); ++k)
              if (const double x = s.p[h][t][k].item<double>(); x > 0) e -= x * std::log(x), ++visible;
            const auto i = static_cast<size_t>(h);
            entropy[i] += e, ++queries[i];
            if (visible > 1) share[i] += e / std::log(visible), ++many[i];
          }
      }
      check_spectra(*place, matrices);
      for (size_t h = 0; h < 4; ++h) entropy[h] /= queries[h], share[h] /= many[h];
      CHECK(numbers::worst(numbers::doubles(place->entropy.entropy()), entropy) < 1e-5);
      CHECK(numbers::worst(numbers::doubles(place->entropy.share()), share) < 1e-5);
      // Curves rise, and so do their percentiles.
      const at::Tensor low = place->spectra.percentile(0.1), high = place->spectra.percentile(0.9);
      CHECK((low <= high).all().item<bool>());
      CHECK((low.diff(1, -1) >= 0).all().item<bool>());
    }
    CHECK(kinds == std::set<std::string>{"encoder.self", "decoder.self", "decoder.cross"});
  }
}

TEST_CASE("curves by share: points on them stay, and between them are straight lines", "[kinds]") {
  const at::Tensor c = at::tensor({0.5, 0.8, 0.95, 1.0}, at::kDouble);
  const at::Tensor by_share = curve_by_share(c);
  REQUIRE(by_share.size(0) == kGrid);
  for (int64_t k = 0; k < 4; ++k) CHECK(by_share[25 * (k + 1) - 1].item<double>() == c[k].item<double>());
  CHECK(by_share[0].item<double>() == Approx(0.5 / 25));
  CHECK(by_share[29].item<double>() == Approx(0.5 + 0.3 / 5));
  CHECK(curve_by_share(at::ones({2, 3, 1}, at::kDouble)).sizes() == at::IntArrayRef({2, 3, kGrid}));
  CHECK(curve_by_share(at::linspace(0.01, 1, 100, at::kDouble))[36].item<double>() == Approx(0.37));
  // More values than points.
  CHECK(numbers::close(curve_by_share(at::arange(1, 251, at::kDouble) / 250), at::arange(1, 101, at::kDouble) / 100));
}

TEST_CASE("other sources of matrices of sentences, and some kinds alone", "[kinds]") {
  const Asked asked("mixer = 'mixhead-b'\ncombiner = 'alphas'\n");
  struct Keep : attention::Observer, attention::Subscriber<attention::MixingObservation> {
    std::map<std::string, std::vector<at::Tensor>> logits, before, mixed;
    bool wants_scores() const override { return true; }
    void scores(const attention::LayerSpec& s, const at::Tensor& x) override { logits[s.name].push_back(x[0]); }
    at::Tensor heads(attention::HeadSide side, const attention::LayerSpec& s, const at::Tensor& x) override {
      if (side == attention::HeadSide::score) before[s.name].push_back(x[0]);
      return x;
    }
    void receive(const attention::LayerSpec& s, attention::MixingObservation& shown) override {
      mixed[s.name].push_back(shown.matrix[0]);
    }
  };
  Keep keep;
  {
    c10::NoGradGuard no_gradient;
    for (int64_t pair = 0; pair < asked.size(); ++pair)
      asked.model->hidden(translation::alone(asked.corpus, pair).input, {}, nullptr, &keep);
  }
  for (const int64_t tokens : {1, 4096}) {
    const auto logits = watched(asked, "logits", tokens), mixing = watched(asked, "mixing", tokens);
    for (const auto& place : logits->places()) check_spectra(*place, keep.logits[place->name]);
    const auto before = watched(asked, "before-mixing", tokens);
    CHECK(before->places().size() == 7);
    for (const auto& place : before->places()) check_spectra(*place, keep.before[place->name]);
    for (const auto& place : mixing->places()) {
      const at::Tensor all = at::cat(keep.mixed[place->name]).to(at::kDouble);  // (positions, h, h)
      CHECK(place->spectra.blocks() == all.size(0));
      CHECK(!place->spectra.by_share());
      CHECK(numbers::close(place->picture, all.mean(0)));
      const Ranks wanted = ranks_of(at::linalg_svdvals(all));
      CHECK(numbers::close(place->spectra.means().curve[0], wanted.curve.mean(0)));
    }
  }
  for (const char* of : {"attention", "logits", "before-mixing", "mixing", "output-value"}) {
    const auto cross = watched(asked, of, 4096, {AttentionKind::decoder_cross});
    CHECK(cross->places().size() == 2);
    for (const auto& place : cross->places()) CHECK(place->kind == "decoder.cross");
  }
  CHECK(watched(asked, "alphas", 1)->places().size() == 14);
  CHECK(watched(asked, "alphas", 1, {AttentionKind::encoder_self})->places().size() == 6);
  const Asked one("[attention.encoder.self]\nmixer = 'mixhead-a'\n");
  CHECK(watched(one, "before-mixing", 4096)->places().size() == 3);
  CHECK(status_of([&] { watched(one, "before-mixing", 4096, {AttentionKind::decoder_cross}); }) == 2);
  CHECK(status_of([&] { watched(one, "mixing", 4096, {AttentionKind::decoder_cross}); }) == 2);
}

TEST_CASE("experts of an encoder belong to sentences and their source words", "[kinds]") {
  const Asked asked("combiner = 'mae'\nmae.hidden = 5\n[attention.encoder.self.mae]\nmean = 'full'\n", 60);
  CHECK(status_of([&] { require_experts(*asked.model); }) == 0);
  struct Seen : attention::Observer, attention::Subscriber<attention::GateObservation> {
    std::map<std::string, std::vector<at::Tensor>> g;
    void receive(const attention::LayerSpec& s, attention::GateObservation& shown) override {
      g[s.name].push_back(shown.gates.dim() == 3 ? shown.gates[0] : shown.gates);  // (units, E)
    }
  } seen;
  c10::NoGradGuard no_gradient;
  for (int64_t pair = 0; pair < asked.size(); ++pair)
    asked.model->hidden(translation::alone(asked.corpus, pair).input, {}, nullptr, &seen);
  for (const int64_t tokens : {1, 4096}) {
    const ExpertReport report = report_experts(asked.subject(tokens), 4, 2);
    REQUIRE(report.layers.size() == 7);
    CHECK(report.of_source);
    for (const LayerGates& layer : report.layers) {
      const at::Tensor g = at::cat(seen.g.at(prefix_of(layer.kind, layer.layer)));
      INFO(name_of(layer.kind) << " " << layer.layer);
      CHECK(layer.by_position == (layer.kind != AttentionKind::encoder_self));
      CHECK(layer.units == g.size(0));
      CHECK(layer.entropy == Approx(-(g * g.log()).sum().item<double>()).epsilon(1e-4));
      for (int64_t e = 0; e < 4; ++e)
        CHECK(layer.counts[static_cast<size_t>(e)] == (g.argmax(-1) == e).sum().item<int64_t>());
    }
    std::map<std::pair<int64_t, int32_t>, double> joint;
    std::map<int64_t, double> of_expert;
    std::map<int32_t, double> of_token;
    double all = 0;
    for (size_t i = 0; i < asked.sentences.size(); ++i) {
      const auto expert = seen.g.at("encoder.layers.0.self")[i].argmax().item<int64_t>();
      for (int32_t token : asked.sentences[i].first)
        ++joint[{expert, token}], ++of_expert[expert], ++of_token[token], ++all;
    }
    CHECK(of_expert.size() > 1);
    REQUIRE(!report.tokens.empty());
    for (const TokenOfExpert& t : report.tokens) {
      CHECK(t.token != 0);
      CHECK(static_cast<double>(t.count) == joint.at({t.expert, t.token}));
      CHECK(t.pmi ==
            Approx(std::log(joint.at({t.expert, t.token}) * all / (of_expert.at(t.expert) * of_token.at(t.token))))
                .margin(1e-9));
    }
  }
  // Of a decoder alone its own input, position by position; the symbol in front is no word.
  const ExpertReport cross = report_experts(asked.subject(4096, Side::whole, {AttentionKind::decoder_cross}), 100, 1);
  REQUIRE(cross.layers.size() == 2);
  CHECK_FALSE(cross.of_source);
  int64_t counted = 0, words = 0;
  for (const TokenOfExpert& t : cross.tokens) {
    CHECK(t.token != 0);
    counted += t.count;
  }
  for (const auto& pair : asked.sentences) words += static_cast<int64_t>(pair.second.size());
  CHECK(counted == words);
  // Experts alone: the same however pairs are batched; and of one kind only, the others keep their gates.
  const auto a = evaluate_experts(asked.subject(1), 2), b = evaluate_experts(asked.subject(), 2);
  for (size_t i = 0; i < 3; ++i) CHECK(a[i].score == Approx(b[i].score).epsilon(1e-4));
  const auto c = evaluate_experts(asked.subject(4096, Side::whole, {AttentionKind::decoder_self}), 1);
  CHECK(c[0].score == Approx(a[0].score).epsilon(1e-5));
  CHECK(std::abs(c[1].score / a[1].score - 1) > 1e-5);
  const Asked plain("[attention.encoder.self]\ncombiner = 'mae'\n");
  CHECK(status_of([&] { require_experts(*plain.model, {AttentionKind::decoder_cross}); }) == 2);
}
