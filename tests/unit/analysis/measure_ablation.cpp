// The measure ablation against separate evaluations of ablated models, and the measure random, which depends only on
// the seed.
#include <catch2/catch.hpp>

#include "analysis/importance.h"
#include "fixtures/ablations.h"
#include "fixtures/corpora.h"
#include "fixtures/rounding.h"

using namespace mh;
using namespace mh::analysis;
using namespace ablations;
using attention::AttentionKind;

TEST_CASE("the measure ablation is the increase of the loss without the head, and random depends only on the seed",
          "[importance]") {
  auto model = build_model("", "mixer = 'mixhead-a'\n");
  const auto text = make_text(40);
  const data::Text corpus = corpora::text_of(text, 0);
  data::ScoringOptions scoring_options;
  scoring_options.sequence_length = 8;
  AnalysisInput input{*model, corpus, corpus.resolve(scoring_options, *model)};
  std::vector<HeadSet> sets{{}};
  for (int64_t layer = 0; layer < 3; ++layer)
    for (int64_t head = 0; head < 3; ++head) sets.push_back({{AttentionKind::decoder_self, {{layer, head}}}});
  const auto expected = reference_scores(input, sets);
  const auto scores = importance_of("ablation", input).at(AttentionKind::decoder_self);
  for (size_t i = 0; i < 9; ++i)
    CHECK(scores[i / 3][i % 3] == rounding::within((expected[i + 1].nll - expected[0].nll) / 40,
                                                   score_bound(input) * (expected[i + 1].nll + expected[0].nll) / 40));
  const auto first = importance_of("random", input);
  CHECK((first == importance_of("random", input)));
  input.scoring_options.sample.seed = 2;
  CHECK((first != importance_of("random", input)));
}
