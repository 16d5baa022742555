// Ensembles of translation models: the mean of distributions compared with loops in double precision, decoding with the
// caches of all members, and refusals.
#include "model/ensemble.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "fixtures/passes.h"
#include "fixtures/status.h"
#include "fixtures/translators.h"

using namespace mh;
using namespace mh::model;
using models::random_tokens;
using translators::build_model;
using translators::kTiny;

namespace {

constexpr int64_t kTargetVocabulary = 9, kSourceVocabulary = 12;
const VocabularySizes kSizes{kTargetVocabulary, kSourceVocabulary};
// A model with other sizes than kTiny.
const char* const kNarrow =
    "[model]\nbackbone = 'encoder-decoder'\nlayers = 1\nwidth = 8\nffn_dim = 12\n[attention]\nheads = 2\n";

// Builds a member and multiplies its weight matrices by `factor`, so that the distributions are far from uniform.
EnsembleMember build_member(const std::string& name, const std::string& toml, double factor,
                            const VocabularySizes& sizes = kSizes) {
  c10::NoGradGuard no_gradient;
  auto model = build_model(toml, sizes);
  for (auto& p : model->parameters().all())
    if (p.master().dim() == 2) p.master().mul_(factor);
  return {name, std::move(model), models::parse_model_config(toml).model.width};
}

std::unique_ptr<LanguageModel> ensemble_of_members(EnsembleMember first, EnsembleMember second) {
  std::vector<EnsembleMember> members;
  members.push_back(std::move(first));
  members.push_back(std::move(second));
  return make_ensemble(std::move(members));
}

// Returns two padded rows of sources and targets.
Input random_input() {
  return {random_tokens(2, 5, kTargetVocabulary, 1),
          random_tokens(2, 6, kSourceVocabulary, 2),
          {at::tensor(std::vector<int64_t>{5, 3}, at::kLong), at::tensor(std::vector<int64_t>{6, 4}, at::kLong)}};
}

at::Tensor logits(LanguageModel& model, const Input& input) { return model.logits(model.hidden(input, {})); }

// Returns log (p_1 + p_2) / 2 in double precision, (rows, vocabulary), for logits (…, vocabulary).
std::vector<std::vector<double>> naive_log_means(const at::Tensor& first_logits, const at::Tensor& second_logits) {
  const at::Tensor both[2] = {first_logits.flatten(0, 1).to(at::kDouble).contiguous(),
                              second_logits.flatten(0, 1).to(at::kDouble).contiguous()};
  std::vector<std::vector<double>> rows(static_cast<size_t>(both[0].size(0)),
                                        std::vector<double>(kTargetVocabulary, 0));
  for (const at::Tensor& x : both) {
    const double* logit = x.const_data_ptr<double>();
    for (auto& row : rows) {
      double sum = 0;
      for (size_t v = 0; v < row.size(); ++v) sum += std::exp(logit[v]);
      for (size_t v = 0; v < row.size(); ++v) row[v] += std::exp(logit[v]) / sum / 2;
      logit += row.size();
    }
  }
  for (auto& row : rows)
    for (double& x : row) x = std::log(x);
  return rows;
}

}  // namespace

TEST_CASE("an ensemble of a model with itself has the log-probabilities of the model bit for bit", "[ensemble]") {
  c10::NoGradGuard no_gradient;
  const auto model = build_member("model", kTiny, 1.7);
  const auto ensemble = ensemble_of_members(build_member("a", kTiny, 1.7), build_member("b", kTiny, 1.7));
  const Input input = random_input();
  CHECK(at::equal(logits(*ensemble, input), at::log_softmax(logits(*model.model, input), -1)));
  const at::Tensor targets = random_tokens(2, 5, kTargetVocabulary, 3);
  CHECK(at::equal(ensemble->target_log_probabilities(ensemble->hidden(input, {}), targets),
                  model.model->target_log_probabilities(model.model->hidden(input, {}), targets)));
}

TEST_CASE("a token with probability 0 in every member has probability 0 in the ensemble", "[ensemble]") {
  c10::NoGradGuard no_gradient;
  const auto build_with_impossible_token = [](const std::string& name) {
    EnsembleMember member = build_member(name, std::string(kNarrow).insert(8, "output_bias = true\n"), 1.7);
    member.model->parameters().find("decoder.output.bias")->master()[2].fill_(-INFINITY);
    return member;
  };
  const auto model = build_with_impossible_token("model");
  const auto ensemble = ensemble_of_members(build_with_impossible_token("a"), build_with_impossible_token("b"));
  const Input input = random_input();
  const at::Tensor log_p = logits(*ensemble, input);
  CHECK(log_p.select(-1, 2).eq(-INFINITY).all().item<bool>());
  CHECK(at::equal(log_p, at::log_softmax(logits(*model.model, input), -1)));
  const at::Tensor targets = at::full({2, 5}, 2, at::kLong);
  CHECK(ensemble->target_log_probabilities(ensemble->hidden(input, {}), targets).eq(-INFINITY).all().item<bool>());
}

