// Head ablation: scoring many ablated models in one pass over the text, ablation scans and pruning curves.
#include "analysis/ablation.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "analysis/curve.h"
#include "analysis/percent_change.h"
#include "analysis/scan.h"
#include "attention/head_scales.h"
#include "data/text.h"
#include "fixtures/ablations.h"
#include "fixtures/corpora.h"
#include "fixtures/numbers.h"
#include "fixtures/passes.h"
#include "fixtures/status.h"
#include "model/model_config.h"

using namespace mh;
using namespace mh::analysis;
using namespace ablations;
using attention::AttentionKind;

namespace {

// Returns sets of decoder self-attention heads to ablate: each single head; for each head, all other heads of the same
// layer; a set of heads of three layers; a set of heads of two layers, which occurs twice; the first three heads of
// layer 1; all heads of the model. The set at index 4 is empty.
std::vector<HeadSet> ablation_sets(model::LanguageModel& model, SideSelection side) {
  const AttentionKind kind = AttentionKind::decoder_self;
  const auto all = all_heads(model, side).at(kind);
  std::vector<HeadSet> sets;
  for (const Head& head : all) {
    sets.push_back({{kind, {head}}});
    HeadSet others;
    for (const Head& other : all)
      if (other.layer == head.layer && other.head != head.head) others[kind].insert(other);
    sets.push_back(others);
  }
  sets.push_back({{kind, {{0, 1}, {2, 0}, {2, 2}}}});
  sets.push_back({{kind, {{0, 1}, {2, 0}}}});
  sets.push_back({{kind, {{0, 1}, {2, 0}}}});
  sets.push_back({{kind, {{1, 0}, {1, 1}, {1, 2}}}});
  sets.push_back({{kind, all}});
  sets.insert(sets.begin() + 4, HeadSet{});
  return sets;
}

// Returns the options of scoring in blocks of `sequence_length` tokens.
data::ScoringOptions blocks_of(int64_t sequence_length) {
  data::ScoringOptions options;
  options.sequence_length = sequence_length;
  return options;
}

// The input of a pruning curve: a model of four layers with the given keys of [attention], and a text of 50 tokens in
// blocks of 10.
struct CurveCase {
  explicit CurveCase(const std::string& attention) : model(build_model("", attention, 4)) {}
  CurveCase(const CurveCase&) = delete;  // not copyable, since `input` refers to the other members

  std::unique_ptr<model::LanguageModel> model;
  std::vector<int32_t> text = make_text(50);
  data::Text corpus = corpora::text_of(text, 0);
  AnalysisInput input{*model, corpus, corpus.resolve(blocks_of(10), *model)};
};

// Returns a matcher for the nll of `score`, computed again for the same ablated model in different batches.
Approx near_score(const AnalysisInput& input, const task::NllSum& score) {
  return rounding::within(score.nll, score_bound(input) * score.nll);
}

// Returns a matcher for the perplexity of `score`, computed again for the same ablated model in different batches.
Approx near_perplexity(const AnalysisInput& input, const task::NllSum& score) {
  const double loss = nll_per_token(score);
  return rounding::within(std::exp(loss), std::exp(loss) * score_bound(input) * loss);
}

// Checks that score_ablations() returns the scores of reference_scores(), and that no layer has scales of value heads
// afterwards.
void check_against_reference(const AnalysisInput& input) {
  const auto sets = ablation_sets(input.model, input.side);
  const auto expected = reference_scores(input, sets);
  bool differs = false;
  for (const auto& score : expected)
    differs = differs || std::abs(score.nll - expected[4].nll) > score_bound(input) * (score.nll + expected[4].nll);
  CHECK(differs);
  // Limits on the tokens of a forward pass: all ablated models in one pass, several models per pass, one model per
  // pass.
  for (int64_t tokens : {1 << 16, 60, 1}) {
    const auto actual = score_ablations(input, sets, tokens);
    REQUIRE(actual.size() == expected.size());
    for (size_t i = 0; i < sets.size(); ++i) {
      INFO("set " << i << ", " << tokens << " tokens per pass");
      CHECK(actual[i].num_tokens == expected[i].num_tokens);
      CHECK(actual[i].nll == near_score(input, expected[i]));
    }
  }
  for (auto* layer : input.model.attention_layers()) CHECK(!head_scales(*layer).value.defined());
}

}  // namespace

