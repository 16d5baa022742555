// Analyses of translation models, with attention of the kinds encoder.self, decoder.self and decoder.cross and rows of
// different lengths. The references process one sentence pair at a time, without padding.
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
#include "fixtures/passes.h"
#include "fixtures/spectra.h"
#include "fixtures/status.h"
#include "fixtures/translation.h"

using namespace mh;
using namespace mh::analysis;

namespace {

const std::map<AttentionKind, int64_t> kNumLayers{
    {AttentionKind::encoder_self, 3}, {AttentionKind::decoder_self, 2}, {AttentionKind::decoder_cross, 2}};

// A translation model and the corpus that it is analysed on.
struct AnalysedModel {
  model::ModelConfig config;
  std::unique_ptr<model::LanguageModel> model;
  pairs::SentencePairs sentences;
  data::Pairs corpus;

  explicit AnalysedModel(const std::string& attention, int count = 13)
      : config(translation::config_of(attention)),
        model(translation::build_model(config)),
        sentences(translation::random_sentence_pairs(count)),
        corpus(translation::corpus_of(sentences)) {}
  // `tokens`: limit on the tokens of a batch, which has at least one pair.
  AnalysisInput analysis_input(int64_t tokens = 1 << 12, SideSelection side = SideSelection::whole,
                               const Kinds& kinds = {}) const {
    AnalysisInput input{*model, corpus, {}, side, {}, kinds};
    input.scoring_options = corpus.resolve(input.scoring_options, *model);
    input.scoring_options.batch = std::max<int64_t>(1, tokens / input.scoring_options.sequence_length);
    return input;
  }
  int64_t num_pairs() const { return static_cast<int64_t>(sentences.size()); }
  // Returns the bound on the difference of two forward passes in batches of different shapes, relative to the largest
  // result. No sentence is longer than a block.
  double pass_bound() const { return rounding::pass_bound(*model, analysis_input().scoring_options.sequence_length); }
  // Returns the bound on the difference of two importance scores, relative to the larger of 1 and the largest score. It
  // is the bound for two passes with gradients, since the measures themselves are computed in fp64.
  double importance_bound() const {
    return rounding::gradient_bound(*model, analysis_input().scoring_options.sequence_length);
  }
};

// Draws each head of each attention layer with probability 1/4.
HeadSet draw_heads(model::LanguageModel& model) {
  HeadSet drawn_heads;
  for (const auto& [kind, heads] : all_heads(model, SideSelection::whole))
    for (const Head& head : heads)
      if (*rc::gen::inRange(0, 4) == 0) drawn_heads[kind].insert(head);
  return drawn_heads;
}

// Returns the sum of the scores of all sentence pairs, each from its own forward pass.
task::NllSum score_by_pair(const AnalysedModel& analysed_model) {
  task::NllSum sum;
  for (const auto& pair : analysed_model.sentences) {
    const task::NllSum s = task::score(*analysed_model.model, translation::corpus_of({pair}), {});
    sum.nll += s.nll, sum.num_tokens += s.num_tokens;
  }
  return sum;
}

// The tensors that an observer receives from one layer for one pair, with the gradient of the pair's loss.
struct ObservedTensors {
  at::Tensor p;      // (h, Tq, Tk), attention probabilities
  at::Tensor z, dz;  // (h, Tq, dv), head outputs and their gradient
};
using LayerKey = std::pair<AttentionKind, int64_t>;

// Returns the observed tensors of each layer, one element per sentence pair.
std::map<LayerKey, std::vector<ObservedTensors>> observe_pairs(const AnalysedModel& analysed_model) {
  struct Recorder : attention::Observer {
    std::map<LayerKey, ObservedTensors> current;
    void observe_probabilities(const attention::LayerSpec& s, const at::Tensor& x) override {
      current[{s.kind, s.layer}].p = x;
    }
    at::Tensor intercept_heads(attention::HeadSide side, const attention::LayerSpec& s, const at::Tensor& x) override {
      return side == attention::HeadSide::value ? current[{s.kind, s.layer}].z = x : x;
    }
  };
  std::map<LayerKey, std::vector<ObservedTensors>> tensors_by_layer;
  for (int64_t pair = 0; pair < analysed_model.num_pairs(); ++pair) {
    Recorder recorder;
    const data::Batch batch = translation::load_pair(analysed_model.corpus, pair);
    const at::Tensor hidden = analysed_model.model->hidden(batch.input, {}, nullptr, &recorder);
    const at::Tensor loss = analysed_model.model->loss(hidden, {batch.targets}, 0).smoothed;
    std::vector<at::Tensor> outputs;
    for (const auto& [layer, s] : recorder.current) outputs.push_back(s.z);
    const auto gradients = torch::autograd::grad({loss}, outputs);
    size_t next = 0;
    for (auto& [layer, s] : recorder.current) {
      s.dz = gradients[next++][0].to(at::kDouble);
      s.p = s.p.detach()[0].to(at::kDouble), s.z = s.z.detach()[0].to(at::kDouble);
      tensors_by_layer[layer].push_back(s);
    }
  }
  return tensors_by_layer;
}

// Returns the scores of a layer's heads by plain loops. `by_pair`: one element per sentence pair. The measures
// confidence, entropy and received count only words: all positions of the encoder but the last, and all positions of
// the decoder but the first.
std::vector<double> reference_scores(const std::string& measure, AttentionKind kind,
                                     const std::vector<ObservedTensors>& by_pair) {
  const int64_t num_heads = by_pair[0].p.size(0);
  std::vector<double> scores;
  for (int64_t i = 0; i < num_heads; ++i) {
    double sum = 0, count = 0;
    for (const ObservedTensors& s : by_pair) {
      const int64_t queries = s.p.size(1), keys = s.p.size(2);
      const auto p = [&](int64_t t, int64_t k) { return s.p[i][t][k].item<double>(); };
      const bool has_encoder_queries = kind == AttentionKind::encoder_self,
                 has_encoder_keys = kind != AttentionKind::decoder_self;
      const int64_t first = has_encoder_queries ? 0 : 1, last = has_encoder_queries ? queries - 1 : queries;
      if (measure == "confidence" || measure == "entropy") {
        for (int64_t t = first; t < last; ++t, ++count) {
          double largest = 0, negative_entropy = 0;
          for (int64_t k = 0; k < keys; ++k) {
            largest = std::max(largest, p(t, k));
            if (p(t, k) > 0) negative_entropy += p(t, k) * std::log(p(t, k));
          }
          sum += measure == "entropy" ? negative_entropy : largest;
        }
      } else if (measure == "received") {
        for (int64_t k = has_encoder_keys ? 0 : 1; k < (has_encoder_keys ? keys - 1 : keys); ++k, ++count) {
          double largest = 0;
          for (int64_t t = 0; t < queries; ++t) largest = std::max(largest, p(t, k));
          sum += largest;
        }
      } else if (measure == "taylor") {
        for (int64_t t = 0; t < queries; ++t, ++count) sum += std::abs((s.z[i][t] * s.dz[i][t]).sum().item<double>());
      } else {
        const at::Tensor& x = measure == "avg-l2" ? s.p : s.z;
        for (int64_t j = 0; j < num_heads; ++j)
          sum += (x[i] - x[j]).square().sum().sqrt().item<double>() / (num_heads - 1.0);
        ++count;
      }
    }
    scores.push_back(sum / count);
  }
  return scores;
}

void check_near(const std::map<AttentionKind, LayerScores>& a, const std::map<AttentionKind, LayerScores>& b,
                double bound) {
  REQUIRE(a.size() == b.size());
  for (const auto& [kind, layers] : a) {
    REQUIRE(layers.size() == b.at(kind).size());
    for (size_t i = 0; i < layers.size(); ++i)
      CHECK(numbers::max_relative_difference(layers[i], b.at(kind)[i]) <= bound);
  }
}

}  // namespace