TEST_CASE("an ensemble of two models has the mean of their probabilities", "[ensemble]") {
  c10::NoGradGuard no_gradient;
  const auto first = build_member("first", kTiny, 1.7), second = build_member("second", kNarrow, 2.5);
  const auto ensemble = ensemble_of_members(build_member("first", kTiny, 1.7), build_member("second", kNarrow, 2.5));
  const Input input = random_input();
  const at::Tensor first_logits = logits(*first.model, input), second_logits = logits(*second.model, input);
  const double largest_logit = std::max(numbers::max_abs(first_logits), numbers::max_abs(second_logits));
  const auto expected = naive_log_means(first_logits, second_logits);
  const at::Tensor log_p = logits(*ensemble, input).flatten(0, 1).to(at::kDouble).contiguous();
  // Both computations begin with the same logits in fp32. In fp32 a log-probability then has two sums over the
  // vocabulary and at most 8 further roundings, of numbers of at most |log p| and the logits.
  at::Tensor targets = random_tokens(2, 5, kTargetVocabulary, 3);
  targets[0][1].fill_(-1);
  const at::Tensor target_log_p =
      ensemble->target_log_probabilities(ensemble->hidden(input, {}), targets).to(at::kDouble);
  for (size_t r = 0; r < expected.size(); ++r) {
    const auto row = static_cast<int64_t>(r);
    for (size_t v = 0; v < expected[r].size(); ++v) {
      const double magnitude = std::max(1.0, std::abs(expected[r][v])) + largest_logit;
      const double bound = rounding::bound(at::kFloat, at::kFloat, 2 * kTargetVocabulary + 8, magnitude);
      CHECK(log_p[row][static_cast<int64_t>(v)].item<double>() == rounding::within(expected[r][v], bound));
      if (targets.flatten()[row].item<int64_t>() == static_cast<int64_t>(v))
        CHECK(target_log_p.flatten()[row].item<double>() == rounding::within(expected[r][v], bound));
    }
  }
  CHECK(target_log_p[0][1].item<double>() == 0);
}

TEST_CASE("incremental decoding with an ensemble gives the logits of one pass over all positions", "[ensemble]") {
  c10::NoGradGuard no_gradient;
  const auto ensemble = ensemble_of_members(build_member("first", kTiny, 1.7), build_member("second", kNarrow, 2.5));
  const Input input{random_tokens(2, 5, kTargetVocabulary, 1), random_tokens(2, 6, kSourceVocabulary, 2)};
  const at::Tensor expected = logits(*ensemble, input);
  const auto state = ensemble->new_state();
  for (int64_t t = 0; t < 5; ++t) {
    Input step(input.tokens.narrow(1, t, 1));
    if (t == 0) step.source = input.source;
    CHECK(state->length() == t);
    const at::Tensor step_logits = ensemble->logits(ensemble->hidden(step, {}, state.get()));
    CHECK(rounding::passes_agree(*ensemble, step_logits, expected.narrow(1, t, 1), 6, 16));
  }
}

TEST_CASE("an ensemble has the lowest limit on positions among its members", "[ensemble]") {
  const auto with_positions = [](int n) {
    return std::string(kNarrow).insert(8, "positions = 'learned'\nmax_positions = " + std::to_string(n) + "\n");
  };
  CHECK(ensemble_of_members(build_member("a", with_positions(7), 1), build_member("b", with_positions(5), 1))
            ->max_length() == 5);
  CHECK(ensemble_of_members(build_member("a", kTiny, 1), build_member("b", with_positions(5), 1))->max_length() == 5);
  CHECK(ensemble_of_members(build_member("a", kTiny, 1), build_member("b", kNarrow, 1))->max_length() == 0);
}

TEST_CASE("an ensemble refuses models without an encoder, other vocabularies and other start tokens", "[ensemble]") {
  const auto status_with = [](EnsembleMember second) {
    return status_of([&] { ensemble_of_members(build_member("first", kTiny, 1), std::move(second)); });
  };
  const std::string decoder = "[model]\nlayers = 1\nwidth = 8\nffn_dim = 12\n[attention]\nheads = 2\n";
  CHECK(status_with(build_member("second", decoder, 1, {kTargetVocabulary})) == static_cast<int>(Exit::usage));
  CHECK(status_with(build_member("second", kNarrow, 1, {kTargetVocabulary + 1, kSourceVocabulary})) ==
        static_cast<int>(Exit::input));
  CHECK(status_with(build_member("second", kNarrow, 1, {kTargetVocabulary, kSourceVocabulary + 1})) ==
        static_cast<int>(Exit::input));
  const std::string with_start = std::string(kNarrow).insert(8, "encoder-decoder.start_token = 3\n");
  CHECK(status_with(build_member("second", with_start, 1)) == static_cast<int>(Exit::input));
  CHECK(status_with(build_member("second", kNarrow, 1)) == 0);
}