TEST_CASE("scoring many ablated models in one pass over the text gives the scores of separate evaluations",
          "[ablation]") {
  const auto text = make_text(41);
  for (const std::string attention :
       {"", "mixer = 'mixhead-a'\n", "mixer = 'mixhead-b'\n", "mixer = 'mixhead-a'\nmixhead-a.mixer_input = 'logits'\n",
        "mixer = 'talking-heads'\n", "combiner = 'alphas'\n", "mixer = 'mixhead-b'\ncombiner = 'alphas'\n",
        "combiner = 'mae'\n", "combiner = 'gates'\n", "combiner = ['gates', 'mae']\n", "combiner = ['mae', 'alphas']\n",
        "pairing = 'cross-head'\n"})
    for (const std::string backbone :
         {"", "backbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 9\n"}) {
      INFO(backbone << attention);
      auto model = build_model(backbone, attention + (backbone.empty() ? "" : "score = 'relative'\n"));
      data::ScoringOptions scoring_options;
      scoring_options.sequence_length = 6, scoring_options.streams = backbone.empty() ? 0 : 3;
      scoring_options.batch = 2;
      const data::Text corpus = corpora::text_of(text, 0);
      check_against_reference({*model, corpus, scoring_options, SideSelection::whole});
      check_against_reference({*model, corpus, scoring_options, SideSelection::value});
      for (SideSelection side : {SideSelection::score, SideSelection::output})
        if (model->attention_layers()[0]->has_separate_heads(
                side == SideSelection::score ? attention::HeadSide::score : attention::HeadSide::output))
          check_against_reference({*model, corpus, scoring_options, side});
        else CHECK(status_of([&] { score_ablations({*model, corpus, scoring_options, side}, {{}}); }) == 2);
    }
}

TEST_CASE("scoring many ablated models in one pass is exact with parallel residual connections and output norms",
          "[ablation]") {
  const auto text = make_text(41);
  const data::Text corpus = corpora::text_of(text, 0);
  for (const std::string lines :
       {"residual = 'parallel'\n", "residual = 'parallel-shared'\nnorm_type = 'rms'\n",
        "residual = 'parallel'\nnorm = 'output'\ngated_ffn = true\n", "norm = 'around'\nnorm_bias = false\n"})
    for (const std::string attention : {"", "mixer = 'mixhead-a'\n"})
      for (const std::string backbone :
           {"", "backbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 9\n"}) {
        INFO(lines << backbone << attention);
        const auto model = build_model(lines + backbone, attention);
        data::ScoringOptions scoring_options;
        scoring_options.sequence_length = 6, scoring_options.streams = backbone.empty() ? 0 : 3;
        scoring_options.batch = 2;
        check_against_reference({*model, corpus, scoring_options, SideSelection::whole});
      }
}

TEST_CASE("ablating only score, value or output heads in layers with unequal head counts equals separate evaluations",
          "[ablation]") {
  const auto text = make_text(77);
  const auto unequal_model =
      build_model("", "mixer = 'mixhead-a'\nvalue_heads = 4\ncombiner = 'alphas'\noutput_heads = 5\n");
  const data::Text corpus = corpora::text_of(text, 0);
  AnalysisInput input{*unequal_model, corpus, {}};
  input.scoring_options.sequence_length = 8, input.scoring_options.batch = 3;
  input.scoring_options = corpus.resolve(input.scoring_options, *unequal_model);
  CHECK(status_of([&] { all_heads(*unequal_model, input.side); }) == 2);
  for (const auto& [side, num_heads] :
       {std::pair{SideSelection::score, 3}, {SideSelection::value, 4}, {SideSelection::output, 5}}) {
    input.side = side;
    CHECK(all_heads(*unequal_model, side).at(AttentionKind::decoder_self).size() == static_cast<size_t>(3 * num_heads));
    check_against_reference(input);
  }
}