TEST_CASE("scoring many ablated translation models in one pass gives the scores of separate evaluations by pair",
          "[translation]") {
  const std::vector<std::string> stages{
      "",
      "mixer = 'mixhead-b'\ncombiner = 'alphas'\n",
      "mixer = 'talking-heads'\n",
      "combiner = 'mae'\n[attention.encoder.self.mae]\nmean = 'full'\n",
      "combiner = 'gates'\ngates.input = true\n",
      "pairing = 'cross-head'\nnormaliser = 'sigsoftmax'\n",
      "[attention.encoder.self]\nscore = 'relative'\nheads = 3\n",
      "[attention.decoder.cross]\nheads = 2\n[attention.encoder.self.1]\nheads = 0\n"};
  size_t num_checks = 0;
  CHECK(rc::check([&] {
    if (num_checks >= 24) return;  // each case takes many forward passes
    const std::string stage = stages[num_checks++ % stages.size()];
    const AnalysedModel analysed_model(stage, 7);
    std::vector<HeadSet> sets;
    for (int i = *rc::gen::inRange(1, 6); i > 0; --i) sets.push_back(draw_heads(*analysed_model.model));
    const auto actual =
        score_ablations(analysed_model.analysis_input(*rc::gen::elementOf(std::vector<int64_t>{1, 25, 4096})), sets,
                        *rc::gen::elementOf(std::vector<int64_t>{1, 40, 1 << 14}));
    for (size_t i = 0; i < sets.size(); ++i) {
      const HeadMaskGuard mask_guard(*analysed_model.model, SideSelection::whole, sets[i]);
      const task::NllSum expected = score_by_pair(analysed_model);
      RC_ASSERT(actual[i].num_tokens == expected.num_tokens);
      RC_ASSERT(std::abs(actual[i].nll - expected.nll) <= analysed_model.pass_bound() * expected.nll);
    }
    for (auto* layer : analysed_model.model->attention_layers()) RC_ASSERT(!head_scales(*layer).value.defined());
  }));
  CHECK(num_checks >= stages.size());
  // For each kind of attention, ablating all heads of the kind changes the loss.
  const AnalysedModel analysed_model("");
  const auto all = all_heads(*analysed_model.model, SideSelection::whole);
  const auto scores = score_ablations(analysed_model.analysis_input(),
                                      {{},
                                       {{AttentionKind::encoder_self, all.at(AttentionKind::encoder_self)}},
                                       {{AttentionKind::decoder_self, all.at(AttentionKind::decoder_self)}},
                                       {{AttentionKind::decoder_cross, all.at(AttentionKind::decoder_cross)}}});
  for (size_t i = 1; i < 4; ++i)
    CHECK(std::abs(scores[i].nll - scores[0].nll) > analysed_model.pass_bound() * (scores[i].nll + scores[0].nll));
}

TEST_CASE("measures of importance equal plain loops over sentences, for each kind of attention", "[translation]") {
  const AnalysedModel analysed_model("");
  const auto observed = observe_pairs(analysed_model);
  for (const char* measure : {"avg-l2", "avg-l2-outputs", "confidence", "received", "entropy", "taylor"})
    for (const int64_t tokens : {1, 4096}) {
      INFO(measure << " " << tokens);
      const auto scores = importance_of(measure, analysed_model.analysis_input(tokens));
      REQUIRE(scores.size() == 3);
      for (const auto& [layer, by_pair] : observed) {
        INFO(name_of(layer.first) << " " << layer.second);
        const auto& actual = scores.at(layer.first)[static_cast<size_t>(layer.second)];
        CHECK(numbers::max_relative_difference(actual, reference_scores(measure, layer.first, by_pair)) <=
              analysed_model.importance_bound());
      }
    }
}

