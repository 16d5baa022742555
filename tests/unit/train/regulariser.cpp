// Every regulariser: sections of a configuration, resume, independence of padding, and use in training.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "attention/head_mix.h"
#include "attention/methods/hard_concrete/hard_concrete.h"
#include "attention/methods/mixture_of_heads/routing.h"
#include "fixtures/layers.h"
#include "fixtures/loss_terms.h"
#include "fixtures/rounding.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "fixtures/within.h"

using namespace mh;
using namespace mh::train;
using loss_terms::kOverlaps;
using loss_terms::make_regulariser;

TEST_CASE("a run saves the types of its regulariser sections, and resume gives bit-identical weights",
          "[regularisers]") {
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(400));
  auto train_until = [](int updates) { return str("[train]\nlength = '", updates, "u'\nschedule.length = '6u'\n"); };
  auto query_weight = [](model::LoadedModel m) { return runs::find(m, "decoder.layers.0.self.query.weight").clone(); };
  const at::Tensor uninterrupted = query_weight(runs::train_in_folder(folder, "both", kOverlaps + train_until(6)));
  runs::train_in_folder(folder, "run", kOverlaps + train_until(3));
  CHECK(at::equal(query_weight(runs::train_in_folder(folder, "run", kOverlaps + train_until(6), true)), uninterrupted));
  // Each of the two regulariser sections changes the trained weights.
  const std::string rows_section = kOverlaps.substr(0, kOverlaps.find("[train.regularisers.columns]")),
                    columns_section = kOverlaps.substr(rows_section.size());
  CHECK_FALSE(
      at::equal(query_weight(runs::train_in_folder(folder, "rows", rows_section + train_until(6))), uninterrupted));
  CHECK_FALSE(at::equal(query_weight(runs::train_in_folder(folder, "columns", columns_section + train_until(6))),
                        uninterrupted));
  // Writing the configuration of the run as TOML and reading it again does not change it.
  const RunConfig config = runs::config_of(folder, kOverlaps + train_until(6));
  Config saved_config;
  saved_config.load_text(config.toml(), "saved");
  CHECK(RunConfig::read(saved_config).toml() == config.toml());
  CHECK(config.toml().find("type = \"subspace-overlap\"") != std::string::npos);
  for (const char* invalid :
       {"[train.regularisers.columns]\nsubspace = 'columns'\n", "[train.regularisers.columns]\ntype = 'overlap'\n",
        "[train.procedures.one]\ntype = 'block-coordinate'\n"})
    CHECK(status_of([&] { runs::config_of(folder, invalid); }) == 2);
}