TEST_CASE("scoring ablated models on sampled blocks of text with context or memory equals separate evaluations",
          "[ablation]") {
  const auto text = make_text(90);
  const data::Text corpus = corpora::text_of(text, 0);
  auto model = build_model("", "");
  data::ScoringOptions scoring_options;
  scoring_options.sequence_length = 7, scoring_options.context = 3, scoring_options.sample.blocks = 5,
  scoring_options.sample.seed = 3;
  check_against_reference({*model, corpus, corpus.resolve(scoring_options, *model)});
  auto transformer_xl = build_model("backbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 9\n",
                                    "score = 'relative'\n");
  scoring_options.context = 0;
  check_against_reference({*transformer_xl, corpus, corpus.resolve(scoring_options, *transformer_xl)});
}

TEST_CASE("ablating a head that the model does not have is a usage error that states the valid range of heads",
          "[ablation]") {
  auto model = build_model("", "");
  const auto text = make_text(20);
  const data::Text corpus = corpora::text_of(text, 0);
  data::ScoringOptions scoring_options;
  scoring_options.sequence_length = 5;
  const AnalysisInput input{*model, corpus, corpus.resolve(scoring_options, *model)};
  for (const HeadSet& heads :
       {HeadSet{{AttentionKind::decoder_self, {{3, 0}}}}, HeadSet{{AttentionKind::decoder_self, {{1, 3}}}},
        HeadSet{{AttentionKind::decoder_self, {{0, -1}}}}, HeadSet{{AttentionKind::encoder_self, {{0, 0}}}}}) {
    CHECK(status_of([&] { score_ablations(input, {heads}); }) == 2);
    CHECK(status_of([&] { HeadMaskGuard(*model, SideSelection::whole, heads); }) == 2);
  }
  CHECK_THROWS_WITH(check_heads(*model, SideSelection::whole, {{AttentionKind::decoder_self, {{1, 3}}}}, "--heads"),
                    Catch::Contains("a head from 0 to 2"));
}

TEST_CASE("score_ablations() ablates heads in addition to the heads of a HeadMaskGuard, whose destructor unmasks them",
          "[ablation]") {
  auto model = build_model("", "");
  const auto text = make_text(40);
  const data::Text corpus = corpora::text_of(text, 0);
  data::ScoringOptions scoring_options;
  scoring_options.sequence_length = 8;
  const AnalysisInput input{*model, corpus, corpus.resolve(scoring_options, *model)};
  const auto heads = [](std::set<Head> set) { return HeadSet{{AttentionKind::decoder_self, set}}; };
  const auto expected =
      reference_scores(input, {heads({{0, 1}}), heads({{0, 1}, {0, 2}}), heads({{0, 1}, {2, 0}}), {}});
  {
    const HeadMaskGuard mask_guard(*model, SideSelection::whole, heads({{0, 1}}));
    const auto actual = score_ablations(input, {{}, heads({{0, 2}}), heads({{2, 0}})});
    for (size_t i = 0; i < 3; ++i) CHECK(actual[i].nll == near_score(input, expected[i]));
  }
  CHECK(score_ablations(input, {{}})[0].nll == near_score(input, expected[3]));
}

TEST_CASE("sample_deviation() reproduces the standard deviations of the Skip Cross-Head paper's table 3, layer 1",
          "[ablation]") {
  // Skip Cross-Head Transformer-XL, table 3, layer 1: the degradation by ablating each head, for Transformer-XL
  // and for Transformer-XL with cross-head attention.
  const double plain_deviation = sample_deviation({-.01, -.01, -.01, .77, -.01, -.01, -.01, -.01});
  const double cross_head_deviation = sample_deviation({0, -.02, -.01, -.01, 0, -.01, -.02, -.01});
  CHECK(plain_deviation == rounding::printed(.276, 3));
  CHECK(cross_head_deviation == rounding::printed(.0076, 2));
  CHECK(std::isnan(sample_deviation({1})));
  CHECK(sample_deviation({3, 3}) == 0);
}