TEST_CASE("importance is independent of the batch size and of which other kinds of attention are measured",
          "[translation]") {
  for (const char* stage : {"mixer = 'mixhead-a'\ncombiner = 'alphas'\n",
                            "combiner = 'mae'\n[attention.encoder.self.mae]\nmean = 'full'\n"}) {
    const AnalysedModel analysed_model(stage);
    for (const std::string& measure : importance_measures().names()) {
      if (status_of([&] { check_importance(measure, "--by", *analysed_model.model, SideSelection::whole); }) != 0)
        continue;
      INFO(stage << measure);
      const auto unbatched_scores = importance_of(measure, analysed_model.analysis_input(1)),
                 batched_scores = importance_of(measure, analysed_model.analysis_input());
      check_near(unbatched_scores, batched_scores, analysed_model.importance_bound());
      std::set<double> distinct_scores;
      for (const auto& [kind, num_layers] : kNumLayers) {
        REQUIRE(static_cast<int64_t>(batched_scores.at(kind).size()) == num_layers);
        for (const auto& layer : batched_scores.at(kind)) distinct_scores.insert(layer.begin(), layer.end());
      }
      CHECK(distinct_scores.size() == 28);
      auto cross = importance_of(
          measure, analysed_model.analysis_input(4096, SideSelection::whole, {AttentionKind::decoder_cross}));
      REQUIRE(cross.size() == 1);
      if (measure != "random")
        check_near(cross, {{AttentionKind::decoder_cross, batched_scores.at(AttentionKind::decoder_cross)}},
                   analysed_model.importance_bound());
    }
  }
  // Only encoder.self, which has a mixer, has separate score heads.
  const AnalysedModel analysed_model("[attention.encoder.self]\nmixer = 'mixhead-a'\n");
  CHECK(status_of([&] { importance_of("confidence", analysed_model.analysis_input(4096, SideSelection::score)); }) ==
        2);
  const auto scores = importance_of(
      "confidence", analysed_model.analysis_input(4096, SideSelection::score, {AttentionKind::encoder_self}));
  REQUIRE(scores.size() == 1);
  CHECK(scores.at(AttentionKind::encoder_self).size() == 3);
  CHECK(importance_of("ablation",
                      analysed_model.analysis_input(4096, SideSelection::score, {AttentionKind::encoder_self}))
            .size() == 1);
}

TEST_CASE("the measure confidence excludes end-of-sentence positions of sentence pairs, but no position of a text",
          "[translation]") {
  // Attention weights (1, 2, 3, 3): two heads, three queries, three keys. The last source position and the first target
  // position hold the end-of-sentence token, which is not a word.
  const at::Tensor p = numbers::normal({1, 2, 3, 3}, 1).softmax(-1);
  const at::Tensor lengths_of_3 = at::tensor({3}, at::kLong);
  const auto score = [&](AttentionKind kind, const attention::Lengths& lengths) {
    attention::LayerSpec spec;
    spec.kind = kind;
    const auto measure = importance_measures().make("confidence", "")->make_observer(SideSelection::whole);
    measure->begin_batch(lengths);
    measure->observe_probabilities(spec, p);
    return measure->mean_scores().at(kind)[0];
  };
  const auto mean = [&](int64_t first, int64_t count) {
    return numbers::doubles(p[0].narrow(1, first, count).amax(-1).to(at::kDouble).mean(1));
  };
  const double bound = rounding::fp64_bound(3, 1);  // two additions of numbers below 1 and a division
  CHECK(numbers::max_relative_difference(score(AttentionKind::decoder_self, attention::Lengths(lengths_of_3)),
                                         mean(0, 3)) <= bound);
  CHECK(numbers::max_relative_difference(score(AttentionKind::decoder_self, {lengths_of_3, lengths_of_3}),
                                         mean(1, 2)) <= bound);
  CHECK(numbers::max_relative_difference(score(AttentionKind::decoder_cross, {lengths_of_3, lengths_of_3}),
                                         mean(1, 2)) <= bound);
  CHECK(numbers::max_relative_difference(score(AttentionKind::encoder_self, {lengths_of_3, lengths_of_3}),
                                         mean(0, 2)) <= bound);
  CHECK(numbers::max_relative_difference(score(AttentionKind::encoder_self, {lengths_of_3, at::tensor({2}, at::kLong)}),
                                         mean(0, 1)) <= bound);
}