TEST_CASE("regularisers ignore padding in value and gradient", "[regularisers]") {
  const int64_t heads = 3, n = 4, memory = 2;
  const attention::LayerSpec spec;
  // A regulariser, and a tensor that `show` passes to its observer.
  struct Case {
    std::string name, options;
    std::vector<int64_t> sizes;  // dimensions of the tensor after (B, n)
    bool has_heads_first;        // whether the observer receives (B, h, n, …) instead of (B, n, h, …)
    bool is_mean_of_rows;        // whether the term is a mean over rows; else a mean over positions
    std::function<void(attention::Observer&, const at::Tensor&)> show;
  };
  const auto probabilities = [&](attention::Observer& observer, const at::Tensor& x) {
    observer.observe_probabilities(spec, x);
  };
  const std::vector<Case> cases{
      {"disagreement", "property = 'positions'", {heads, n + memory}, true, false, probabilities},
      {"disagreement",
       "property = 'outputs'",
       {heads, 5},
       true,
       true,
       [&](attention::Observer& observer, const at::Tensor& x) {
         observer.intercept_heads(attention::HeadSide::value, spec, x);
       }},
      {"subspace-overlap", "subspace = 'rows'", {heads, n + memory}, true, true, probabilities},
      {"subspace-overlap", "subspace = 'columns'", {heads, n + memory}, true, true, probabilities},
      {"orthogonal-mixing",
       "matrix_source = 'positions'",
       {heads, heads},
       false,
       false,
       [&](attention::Observer& observer, const at::Tensor& x) {
         observer.notify_subscribers(spec, attention::MixingObservation{x});
       }},
      {"head-balance", "", {heads}, false, false, [&](attention::Observer& observer, const at::Tensor& x) {
         observer.notify_subscribers(spec, attention::RoutingObservation{x, (x > 0.5).to(at::kFloat)});
       }}};
  for (const Case& c : cases) {
    INFO(c.name << ' ' << c.options);
    auto term = make_regulariser(c.name, c.options);
    auto value_of = [&](const at::Tensor& x, const at::Tensor& lengths) {
      attention::Observer& observer = *term->observer();
      observer.begin_batch(attention::Lengths(lengths));
      c.show(observer, c.has_heads_first ? x.transpose(1, 2) : x);
      return term->loss({});
    };
    const std::vector<int64_t> lengths{4, 2, 1, 0};
    std::vector<int64_t> sizes{4, n};
    sizes.insert(sizes.end(), c.sizes.begin(), c.sizes.end());
    at::Tensor x = at::rand(sizes);
    // Real queries do not attend to padding keys.
    if (c.sizes.back() == n + memory)
      for (int64_t b = 0; b < 4; ++b)
        for (int64_t s = lengths[static_cast<size_t>(b)]; s < n; ++s)
          x[b].narrow(0, 0, s).select(-1, memory + s).zero_();
    x.requires_grad_();
    const at::Tensor value_with_padding = value_of(x, at::tensor(lengths));
    value_with_padding.backward();
    // The reference values come from rows without padding: one row at a time, or all positions in one row.
    double expected = 0;
    if (c.is_mean_of_rows) {
      for (int64_t b = 0; b < 3; ++b) {
        const int64_t length = lengths[static_cast<size_t>(b)];
        at::Tensor row = x.detach().narrow(0, b, 1).narrow(1, 0, length);
        if (c.sizes.back() == n + memory) row = row.narrow(-1, 0, memory + length);
        expected += value_of(row.clone().requires_grad_(), at::tensor({length})).item<double>() / 3;
      }
    } else {
      std::vector<at::Tensor> rows;
      for (int64_t b = 0; b < 3; ++b) rows.push_back(x.detach()[b].narrow(0, 0, lengths[static_cast<size_t>(b)]));
      expected = value_of(nn::cat(rows).unsqueeze(0).requires_grad_(), at::Tensor()).item<double>();
    }
    // The value with padding and the reference are both computed in fp32.
    CHECK(value_with_padding.item<double>() ==
          rounding::within(expected, rounding::bound(at::kFloat, at::kFloat, 64, 2 * expected)));
    for (int64_t b = 0; b < 4; ++b) {
      const int64_t length = lengths[static_cast<size_t>(b)];
      const at::Tensor padding_gradient = x.grad()[b].narrow(0, length, n - length);
      if (length < n) CHECK(padding_gradient.abs().max().item<double>() == 0);
    }
    CHECK(x.grad().isfinite().all().item<bool>());
    // A batch of empty rows gives 0, not NaN.
    CHECK(value_of(x, at::tensor(std::vector<int64_t>{0, 0, 0, 0})).item<double>() == 0);
  }
}

namespace {

std::vector<int64_t> observed_lengths;

// A regulariser that records the row lengths that its observer receives in training.
class LengthRecorder : public ObservedTerm {
 public:
  LengthRecorder() : ObservedTerm(1, "recorded term") {}
  void begin_batch(const attention::Lengths& lengths) override {
    for (int64_t b = 0; b < lengths.decoder.size(0); ++b)
      observed_lengths.push_back(lengths.decoder[b].item<int64_t>());
  }
};
const Registration<LengthRecorder> length_recorder_entry(regularisers(), "test-witness", "");

}  // namespace

TEST_CASE("training passes the row lengths of every micro-batch to the observers of regularisers", "[regularisers]") {
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(21));
  observed_lengths.clear();
  runs::train_in_folder(folder, "run",
                        "[train]\nlength = '1e'\nbatch.micro_tokens = 16\n[train.regularisers.test-witness]\n");
  std::sort(observed_lengths.begin(), observed_lengths.end());
  CHECK(observed_lengths == std::vector<int64_t>{5, 8, 8});
}