TEST_CASE("an ablation scan by head, by all heads but one and by layer equals separate evaluations", "[ablation]") {
  auto model = build_model("", "mixer = 'mixhead-a'\n");
  const auto text = make_text(40);
  const data::Text corpus = corpora::text_of(text, 0);
  data::ScoringOptions scoring_options;
  scoring_options.sequence_length = 8;
  const AnalysisInput input{*model, corpus, corpus.resolve(scoring_options, *model)};
  const HeadSet heads{{AttentionKind::decoder_self, {{0, 1}, {2, 0}, {2, 2}}}};
  const auto cases = scan_cases(*model, SideSelection::whole, {}, {heads, true, true});
  const auto layer = [](int64_t l) { return HeadSet{{AttentionKind::decoder_self, {{l, 0}, {l, 1}, {l, 2}}}}; };
  const std::vector<HeadSet> expected_masks{layer(0),
                                            {{AttentionKind::decoder_self, {{0, 1}}}},
                                            {{AttentionKind::decoder_self, {{0, 0}, {0, 2}}}},
                                            layer(2),
                                            {{AttentionKind::decoder_self, {{2, 0}}}},
                                            {{AttentionKind::decoder_self, {{2, 1}, {2, 2}}}},
                                            {{AttentionKind::decoder_self, {{2, 2}}}},
                                            {{AttentionKind::decoder_self, {{2, 0}, {2, 1}}}}};
  REQUIRE(cases.size() == expected_masks.size());
  std::vector<HeadSet> sets{{}};
  sets.insert(sets.end(), expected_masks.begin(), expected_masks.end());
  const auto expected = reference_scores(input, sets);
  const Scan scan = scan_heads(input, cases);
  // The same scan with a metric callback, which evaluates the model while the heads of the current case are masked.
  // Progress is counted in rows, summed over the full model and the 8 cases.
  int64_t last_done = 0, last_total = 0;
  AnalysisInput input_with_progress = input;
  input_with_progress.progress = [&](int64_t done, int64_t total) { last_done = done, last_total = total; };
  const Scan metric_scan = scan_heads(input_with_progress, cases, [&](const auto& progress) {
    progress(5, 5);
    return nll_per_token(task::score(*model, corpus, input.scoring_options));
  });
  CHECK(last_done == 5 * 9);
  CHECK(last_total == 5 * 9);
  for (size_t k = 0; k < expected_masks.size(); ++k) {
    CHECK((cases[k].masked_heads == expected_masks[k]));
    CHECK(scan.value(k) == near_perplexity(input, expected[k + 1]));
    const double loss = nll_per_token(expected[k + 1]);
    CHECK(metric_scan.value(k) == rounding::within(loss, score_bound(input) * loss));
  }
  CHECK(scan.full_value() == near_perplexity(input, expected[0]));
  // For a task without a perplexity, the same scan compares mean losses.
  const Scan loss_scan = scan_heads(input, cases, {}, LossValue::mean_loss);
  CHECK(loss_scan.full_value() == nll_per_token(scan.scores[0]));
  CHECK(loss_scan.value(0) == nll_per_token(scan.score(0)));
  // Perplexities of the two cases that mask a single head of layer 2.
  const std::vector<double> values{scan.value(4), scan.value(6)};
  CHECK(scan.layer_deviation(4) == sample_deviation(values));
  const LayerComparison comparison = compare_layer(scan.full_value(), values);
  CHECK(comparison.difference ==
        rounding::within((values[0] + values[1]) / 2 - scan.full_value(), rounding::fp64_bound(3, scan.full_value())));
  CHECK(comparison.percent_difference == rounding::fp64(100 * comparison.difference / scan.full_value(), 2));
  CHECK(comparison.deviation == sample_deviation(values));
}