TEST_CASE("a pruned translation model has the outputs of the full model with the same heads masked, for every stage",
          "[translation]") {
  for (const std::string& stage : translation::stage_lines()) {
    INFO(stage);
    const AnalysedModel analysed_model(stage, 5);
    const bool prunes_in_pairs =
        stage.find("differential") != std::string::npos || stage.find("pair-norm") != std::string::npos;
    // For each kind of attention, the test prunes all heads of the last layer and one head or one pair of heads of
    // layer 0.
    HeadSet pruned_heads;
    for (const auto& [kind, num_layers] : kNumLayers) {
      for (int64_t head : {0, 1, 2, 3}) pruned_heads[kind].insert({num_layers - 1, head});
      pruned_heads[kind].insert({0, 2});
      if (prunes_in_pairs) pruned_heads[kind].insert({0, 3});
    }
    const PrunedModel pruned =
        prune_heads(analysed_model.config, *analysed_model.model,
                    heads_after_pruning(*analysed_model.model, pruned_heads, SideSelection::whole, "--heads"));
    for (const auto* layer : pruned.model->attention_layers()) {
      const auto& s = layer->layer_spec();
      const int64_t num_pruned = s.layer == kNumLayers.at(s.kind) - 1 ? 4
                                 : s.layer == 0                       ? (prunes_in_pairs ? 2 : 1)
                                                                      : 0;
      CHECK(s.value_heads == 4 - num_pruned);
    }
    const data::Pairs& corpus = analysed_model.corpus;
    std::vector<data::Row> rows;
    for (int64_t pair = 0; pair < analysed_model.num_pairs(); ++pair) rows.push_back(corpus.row_of(pair));
    const data::Batch batch = data::load_pairs(corpus, rows);
    {
      c10::NoGradGuard no_gradient;
      const int64_t operations = rounding::num_pass_roundings(
          *analysed_model.model, analysed_model.analysis_input().scoring_options.sequence_length);
      const HeadMaskGuard mask_guard(*analysed_model.model, SideSelection::whole, pruned_heads);
      const at::Tensor expected = analysed_model.model->logits(analysed_model.model->hidden(batch.input, {})),
                       actual = pruned.model->logits(pruned.model->hidden(batch.input, {}));
      for (size_t b = 0; b < rows.size(); ++b)
        CHECK(rounding::agree(actual[static_cast<int64_t>(b)].narrow(0, 0, rows[b].length),
                              expected[static_cast<int64_t>(b)].narrow(0, 0, rows[b].length), operations));
      // Incremental decoding equals one pass over the whole sentence, also in layers without heads.
      const data::Batch pair_batch = translation::load_pair(analysed_model.corpus, 1);
      const at::Tensor full = pruned.model->logits(pruned.model->hidden(pair_batch.input, {}));
      auto state = pruned.model->new_state();
      for (int64_t t = 0; t < pair_batch.input.tokens.size(1); ++t)
        CHECK(rounding::agree(pruned.model->logits(pruned.model->hidden({pair_batch.input.tokens.narrow(1, t, 1),
                                                                         pair_batch.input.source,
                                                                         {{}, pair_batch.input.lengths.encoder}},
                                                                        {}, state.get())),
                              full.narrow(1, t, 1), operations));
    }
    // A model built from the pruned configuration has parameters of the same shapes, and the pruned model has a finite
    // loss and gradients in training.
    const auto rebuilt = translation::build_model(models::parse_model_config(pruned.config.toml()));
    for (const auto& p : pruned.model->parameters().all()) {
      const auto* counterpart = rebuilt->parameters().find(p.name());
      REQUIRE(counterpart != nullptr);
      CHECK(counterpart->master().sizes() == p.master().sizes());
    }
    nn::ForwardContext forward_context;
    forward_context.training = true;
    const at::Tensor loss =
        pruned.model->loss(pruned.model->hidden(batch.input, forward_context), {batch.targets}, 0.1).smoothed;
    loss.backward();
    CHECK(std::isfinite(loss.item<double>()));
    CHECK(pruned.model->parameters()
              .find("encoder.layers.1.self.value.weight")
              ->master()
              .grad()
              .abs()
              .sum()
              .item<double>() > 0);
  }
}

TEST_CASE("swapping heads changes only attention of their kind, and swapping twice restores all parameters",
          "[translation]") {
  AnalysedModel analysed_model("mixer = 'mixhead-b'\ncombiner = 'alphas'\n");
  auto& parameters = analysed_model.model->parameters();
  const auto copy = [&] {
    std::map<std::string, at::Tensor> all;
    for (const auto& p : parameters.all()) all[p.name()] = p.master().detach().clone();
    return all;
  };
  const auto before = copy();
  const std::map<AttentionKind, HeadPair> pairs{
      {AttentionKind::encoder_self, {AttentionKind::encoder_self, {0, 1}, {2, 3}}},
      {AttentionKind::decoder_self, {AttentionKind::decoder_self, {0, 0}, {1, 0}}},
      {AttentionKind::decoder_cross, {AttentionKind::decoder_cross, {1, 2}, {0, 1}}}};
  const SwapOptions swap_all{true, true};
  for (const auto& [kind, pair] : pairs) {
    swap_heads(parameters, {pair}, swap_all, "test");
    for (const auto& [name, x] : copy()) {
      const auto layer = layer_of(name);
      if (!layer || layer->kind != kind) CHECK(at::equal(x, before.at(name)));
    }
    const std::string query = prefix_of(kind, pair.a.layer) + ".query.weight";
    CHECK(at::equal(parameters.find(query)->master().narrow(0, 3 * pair.a.head, 3),
                    before.at(prefix_of(kind, pair.b.layer) + ".query.weight").narrow(0, 3 * pair.b.head, 3)));
    swap_heads(parameters, {pair}, swap_all, "test");
    for (const auto& [name, x] : copy()) CHECK(at::equal(x, before.at(name)));
  }
  // Swapping heads of different layers changes the loss. Swapping two heads of one layer, together with their columns
  // of W^O and stage parameters, does not.
  std::vector<HeadPair> cross_layer_pairs, same_layer_pairs;
  for (const auto& [kind, pair] : pairs)
    cross_layer_pairs.push_back(pair), same_layer_pairs.push_back({kind, {1, 0}, {1, 3}});
  const double score = score_by_pair(analysed_model).nll;
  swap_heads(parameters, cross_layer_pairs, {}, "test");
  CHECK(std::abs(score_by_pair(analysed_model).nll - score) > 2 * analysed_model.pass_bound() * score);
  swap_heads(parameters, cross_layer_pairs, {}, "test");
  swap_heads(parameters, same_layer_pairs, swap_all, "test");
  CHECK(score_by_pair(analysed_model).nll == rounding::within(score, analysed_model.pass_bound() * score));
  CHECK(status_of([] { parse_pair("decoder.self:0.0-decoder.cross:1.0", "--pairs"); }) == 2);
  CHECK(status_of([&] {
          check_swap(parameters, {{AttentionKind::decoder_cross, {0, 0}, {2, 0}}}, {}, "--pairs");
        }) == 2);
  // head_counts_for_pairing() returns the head counts of the layers of the selected kinds of attention, or of all kinds
  // if none is selected.
  const auto key = [](const char* name) { return std::string(name); };
  const auto all = head_counts_for_pairing(parameters, PairSelection::soft, 2, 0, {}, {}, key);
  CHECK(all.at(AttentionKind::encoder_self) == std::vector<int64_t>{4, 4, 4});
  CHECK(all.at(AttentionKind::decoder_cross) == std::vector<int64_t>{4, 4});
  CHECK(head_counts_for_pairing(parameters, PairSelection::hard, 4, 0, {"decoder.cross"}, {}, key).size() == 1);
  CHECK(status_of([&] { head_counts_for_pairing(parameters, PairSelection::hard, 5, 0, {}, {}, key); }) == 2);
}