TEST_CASE("a percent change is relative to the baseline, and NaN for a baseline of 0", "[ablation]") {
  CHECK(percent_change(5, 4) == 25);
  CHECK(percent_change(3, 4) == -25);
  CHECK(percent_change(4, 4) == 0);
  CHECK(percent_change(0, 4) == -100);
  CHECK(percent_change(-3, -4) == -25);  // nearer to 0 by a quarter of the baseline
  for (const double value : {-1., 0., 2.})
    for (const double zero : {0., -0.}) CHECK(std::isnan(percent_change(value, zero)));
  CHECK(std::isnan(compare_layer(0, {1, 2}).percent_difference));
  CHECK(compare_layer(0, {1, 2}).difference == 1.5);
}

TEST_CASE("head differences of a scan are by layer and head, and NaN for a head without a case", "[ablation]") {
  const AttentionKind self = AttentionKind::decoder_self, cross = AttentionKind::decoder_cross;
  Scan scan;
  scan.cases = {{ScanMode::layer, self, 1, -1, {}},
                {ScanMode::head, self, 1, 2, {}},
                {ScanMode::all_but_one, self, 1, 2, {}},
                {ScanMode::head, self, 1, 0, {}},
                {ScanMode::head, cross, 0, 1, {}}};
  scan.values = {10, 60, 12, 50, 9, 10.5};
  const HeadDifferences differences = scan.head_differences();
  REQUIRE(differences.size() == 3);
  const auto& heads = differences.at({self, ScanMode::head});
  REQUIRE(heads.size() == 2);
  CHECK(heads[0].empty());
  REQUIRE(heads[1].size() == 3);
  CHECK(heads[1][0] == -1);
  CHECK(std::isnan(heads[1][1]));
  CHECK(heads[1][2] == 2);
  const auto& other_heads = differences.at({self, ScanMode::all_but_one});
  REQUIRE(other_heads.size() == 2);
  CHECK(other_heads[1].back() == 40);
  CHECK(differences.at({cross, ScanMode::head})[0].back() == 0.5);
}

TEST_CASE("rank_heads() sorts heads by ascending score, then by layer and head", "[ablation]") {
  const std::map<AttentionKind, LayerScores> scores{{AttentionKind::decoder_self, {{.5, .1, .3}, {}, {.1, .9}}}};
  const auto all = rank_heads(scores, false);
  const std::vector<Head> expected{{0, 1}, {2, 0}, {0, 2}, {0, 0}, {2, 1}};
  REQUIRE(all.size() == 5);
  for (size_t i = 0; i < 5; ++i) {
    CHECK(all[i].head == expected[i]);
    CHECK(all[i].rank == static_cast<int64_t>(i) + 1);
  }
  const auto by_layer = rank_heads(scores, true);
  const std::vector<Head> expected_by_layer{{0, 1}, {0, 2}, {0, 0}, {2, 0}, {2, 1}};
  const std::vector<int64_t> ranks{1, 2, 3, 1, 2};
  for (size_t i = 0; i < 5; ++i) {
    CHECK(by_layer[i].head == expected_by_layer[i]);
    CHECK(by_layer[i].rank == ranks[i]);
  }
}