TEST_CASE("a pruning curve ranks the heads of all kinds of attention together, or only of the selected kinds",
          "[translation]") {
  const AnalysedModel analysed_model("");
  for (const Kinds& kinds : {Kinds{}, Kinds{AttentionKind::decoder_cross}}) {
    const AnalysisInput input = analysed_model.analysis_input(4096, SideSelection::whole, kinds);
    const auto points = pruning_curve(input, input, "confidence", {0.25, false, false, false});
    REQUIRE(points.size() == 5);
    const auto order = rank_heads(importance_of("confidence", input), false);
    const size_t num_heads = kinds.empty() ? 28 : 8;
    REQUIRE(order.size() == num_heads);
    for (size_t i = 0; i < points.size(); ++i) {
      HeadSet expected;
      for (size_t r = 0; r < num_heads * i / 4; ++r) expected[order[r].kind].insert(order[r].head);
      HeadSet actual = points[i].masked_heads;
      for (auto it = actual.begin(); it != actual.end();) it = it->second.empty() ? actual.erase(it) : std::next(it);
      CHECK((actual == expected));
      const HeadMaskGuard mask_guard(*analysed_model.model, SideSelection::whole, expected);
      const double nll = score_by_pair(analysed_model).nll;
      CHECK(points[i].score.nll == rounding::within(nll, analysed_model.pass_bound() * nll));
    }
  }
}

TEST_CASE("head discrepancy of sentences ignores padding", "[translation]") {
  c10::NoGradGuard no_gradient;
  const AnalysedModel analysed_model("combiner = 'alphas'\n");
  DiscrepancyObserver discrepancy;
  run_with_observer(analysed_model.analysis_input(), discrepancy);
  CHECK(discrepancy.num_sequences() == analysed_model.num_pairs());
  c10::AutoGradMode gradients(true);
  const auto observed = observe_pairs(analysed_model);
  for (const auto& [layer, by_pair] : observed) {
    double cosine = 0, euclidean = 0;
    for (const ObservedTensors& s : by_pair)
      for (int64_t i = 0; i < 4; ++i)
        for (int64_t j = 0; j < 4; ++j) {
          if (i == j) continue;
          const at::Tensor a = s.z[i].flatten(), b = s.z[j].flatten();
          euclidean += (a - b).norm().item<double>() / static_cast<double>(by_pair.size());
          cosine += (1 - a.dot(b) / (a.norm() * b.norm())).item<double>() / static_cast<double>(by_pair.size());
        }
    const auto actual = discrepancy.layers().at(layer.first)[static_cast<size_t>(layer.second)];
    // `cosine` sums 12 cosine distances, one for each ordered pair of heads. A cosine is at most 1 in absolute value,
    // so the error of each distance is at most `bound`.
    const double bound = analysed_model.pass_bound();
    CHECK(actual.before_combiner.euclidean == rounding::within(euclidean, bound * euclidean));
    CHECK(actual.before_combiner.cosine == rounding::within(cosine, bound * 12));
    CHECK(std::abs(actual.after_combiner.euclidean - euclidean) >
          bound * (actual.after_combiner.euclidean + euclidean));
  }
}

namespace {

// Reference measures of rank (analysis::RankMeasures), as means over the matrices of all pairs; `curve` is resampled to
// 100 points. `errors`: bounds that cover the errors of singular_values() and the effect of relative errors of up to
// `pass_bound` in the entries of the matrices.
struct ReferenceRanks {
  double first_fraction = 0, area = 0, effective_rank = 0, rank_share = 0, stable_rank = 0, size = 0;
  spectra::RankErrors errors;
  std::vector<double> curve = std::vector<double>(100);
};

ReferenceRanks reference_ranks(const std::vector<at::Tensor>& matrices, double pass_bound) {
  ReferenceRanks m;
  const auto count = static_cast<double>(matrices.size());
  for (const at::Tensor& x : matrices) {
    const auto values = numbers::doubles(at::linalg_svdvals(x.to(at::kDouble)));
    const auto n = static_cast<double>(values.size());
    auto value_errors = spectra::value_errors(values, x.size(0), x.size(1));
    spectra::add_perturbation(value_errors, values, pass_bound);
    m.errors.add(spectra::rank_errors(values, value_errors), 1 / count);
    double sum = 0, squares = 0, entropy = 0, partial_sum = 0;
    for (double v : values) sum += v, squares += v * v;
    std::vector<double> c{0};
    for (double v : values) {
      c.push_back((partial_sum += v) / sum);
      m.area += c.back() / n / count;
      if (v > 0) entropy -= v / sum * std::log(v / sum);
    }
    m.first_fraction += c[1] / count, m.size += n / count;
    m.effective_rank += std::exp(entropy) / count, m.rank_share += std::exp(entropy) / n / count;
    m.stable_rank += squares / (values[0] * values[0]) / count;
    for (size_t j = 1; j <= 100; ++j) {
      const double position = static_cast<double>(j) * n / 100;
      const size_t below = std::min(j * values.size() / 100, values.size() - 1);
      m.curve[j - 1] += (c[below] + (position - static_cast<double>(below)) * (c[below + 1] - c[below])) / count;
    }
  }
  return m;
}

// Checks that the mean measures of rank of `entry` equal reference_ranks() over `matrices`, one (h, m, n) per pair.
void check_spectra(const SpectraEntry& entry, const std::vector<at::Tensor>& matrices, double pass_bound) {
  const RankMeasures actual = entry.spectra.means();
  REQUIRE(entry.spectra.num_blocks() == static_cast<int64_t>(matrices.size()));
  CHECK(entry.spectra.has_varying_size());
  for (int64_t h = 0; h < matrices[0].size(0); ++h) {
    std::vector<at::Tensor> head_matrices;
    for (const at::Tensor& x : matrices) head_matrices.push_back(x[h]);
    const ReferenceRanks m = reference_ranks(head_matrices, pass_bound);
    CHECK(entry.spectra.mean_size() == rounding::fp64(m.size, 2 * entry.spectra.num_blocks()));
    CHECK(actual.first_fraction[h].item<double>() == rounding::within(m.first_fraction, m.errors.curve));
    CHECK(actual.area[h].item<double>() == rounding::within(m.area, m.errors.curve));
    CHECK(actual.effective_rank[h].item<double>() == rounding::within(m.effective_rank, m.errors.effective_rank));
    CHECK(actual.rank_share[h].item<double>() == rounding::within(m.rank_share, m.errors.rank_share));
    CHECK(actual.stable_rank[h].item<double>() == rounding::within(m.stable_rank, m.errors.stable_rank));
    CHECK(numbers::max_relative_difference(numbers::doubles(actual.curve[h]), m.curve) <= m.errors.curve);
  }
}

// Returns the source `name` after it has collected the spectra of the model, in batches of at most `tokens` tokens; a
// longer pair is a batch of its own.
std::unique_ptr<SpectrumSource> collect_spectra(const AnalysedModel& analysed_model, const std::string& name,
                                                int64_t tokens, const Kinds& kinds = {}) {
  auto [source, argument] = parse_source(name, "--of");
  const AnalysisInput s = analysed_model.analysis_input(tokens);
  source->start(*analysed_model.model, {argument, true, s.scoring_options.sequence_length, true, kinds});
  if (source->reads_text()) run_with_observer(s, *source);
  return std::move(source);
}

}  // namespace

TEST_CASE("spectra and entropies of sentences follow from their attention matrices without padding", "[translation]") {
  const AnalysedModel analysed_model("");
  const auto observed = observe_pairs(analysed_model);
  for (const int64_t tokens : {1, 70, 4096}) {
    INFO(tokens);
    const auto source = collect_spectra(analysed_model, "attention", tokens);
    REQUIRE(source->entries().size() == 7);
    std::set<std::string> kinds;
    for (const auto& entry : source->entries()) {
      INFO(entry->name);
      kinds.insert(entry->attention_kind);
      std::vector<at::Tensor> matrices;
      std::vector<double> entropy(4), normalised_entropy(4), queries(4), multi_key_queries(4);
      for (const ObservedTensors& s : observed.at({kind_named(entry->attention_kind, ""), entry->layer})) {
        matrices.push_back(s.p);
        for (int64_t h = 0; h < 4; ++h)
          for (int64_t t = 0; t < s.p.size(1); ++t) {
            double e = 0, visible = 0;
            for (int64_t k = 0; k < s.p.size(2); ++k)
              if (const double x = s.p[h][t][k].item<double>(); x > 0) e -= x * std::log(x), ++visible;
            const auto i = static_cast<size_t>(h);
            entropy[i] += e, ++queries[i];
            if (visible > 1) normalised_entropy[i] += e / std::log(visible), ++multi_key_queries[i];
          }
      }
      check_spectra(*entry, matrices, analysed_model.pass_bound());
      for (size_t h = 0; h < 4; ++h) entropy[h] /= queries[h], normalised_entropy[h] /= multi_key_queries[h];
      // Relative errors ε of the probabilities change Σ p ln p by at most ε Σ p |ln p + 1| ≤ ε (1 + ln n). For the
      // entropy divided by ln n ≥ ln 2 the factor is (1 + ln n) / ln n ≤ (1 + ln 2) / ln 2, which is less than 1 +
      // ln 5.
      const auto keys = static_cast<double>(analysed_model.analysis_input().scoring_options.sequence_length);
      const double bound = analysed_model.pass_bound() * (1 + std::log(std::max(5.0, keys)));
      CHECK(numbers::max_relative_difference(numbers::doubles(entry->entropy.entropy()), entropy) <= bound);
      CHECK(numbers::max_relative_difference(numbers::doubles(entry->entropy.normalised_entropy()),
                                             normalised_entropy) <= bound);
      // Percentile curves do not decrease, and the 10th percentile is at most the 90th.
      const at::Tensor low = entry->spectra.curve_quantile(0.1), high = entry->spectra.curve_quantile(0.9);
      CHECK((low <= high).all().item<bool>());
      CHECK((low.diff(1, -1) >= 0).all().item<bool>());
    }
    CHECK(kinds == std::set<std::string>{"encoder.self", "decoder.self", "decoder.cross"});
  }
}