TEST_CASE("a pruning curve masks the least important heads first, whether or not the ranking is repeated at each step",
          "[ablation]") {
  const CurveCase curve("");
  const AnalysisInput& input = curve.input;
  const auto order = rank_heads(importance_of("ablation", input), false);
  for (const bool rerank : {false, true})
    for (const bool per_layer : {false, true}) {
      INFO(rerank << per_layer);
      const auto points = pruning_curve(input, input, "ablation", {0.3, per_layer, rerank});
      REQUIRE(points.size() == 5);  // fractions 0, .3, .6, .9 and 1 of the heads
      std::vector<HeadSet> sets;
      for (const auto& point : points) sets.push_back(point.masked_heads);
      const auto expected = reference_scores(input, sets);
      const std::vector<int64_t> counts{0, 4, 7, 11, 12};
      for (size_t i = 0; i < 5; ++i) {
        auto& masked_heads = sets[i][AttentionKind::decoder_self];
        if (i > 0)
          CHECK(std::includes(masked_heads.begin(), masked_heads.end(),
                              sets[i - 1][AttentionKind::decoder_self].begin(),
                              sets[i - 1][AttentionKind::decoder_self].end()));
        if (!per_layer) CHECK(static_cast<int64_t>(masked_heads.size()) == counts[i]);
        for (int64_t layer = 0; per_layer && layer < 4; ++layer)
          CHECK(std::count_if(masked_heads.begin(), masked_heads.end(), [&](const Head& h) {
                  return h.layer == layer;
                }) == std::vector<int64_t>{0, 1, 2, 3, 3}[i]);
        CHECK(points[i].score.nll == near_score(input, expected[i]));
      }
      // Differences from the full model in perplexity, and in a metric that returns the number of its calls so far.
      double num_calls = 0;
      CurveComparer comparer(input, [&] { return ++num_calls; });
      for (size_t i = 0; i < 5; ++i) {
        const CurveComparison comparison = comparer.compare(points[i]);
        if (!per_layer) CHECK(comparison.num_masked_heads == counts[i]);
        const double perplexity = std::exp(nll_per_token(expected[i])), full = std::exp(nll_per_token(expected[0])),
                     bound = score_bound(input) *
                             (perplexity * nll_per_token(expected[i]) + full * nll_per_token(expected[0]));
        CHECK(comparison.loss_difference == rounding::within(perplexity - full, bound));
        CHECK(comparison.metric_difference == static_cast<double>(i));
      }
      if (per_layer) continue;
      // The first step masks the 4 least important heads of the full model, with and without reranking.
      const auto& first = sets[1][AttentionKind::decoder_self];
      for (size_t i = 0; i < 4; ++i) CHECK(first.count(order[i].head) == 1);
      // The second step masks the 3 least important of the remaining heads; with reranking, importance is measured
      // while the heads of the first step are masked.
      const HeadMaskGuard mask_guard(input.model, SideSelection::whole, rerank ? sets[1] : HeadSet{});
      int64_t remaining = 3;
      for (const auto& r : rank_heads(importance_of("ablation", input), false))
        if (first.count(r.head) == 0 && remaining-- > 0) CHECK(sets[2][AttentionKind::decoder_self].count(r.head) == 1);
    }
  CHECK(status_of([&] { pruning_curve(input, input, "none", {}); }) == 2);
}

TEST_CASE("a pruning curve by groups masks all heads of the groups with the lowest sums of scores", "[ablation]") {
  const CurveCase curve("head_size = 4\n[attention.decoder.self]\nheads = 6\nkey_value_heads = 2\n");
  const AnalysisInput& input = curve.input;
  for (const bool rerank : {false, true})
    for (const bool per_layer : {false, true}) {
      INFO(rerank << per_layer);
      const auto points = pruning_curve(input, input, "weight-norm", {0.5, per_layer, rerank, false, HeadUnit::group});
      REQUIRE(points.size() == 3);  // fractions 0, .5 and 1 of the groups
      const auto all = all_groups(input.model, {});
      const auto num_groups = static_cast<int64_t>(all.at(AttentionKind::decoder_self).size());
      HeadSet expected_groups;
      int64_t num_in_layer = 0, last_layer = -1, num_masked = 0;
      for (const RankedHead& r :
           rank_heads(sum_by_group(input.model, importance_of("weight-norm", input)), per_layer)) {
        num_in_layer = r.head.layer == last_layer ? num_in_layer + 1 : 1, last_layer = r.head.layer;
        if (per_layer ? num_in_layer > 1 : num_masked >= num_groups / 2) continue;
        expected_groups[r.kind].insert(r.head);
        ++num_masked;
      }
      CHECK(points[0].masked_heads.empty());
      CHECK((points[1].masked_heads == heads_of_groups(input.model, expected_groups, "test")));
      CHECK((points[2].masked_heads == heads_of_groups(input.model, all, "test")));
      const auto expected = reference_scores(input, {{}, points[1].masked_heads, points[2].masked_heads});
      for (size_t i = 0; i < 3; ++i) CHECK(points[i].score.nll == near_score(input, expected[i]));
    }
}