TEST_CASE("resample_curve() interpolates curves linearly and keeps points that lie on the grid", "[translation]") {
  const at::Tensor c = at::tensor({0.5, 0.8, 0.95, 1.0}, at::kDouble);
  const at::Tensor resampled = resample_curve(c);
  REQUIRE(resampled.size(0) == kGridPoints);
  for (int64_t k = 0; k < 4; ++k) CHECK(resampled[25 * (k + 1) - 1].item<double>() == c[k].item<double>());
  // An interpolation has 5 roundings; the closed forms and the curves of this test have at most as many.
  CHECK(resampled[0].item<double>() == rounding::fp64(0.5 / 25, 5));
  CHECK(resampled[29].item<double>() == rounding::fp64(0.5 + 0.3 / 5, 5));
  CHECK(resample_curve(at::ones({2, 3, 1}, at::kDouble)).sizes() == at::IntArrayRef({2, 3, kGridPoints}));
  CHECK(resample_curve(at::linspace(0.01, 1, 100, at::kDouble))[36].item<double>() == rounding::fp64(0.37, 5));
  // A curve with more points than the grid.
  CHECK(
      rounding::agree(resample_curve(at::arange(1, 251, at::kDouble) / 250), at::arange(1, 101, at::kDouble) / 100, 5));
}

TEST_CASE("spectra of logits and mixing matrices equal plain loops, and can be restricted to kinds of attention",
          "[translation]") {
  const AnalysedModel analysed_model("mixer = 'mixhead-b'\ncombiner = 'alphas'\n");
  struct Recorder : attention::Observer, attention::Subscriber<attention::MixingObservation> {
    std::map<std::string, std::vector<at::Tensor>> logits, before_mixing, mixing_matrices;
    bool wants_scores() const override { return true; }
    void observe_scores(const attention::LayerSpec& s, const at::Tensor& x) override { logits[s.name].push_back(x[0]); }
    at::Tensor intercept_heads(attention::HeadSide side, const attention::LayerSpec& s, const at::Tensor& x) override {
      if (side == attention::HeadSide::score) before_mixing[s.name].push_back(x[0]);
      return x;
    }
    void receive(const attention::LayerSpec& s, attention::MixingObservation& observation) override {
      mixing_matrices[s.name].push_back(observation.matrix[0]);
    }
  };
  Recorder recorder;
  {
    c10::NoGradGuard no_gradient;
    for (int64_t pair = 0; pair < analysed_model.num_pairs(); ++pair)
      analysed_model.model->hidden(translation::load_pair(analysed_model.corpus, pair).input, {}, nullptr, &recorder);
  }
  for (const int64_t tokens : {1, 4096}) {
    const auto logits = collect_spectra(analysed_model, "logits", tokens),
               mixing = collect_spectra(analysed_model, "mixing", tokens);
    const double bound = analysed_model.pass_bound();
    for (const auto& entry : logits->entries()) check_spectra(*entry, recorder.logits[entry->name], bound);
    const auto before_mixing = collect_spectra(analysed_model, "before-mixing", tokens);
    CHECK(before_mixing->entries().size() == 7);
    for (const auto& entry : before_mixing->entries())
      check_spectra(*entry, recorder.before_mixing[entry->name], bound);
    for (const auto& entry : mixing->entries()) {
      const at::Tensor matrices = nn::cat(recorder.mixing_matrices[entry->name]).to(at::kDouble);  // (positions, h, h)
      CHECK(entry->spectra.num_blocks() == matrices.size(0));
      CHECK(!entry->spectra.has_varying_size());
      CHECK(numbers::error(entry->mean_matrix, matrices.mean(0)) <= bound * numbers::max_abs(matrices));
      const at::Tensor values = at::linalg_svdvals(matrices);  // (positions, h)
      spectra::RankErrors errors;
      for (int64_t i = 0; i < matrices.size(0); ++i) {
        const auto position_values = numbers::doubles(values[i]);
        auto value_errors = spectra::value_errors(position_values, matrices.size(1), matrices.size(2));
        spectra::add_perturbation(value_errors, position_values, bound);
        errors.add(spectra::rank_errors(position_values, value_errors), 1 / static_cast<double>(matrices.size(0)));
      }
      CHECK(numbers::error(entry->spectra.means().curve[0], rank_measures_of(values).curve.mean(0)) <= errors.curve);
    }
  }
  for (const char* name : {"attention", "logits", "before-mixing", "mixing", "output-value"}) {
    const auto cross = collect_spectra(analysed_model, name, 4096, {AttentionKind::decoder_cross});
    CHECK(cross->entries().size() == 2);
    for (const auto& entry : cross->entries()) CHECK(entry->attention_kind == "decoder.cross");
  }
  CHECK(collect_spectra(analysed_model, "alphas", 1)->entries().size() == 14);
  CHECK(collect_spectra(analysed_model, "alphas", 1, {AttentionKind::encoder_self})->entries().size() == 6);
  const AnalysedModel mixing_encoder("[attention.encoder.self]\nmixer = 'mixhead-a'\n");
  CHECK(collect_spectra(mixing_encoder, "before-mixing", 4096)->entries().size() == 3);
  CHECK(status_of([&] { collect_spectra(mixing_encoder, "before-mixing", 4096, {AttentionKind::decoder_cross}); }) ==
        2);
  CHECK(status_of([&] { collect_spectra(mixing_encoder, "mixing", 4096, {AttentionKind::decoder_cross}); }) == 2);
}

TEST_CASE("the expert report of an encoder counts source words by sentence, without end-of-sentence symbols",
          "[translation]") {
  const AnalysedModel analysed_model("combiner = 'mae'\nmae.hidden = 5\n[attention.encoder.self.mae]\nmean = 'full'\n",
                                     60);
  CHECK(status_of([&] { require_experts(*analysed_model.model); }) == 0);
  struct Recorder : attention::Observer, attention::Subscriber<attention::GateObservation> {
    std::map<std::string, std::vector<at::Tensor>> gates;  // by name of the layer; one tensor (units, E) per pair
    void receive(const attention::LayerSpec& s, attention::GateObservation& observation) override {
      gates[s.name].push_back(observation.gates.dim() == 3 ? observation.gates[0] : observation.gates);
    }
  } recorder;
  c10::NoGradGuard no_gradient;
  for (int64_t pair = 0; pair < analysed_model.num_pairs(); ++pair)
    analysed_model.model->hidden(translation::load_pair(analysed_model.corpus, pair).input, {}, nullptr, &recorder);
  for (const int64_t tokens : {1, 4096}) {
    const ExpertReport report = report_experts(analysed_model.analysis_input(tokens), 4, 2);
    REQUIRE(report.layers.size() == 7);
    CHECK(report.has_source_tokens);
    for (const LayerGates& layer : report.layers) {
      const at::Tensor g = nn::cat(recorder.gates.at(prefix_of(layer.kind, layer.layer)));
      INFO(name_of(layer.kind) << " " << layer.layer);
      CHECK(layer.is_per_position == (layer.kind != AttentionKind::encoder_self));
      CHECK(layer.num_units == g.size(0));
      // Relative errors ε of the gates, which differ by the rounding of a pass, change Σ g ln g over the 4 experts of a
      // unit by at most ε Σ g |ln g + 1| ≤ ε (1 + ln 4).
      const double entropy = -at::xlogy(g.to(at::kDouble), g.to(at::kDouble)).sum().item<double>();
      CHECK(layer.entropy_sum == rounding::within(entropy, analysed_model.pass_bound() *
                                                               static_cast<double>(g.size(0)) * (1 + std::log(4))));
      for (int64_t e = 0; e < 4; ++e)
        CHECK(layer.unit_counts[static_cast<size_t>(e)] == (g.argmax(-1) == e).sum().item<int64_t>());
    }
    std::map<std::pair<int64_t, int32_t>, double> joint;
    std::map<int64_t, double> expert_counts;
    std::map<int32_t, double> token_counts;
    double num_tokens = 0;
    for (size_t i = 0; i < analysed_model.sentences.size(); ++i) {
      const auto expert = recorder.gates.at("encoder.layers.0.self")[i].argmax().item<int64_t>();
      for (int32_t token : analysed_model.sentences[i].first)
        ++joint[{expert, token}], ++expert_counts[expert], ++token_counts[token], ++num_tokens;
    }
    CHECK(expert_counts.size() > 1);
    REQUIRE(!report.tokens.empty());
    for (const ExpertToken& t : report.tokens) {
      CHECK(t.token_id != 0);
      CHECK(static_cast<double>(t.count) == joint.at({t.expert, t.token_id}));
      // The logarithm of a quotient of products of counts: 4 roundings.
      const double pmi = std::log(joint.at({t.expert, t.token_id}) * num_tokens /
                                  (expert_counts.at(t.expert) * token_counts.at(t.token_id)));
      CHECK(t.pmi == rounding::within(pmi, rounding::fp64_bound(4, std::max(1.0, std::abs(pmi)))));
    }
  }
  // If only decoder layers are analysed, the report counts the input tokens of the decoder by position, without the
  // end-of-sentence symbol at the start.
  const ExpertReport cross =
      report_experts(analysed_model.analysis_input(4096, SideSelection::whole, {AttentionKind::decoder_cross}), 100, 1);
  REQUIRE(cross.layers.size() == 2);
  CHECK_FALSE(cross.has_source_tokens);
  int64_t num_reported = 0, num_words = 0;
  for (const ExpertToken& t : cross.tokens) {
    CHECK(t.token_id != 0);
    num_reported += t.count;
  }
  for (const auto& pair : analysed_model.sentences) num_words += static_cast<int64_t>(pair.second.size());
  CHECK(num_reported == num_words);
  // Scores are independent of the batch size. If only one kind of attention is evaluated, layers of other kinds keep
  // their own gates.
  const auto unbatched_scores = evaluate_experts(analysed_model.analysis_input(1), 2),
             batched_scores = evaluate_experts(analysed_model.analysis_input(), 2);
  // The error of a perplexity exp(x) is exp(x) times the error of the loss x.
  const auto bound = [&](double perplexity) { return perplexity * analysed_model.pass_bound() * std::log(perplexity); };
  for (size_t i = 0; i < 3; ++i)
    CHECK(unbatched_scores[i].score == rounding::within(batched_scores[i].score, bound(batched_scores[i].score)));
  const auto decoder_self_scores =
      evaluate_experts(analysed_model.analysis_input(4096, SideSelection::whole, {AttentionKind::decoder_self}), 1);
  CHECK(decoder_self_scores[0].score == rounding::within(unbatched_scores[0].score, bound(unbatched_scores[0].score)));
  CHECK(std::abs(decoder_self_scores[1].score - unbatched_scores[1].score) >
        bound(decoder_self_scores[1].score) + bound(unbatched_scores[1].score));
  const AnalysedModel encoder_experts("[attention.encoder.self]\ncombiner = 'mae'\n");
  CHECK(status_of([&] { require_experts(*encoder_experts.model, {AttentionKind::decoder_cross}); }) == 2);
}
