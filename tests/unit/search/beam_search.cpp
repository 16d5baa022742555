// Beam search compared with plain loops without a cache, exhaustive search and teacher forcing; order of the
// hypotheses, independence of the batch, forced prefixes and limits on the length; sampling; the top-k kernel and the
// key/value cache.
#include "search/beam_search.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <set>

#include "attention/layer.h"
#include "base/random.h"
#include "cpu/best_entries.h"
#include "fixtures/passes.h"
#include "fixtures/status.h"
#include "fixtures/translators.h"
#include "model/ensemble.h"
#include "search/candidates.h"
#include "search/device_search.h"

using namespace mh;
using namespace mh::search;
using translators::build_model;
using translators::kTiny;
using translators::stage_lines;

namespace {

const SpecialTokens kSpecialTokens{0, 1};

const char* kDecoder = "[model]\nlayers = 2\nwidth = 16\nffn_dim = 24\n[attention]\nheads = 4\n";

// Builds a model and multiplies its weight matrices by `factor`, so that the distributions of the model are far from
// uniform.
std::unique_ptr<model::LanguageModel> build_peaked(const std::string& toml, const model::VocabularySizes& sizes,
                                                   double factor = 1.7) {
  auto model = build_model(toml, sizes);
  c10::NoGradGuard no_gradient;
  for (auto& p : model->parameters().all())
    if (p.master().dim() == 2) p.master().mul_(factor);
  return model;
}

std::vector<int32_t> random_source(int64_t length, int64_t vocabulary_size, uint64_t seed) {
  const at::Tensor t = models::random_tokens(1, length, vocabulary_size, seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(t[0][i].item<int32_t>());
  tokens.back() = kSpecialTokens.end_id;
  return tokens;
}

// Returns the tokens as a batch of one row (1, length).
at::Tensor row(const std::vector<int32_t>& tokens) {
  return at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()), at::kLong).unsqueeze(0);
}

// Returns the input of a teacher-forced pass: the end token followed by `tokens`, and the source unless it is empty.
model::Input forced_input(const std::vector<int32_t>& source, const std::vector<int32_t>& tokens) {
  std::vector<int32_t> in{kSpecialTokens.end_id};
  in.insert(in.end(), tokens.begin(), tokens.end());
  model::Input input{row(in)};
  if (source.empty()) return input;
  input.source = row(source);
  input.lengths.encoder = at::tensor(std::vector<int64_t>{static_cast<int64_t>(source.size())}, at::kLong);
  return input;
}

// Returns the log-probability of every possible next token after `tokens`, from a forward pass over the full sequence.
std::vector<double> log_probabilities(model::LanguageModel& model, const std::vector<int32_t>& source,
                                      const std::vector<int32_t>& tokens) {
  const at::Tensor hidden = model.hidden(forced_input(source, tokens), {});
  const at::Tensor logits = model.logits(hidden.narrow(1, hidden.size(1) - 1, 1)).flatten().to(at::kDouble);
  const at::Tensor log_p = at::log_softmax(logits, 0).contiguous();
  return {log_p.const_data_ptr<double>(), log_p.const_data_ptr<double>() + log_p.numel()};
}

// Returns the sum of the log-probabilities of `tokens` in a teacher-forced pass.
double forced_log_probability(model::LanguageModel& model, const std::vector<int32_t>& source,
                              std::vector<int32_t> tokens) {
  const at::Tensor targets = row(tokens);
  tokens.pop_back();
  return model.target_log_probabilities(model.hidden(forced_input(source, tokens), {}), targets)
      .to(at::kDouble)
      .sum()
      .item<double>();
}

// Returns the log-probability of every possible next token of a target that begins with `tokens`.
using NextLogProbabilities = std::function<std::vector<double>(const std::vector<int32_t>& tokens)>;

// Returns the hypotheses of one sentence by plain loops, which extend one hypothesis at a time and sort all extensions.
std::vector<Hypothesis> reference_search(const NextLogProbabilities& next_log_probabilities, const Sentence& s,
                                         const SearchOptions& options) {
  struct PartialHypothesis {
    std::vector<int32_t> tokens;
    double log_probability;
  };
  std::vector<PartialHypothesis> live_hypotheses{{{}, 0}};
  std::vector<Hypothesis> finished_hypotheses;
  const int64_t max_length =
      static_cast<int64_t>(options.max_length_a * static_cast<double>(s.source.size())) + options.max_length_b;
  const auto beam = static_cast<size_t>(options.beam);
  for (int64_t n = 0; !live_hypotheses.empty() && finished_hypotheses.size() < beam; ++n) {
    std::vector<PartialHypothesis> extensions;
    for (const PartialHypothesis& partial : live_hypotheses) {
      const auto log_p = next_log_probabilities(partial.tokens);
      for (size_t t = 0; t < log_p.size(); ++t) {
        const auto token = static_cast<int32_t>(t);
        if (n < static_cast<int64_t>(s.prefix.size())) {
          if (token != s.prefix[static_cast<size_t>(n)]) continue;
        } else if (n >= max_length) {
          if (token != kSpecialTokens.end_id) continue;
        } else if ((n < options.min_length && token == kSpecialTokens.end_id) ||
                   (options.no_unknown && token == kSpecialTokens.unknown_id)) {
          continue;
        }
        extensions.push_back({partial.tokens, partial.log_probability + log_p[t]});
        extensions.back().tokens.push_back(token);
      }
    }
    std::stable_sort(extensions.begin(), extensions.end(), [](const PartialHypothesis& a, const PartialHypothesis& b) {
      return a.log_probability > b.log_probability;
    });
    live_hypotheses.clear();
    for (size_t i = 0; i < std::min(2 * beam, extensions.size()) && live_hypotheses.size() < beam &&
                       finished_hypotheses.size() < beam;
         ++i) {
      if (extensions[i].tokens.back() != kSpecialTokens.end_id) live_hypotheses.push_back(extensions[i]);
      else if (i < beam)
        finished_hypotheses.push_back(
            {extensions[i].tokens, extensions[i].log_probability,
             extensions[i].log_probability / std::pow(static_cast<double>(n + 1), options.length_penalty)});
    }
  }
  std::stable_sort(finished_hypotheses.begin(), finished_hypotheses.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  return finished_hypotheses;
}
std::vector<Hypothesis> reference_search(model::LanguageModel& model, const Sentence& s, const SearchOptions& options) {
  return reference_search(
      [&](const std::vector<int32_t>& tokens) { return log_probabilities(model, s.source, tokens); }, s, options);
}

// Returns the bound on the difference of two log-probabilities of a hypothesis, from passes in batches of different
// shapes. The bound is relative to |log-probability| or, if larger, the number of tokens, since the logits that cancel
// in the log-probability of each token have a magnitude of at least 1.
double log_probability_bound(model::LanguageModel& model, const Hypothesis& h) {
  constexpr int64_t kMaxSourceLength = 12;
  const auto length = static_cast<int64_t>(h.tokens.size());
  return rounding::pass_bound(model, std::max(length, kMaxSourceLength)) *
         std::max(static_cast<double>(length), std::abs(h.log_probability));
}

// Requires that both lists have the same hypotheses in the same order, with scores equal up to rounding.
void require_same(model::LanguageModel& model, const std::vector<Hypothesis>& actual,
                  const std::vector<Hypothesis>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    INFO("hypothesis " << i);
    REQUIRE(actual[i].tokens == expected[i].tokens);
    const double bound = log_probability_bound(model, expected[i]), log_p = expected[i].log_probability;
    REQUIRE(actual[i].log_probability == rounding::within(log_p, bound));
    // The length penalty divides the log-probability and its error.
    REQUIRE(actual[i].score == rounding::within(expected[i].score, bound * expected[i].score / log_p));
  }
}

// Calls search_on_device() with the arguments of beam_search().
std::vector<std::vector<Hypothesis>> device_search(model::LanguageModel& model, const std::vector<Sentence>& sentences,
                                                   const SearchOptions& options, const SamplingOptions& sampling = {}) {
  Sentences sentence_pointers;
  for (const Sentence& s : sentences) sentence_pointers.push_back(&s);
  return search_on_device(model, sentence_pointers, BeamPolicy(kSpecialTokens, options, sampling));
}

std::vector<Sentence> random_sentences(const std::vector<int64_t>& lengths, int64_t vocabulary_size) {
  std::vector<Sentence> sentences;
  for (size_t i = 0; i < lengths.size(); ++i)
    sentences.push_back({random_source(lengths[i], vocabulary_size, 50 + i), {}, static_cast<int64_t>(i)});
  return sentences;
}

}  // namespace

namespace {

// Bound on the error of a log-sum-exp: exponentials with errors of up to 2 units in the last place, up to 64 of them
// added in sequence in fp32; these partial sums are added in fp64. The relative error of the sum is the absolute error
// of its logarithm.
const double kLseError = tolerance::chain_error_bound(64 + 4, tolerance::kFp32, 1);

}  // namespace

TEST_CASE("best_entries() returns the largest logits of a row in stable order, and the log-sum-exp of the row",
          "[search]") {
  CHECK(rc::check([] {
    const int n = *rc::gen::inRange(1, 700), count = *rc::gen::inRange(0, 40), levels = *rc::gen::inRange(1, 400);
    const bool has_infinite = *rc::gen::arbitrary<bool>();
    std::vector<float> x;
    for (int i = 0; i < n; ++i) {
      const int v = *rc::gen::inRange(0, levels);
      x.push_back(has_infinite && v == 0 && i > 0 ? -INFINITY : 0.1F * static_cast<float>(v) - 7);
    }
    const std::vector<int32_t> excluded_entries = *rc::gen::container<std::vector<int32_t>>(2, rc::gen::inRange(0, n));
    std::vector<kernels::Entry> best(static_cast<size_t>(count));
    double lse = 0, sum = 0;
    const auto num_best = static_cast<size_t>(kernels::best_entries(x, excluded_entries, best, &lse));
    std::vector<int32_t> order;
    for (int i = 0; i < n; ++i) {
      sum += std::exp(static_cast<double>(x[static_cast<size_t>(i)]));
      if (x[static_cast<size_t>(i)] > -INFINITY &&
          std::find(excluded_entries.begin(), excluded_entries.end(), i) == excluded_entries.end())
        order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)]; });
    order.resize(std::min(order.size(), static_cast<size_t>(count)));
    RC_ASSERT(num_best == order.size());
    for (size_t i = 0; i < num_best; ++i) {
      RC_ASSERT(best[i].index == order[i]);
      RC_ASSERT(best[i].logit == x[static_cast<size_t>(order[i])]);
    }
    RC_ASSERT(std::abs(lse - std::log(sum)) <= kLseError);
  }));
  for (float not_finite : {NAN, INFINITY}) {
    std::vector<float> x(300, 1.0F);
    x[123] = not_finite;
    std::vector<kernels::Entry> best(3);
    double lse = 0;
    kernels::best_entries(x, {}, best, &lse);
    CHECK(!std::isfinite(lse));
  }
}

TEST_CASE("best_candidates() returns the tokens, logits and log-sum-exps of candidates_of()", "[search]") {
  CHECK(rc::check([] {
    const int64_t entries = *rc::gen::inRange(1, 700), num_rows = *rc::gen::inRange(1, 4);
    const int64_t count = *rc::gen::inRange(1, 40), levels = *rc::gen::inRange(1, 400);
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1000));
    at::Tensor x = at::randint(levels, {num_rows, entries}, at::kFloat) * 0.1 - 7;
    x.masked_fill_(x.eq(-7).logical_and(at::rand({num_rows, entries}) > 0.5), -INFINITY);
    x.select(1, 0).fill_(1);
    std::vector<int32_t> excluded_entries;
    if (*rc::gen::arbitrary<bool>())
      excluded_entries.push_back(*rc::gen::inRange<int32_t>(0, static_cast<int32_t>(entries)));
    const BestCandidates best = best_candidates(x, count, excluded_entries);
    RC_ASSERT(best.tokens.sizes() == at::IntArrayRef({num_rows, std::min(count, entries)}));
    const Candidates expected = candidates_of(x, {count, excluded_entries, {}});
    for (int64_t r = 0; r < num_rows; ++r) {
      const auto& expected_row = expected.entries[static_cast<size_t>(r)];
      RC_ASSERT(std::abs(best.lse[r].item<double>() - expected.lse[static_cast<size_t>(r)]) <= 2 * kLseError);
      for (int64_t k = 0; k < best.tokens.size(1); ++k) {
        const auto rank = static_cast<size_t>(k);
        const auto logit = best.logits[r][k].item<float>();
        RC_ASSERT((logit > -INFINITY) == (rank < expected_row.size()));
        if (rank >= expected_row.size()) continue;
        RC_ASSERT(best.tokens[r][k].item<int64_t>() == expected_row[rank].index);
        RC_ASSERT(logit == expected_row[rank].logit);
      }
    }
  }));
}

TEST_CASE("a key/value cache equals index_select and concatenation after any sequence of reorders", "[search]") {
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t initial_rows = *rc::gen::inRange(1, 6), length = *rc::gen::inRange(1, 70);
    const at::Tensor k = at::randn({initial_rows, 2, length, 3}), v = at::randn({initial_rows, 2, length, 4});
    attention::Cache cache;
    cache.append(k, v);
    at::Tensor expected_k = k, expected_v = v;
    for (int step = 0; step < 3; ++step) {
      const int64_t num_rows = expected_k.size(0);
      const auto source_rows = *rc::gen::container<std::vector<int64_t>>(static_cast<size_t>(*rc::gen::inRange(1, 8)),
                                                                         rc::gen::inRange<int64_t>(0, num_rows));
      const at::Tensor order = at::tensor(source_rows, at::kLong);
      cache.reorder(order);
      const at::Tensor new_k = at::randn({order.numel(), 2, 1, 3}), new_v = at::randn({order.numel(), 2, 1, 4});
      cache.append(new_k, new_v);
      expected_k = nn::cat({expected_k.index_select(0, order), new_k}, 2);
      expected_v = nn::cat({expected_v.index_select(0, order), new_v}, 2);
      RC_ASSERT(at::equal(cache.keys_and_values().first, expected_k));
      RC_ASSERT(at::equal(cache.keys_and_values().second, expected_v));
    }
  }));
}

TEST_CASE("beam search equals plain loops without a cache for any search options", "[search]") {
  c10::NoGradGuard no_gradient;
  auto translator = build_peaked(kTiny, {9, 12});
  auto decoder = build_peaked(kDecoder, {9});
  CHECK(rc::check([&] {
    const bool translates = *rc::gen::arbitrary<bool>();
    model::LanguageModel& model = translates ? *translator : *decoder;
    SearchOptions options;
    options.beam = *rc::gen::inRange(1, 8);
    options.length_penalty = *rc::gen::elementOf(std::vector<double>{0, 0.6, 1, 2, -1});
    options.max_length_a = *rc::gen::elementOf(std::vector<double>{0, 0.5});
    options.max_length_b = *rc::gen::inRange(2, 7);
    options.min_length = *rc::gen::inRange(0, 3);
    options.no_unknown = *rc::gen::arbitrary<bool>();
    std::vector<Sentence> sentences;
    const int count = *rc::gen::inRange(1, 5);
    for (int i = 0; i < count; ++i) {
      Sentence s;
      if (translates) s.source = random_source(*rc::gen::inRange(1, 8), 12, *rc::gen::inRange<uint64_t>(0, 1000));
      s.prefix = *rc::gen::container<std::vector<int32_t>>(static_cast<size_t>(*rc::gen::inRange(0, 3)),
                                                           rc::gen::inRange<int32_t>(2, 9));
      sentences.push_back(s);
    }
    const auto host_hypotheses = beam_search(model, sentences, kSpecialTokens, options);
    const auto device_hypotheses = device_search(model, sentences, options);
    for (size_t i = 0; i < sentences.size(); ++i) {
      const auto expected = reference_search(model, sentences[i], options);
      require_same(model, host_hypotheses[i], expected);
      require_same(model, device_hypotheses[i], expected);
    }
  }));
}

TEST_CASE("the search with an ensemble equals plain loops over the mean of the probabilities of its members",
          "[search]") {
  c10::NoGradGuard no_gradient;
  const std::string narrow =
      "[model]\nbackbone = 'encoder-decoder'\nlayers = 1\nwidth = 8\nffn_dim = 12\n[attention]\nheads = 2\n";
  const auto first = build_peaked(kTiny, {9, 12}), second = build_peaked(narrow, {9, 12}, 2.5);
  // kTiny has the longer chains of roundings, so the bound of require_same(), which follows from the parameters of the
  // first member, holds for both members.
  std::vector<model::EnsembleMember> members;
  members.push_back({"first", build_peaked(kTiny, {9, 12}), 16});
  members.push_back({"second", build_peaked(narrow, {9, 12}, 2.5), 8});
  const auto ensemble = model::make_ensemble(std::move(members));
  CHECK(rc::check([&] {
    SearchOptions options;
    options.beam = *rc::gen::inRange(1, 6);
    options.length_penalty = *rc::gen::elementOf(std::vector<double>{0, 1});
    options.max_length_b = *rc::gen::inRange(2, 6);
    std::vector<Sentence> sentences;
    const int count = *rc::gen::inRange(1, 4);
    for (int i = 0; i < count; ++i)
      sentences.push_back({random_source(*rc::gen::inRange(1, 8), 12, *rc::gen::inRange<uint64_t>(0, 1000)), {}, i});
    const auto host_hypotheses = beam_search(*ensemble, sentences, kSpecialTokens, options);
    const auto device_hypotheses = device_search(*ensemble, sentences, options);
    for (size_t i = 0; i < sentences.size(); ++i) {
      const auto log_means = [&](const std::vector<int32_t>& tokens) {
        std::vector<double> log_p = log_probabilities(*first, sentences[i].source, tokens);
        const std::vector<double> second_log_p = log_probabilities(*second, sentences[i].source, tokens);
        for (size_t t = 0; t < log_p.size(); ++t)
          log_p[t] = std::log((std::exp(log_p[t]) + std::exp(second_log_p[t])) / 2);
        return log_p;
      };
      const auto expected = reference_search(log_means, sentences[i], options);
      require_same(*ensemble, host_hypotheses[i], expected);
      require_same(*ensemble, device_hypotheses[i], expected);
    }
  }));
}

TEST_CASE("an ensemble of a model with itself finds the hypotheses of the model", "[search]") {
  c10::NoGradGuard no_gradient;
  const auto model = build_peaked(kTiny, {30, 20});
  std::vector<model::EnsembleMember> members;
  for (const char* name : {"first", "second"}) members.push_back({name, build_peaked(kTiny, {30, 20}), 16});
  const auto ensemble = model::make_ensemble(std::move(members));
  SearchOptions options;
  options.beam = 4, options.max_length_b = 12;
  const auto sentences = random_sentences({6, 2, 9, 4}, 20);
  const auto expected = beam_search(*model, sentences, kSpecialTokens, options),
             actual = beam_search(*ensemble, sentences, kSpecialTokens, options);
  for (size_t i = 0; i < sentences.size(); ++i) require_same(*model, actual[i], expected[i]);
}

TEST_CASE("search_on_device() returns the hypotheses of beam_search() in long searches and sampling", "[search]") {
  c10::NoGradGuard no_gradient;
  auto translator = build_peaked(kTiny, {70, 20});
  auto mixing_translator =
      build_peaked(std::string(kTiny) + "mixer = 'mixhead-b'\nnormaliser = 'sigsoftmax'\n", {70, 20});
  auto decoder = build_peaked(kDecoder, {70});
  auto transformer_xl = build_peaked(
      "[model]\nbackbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 0\nlayers = 2\nwidth = "
      "16\nffn_dim = "
      "24\n[attention]\nheads = 4\nscore = 'relative'\n",
      {70});
  CHECK(rc::check([&] {
    const int model_index = *rc::gen::inRange(0, 4);
    model::LanguageModel& model = *(model_index == 0   ? translator
                                    : model_index == 1 ? mixing_translator
                                    : model_index == 2 ? decoder
                                                       : transformer_xl);
    SearchOptions options;
    options.beam = *rc::gen::elementOf(std::vector<int64_t>{1, 2, 3, 5, 8, 70});
    options.length_penalty = *rc::gen::elementOf(std::vector<double>{0, 1, 2});
    options.max_length_a = *rc::gen::elementOf(std::vector<double>{0, 2});
    options.max_length_b = *rc::gen::inRange(1, 30);
    options.min_length = *rc::gen::inRange<int64_t>(0, std::min<int64_t>(options.max_length_b, 20) + 1);
    options.no_unknown = *rc::gen::arbitrary<bool>();
    SamplingOptions sampling;
    if (*rc::gen::inRange(0, 3) == 0) {
      sampling.samples = *rc::gen::inRange(1, 6);
      sampling.temperature = *rc::gen::elementOf(std::vector<double>{0, 0.5, 1, 3});
      sampling.top_k = *rc::gen::elementOf(std::vector<int64_t>{0, 1, 5, 100});
    }
    std::vector<Sentence> sentences;
    const int count = *rc::gen::inRange(0, 9);
    for (int i = 0; i < count; ++i) {
      Sentence s;
      if (model.has_encoder())
        s.source = random_source(*rc::gen::inRange(1, 12), 20, *rc::gen::inRange<uint64_t>(0, 99));
      s.prefix = *rc::gen::container<std::vector<int32_t>>(
          static_cast<size_t>(*rc::gen::inRange(0, static_cast<int>(std::min<int64_t>(options.max_length_b, 12)))),
          rc::gen::inRange<int32_t>(2, 9));
      s.index = i;
      sentences.push_back(s);
    }
    const auto expected = beam_search(model, sentences, kSpecialTokens, options, sampling),
               actual = device_search(model, sentences, options, sampling);
    RC_ASSERT(actual.size() == expected.size());
    for (size_t i = 0; i < expected.size(); ++i) require_same(model, actual[i], expected[i]);
  }));
}

TEST_CASE("a beam as wide as the search space returns the hypotheses of exhaustive search", "[search]") {
  c10::NoGradGuard no_gradient;
  for (double penalty : {0.0, 1.0, 1.5}) {
    auto model = build_peaked(kTiny, {4, 6});
    SearchOptions options;
    options.max_length_b = 4, options.min_length = 0, options.beam = 3 * 3 * 3 * 3 * 4,
    options.length_penalty = penalty;
    const Sentence s{random_source(5, 6, 3), {}, 0};
    std::vector<Hypothesis> all_hypotheses;
    std::vector<std::vector<int32_t>> prefixes{{}};
    for (int n = 0; n <= 4; ++n) {
      std::vector<std::vector<int32_t>> longer_prefixes;
      for (const auto& prefix : prefixes) {
        auto finished_tokens = prefix;
        finished_tokens.push_back(kSpecialTokens.end_id);
        const double log_p = forced_log_probability(*model, s.source, finished_tokens);
        all_hypotheses.push_back(
            {finished_tokens, log_p, log_p / std::pow(static_cast<double>(finished_tokens.size()), penalty)});
        for (int32_t token = 1; token < 4; ++token) {
          longer_prefixes.push_back(prefix);
          longer_prefixes.back().push_back(token);
        }
      }
      prefixes = longer_prefixes;
    }
    std::sort(all_hypotheses.begin(), all_hypotheses.end(),
              [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    const auto actual = beam_search(*model, {s}, kSpecialTokens, options)[0];
    REQUIRE(actual.size() == 1 + 3 + 9 + 27 + 81);
    require_same(*model, actual, all_hypotheses);
  }
}

TEST_CASE("a beam of size 1 selects the most probable token at every step", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = build_peaked(kTiny, {30, 20});
  SearchOptions options;
  options.beam = 1, options.max_length_b = 12;
  const auto sentences = random_sentences({6, 2, 9}, 20);
  const auto actual = beam_search(*model, sentences, kSpecialTokens, options);
  for (size_t i = 0; i < sentences.size(); ++i) {
    std::vector<int32_t> tokens;
    while (tokens.empty() || tokens.back() != kSpecialTokens.end_id) {
      auto log_p = log_probabilities(*model, sentences[i].source, tokens);
      if (tokens.empty()) log_p[0] = -INFINITY;  // min_length is 1 by default, which excludes the end token here
      tokens.push_back(
          tokens.size() == 12 ? 0 : static_cast<int32_t>(std::max_element(log_p.begin(), log_p.end()) - log_p.begin()));
    }
    CHECK(actual[i].size() == 1);
    CHECK(actual[i][0].tokens == tokens);
  }
}

TEST_CASE("hypotheses have the scores of teacher forcing and of a batch of one, for every attention stage",
          "[search]") {
  c10::NoGradGuard no_gradient;
  for (const std::string& stage : stage_lines()) {
    INFO(stage);
    auto model = build_peaked(kTiny + stage, {30, 20}, 1.3);
    SearchOptions options;
    options.beam = 4, options.max_length_b = 9;
    const auto sentences = random_sentences({7, 2, 5, 5, 3}, 20);
    const auto batch_results = beam_search(*model, sentences, kSpecialTokens, options);
    for (size_t i = 0; i < sentences.size(); ++i) {
      REQUIRE(batch_results[i].size() == 4);
      for (const Hypothesis& h : batch_results[i]) {
        CHECK(h.log_probability == rounding::within(forced_log_probability(*model, sentences[i].source, h.tokens),
                                                    log_probability_bound(*model, h)));
        CHECK(h.score == rounding::fp64(h.log_probability / static_cast<double>(h.tokens.size()), 2));
        CHECK(std::count(h.tokens.begin(), h.tokens.end(), kSpecialTokens.end_id) == 1);
      }
      require_same(*model, beam_search(*model, {sentences[i]}, kSpecialTokens, options)[0], batch_results[i]);
    }
  }
}

TEST_CASE("no hypothesis and no sample contains the start token", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = build_peaked(kTiny, {8, 20});
  const auto sentences = random_sentences({7, 2, 5}, 20);
  SearchOptions options;
  options.beam = 4, options.max_length_b = 9;
  SamplingOptions sampling;
  sampling.samples = 20;
  for (const SamplingOptions& sampling_options : {SamplingOptions{}, sampling}) {
    std::set<int32_t> tokens, tokens_with_start;
    for (const auto& [start_id, found_tokens] : {std::pair{-1, &tokens}, std::pair{5, &tokens_with_start}})
      for (const auto& hypotheses :
           beam_search(*model, sentences, {kSpecialTokens.end_id, kSpecialTokens.unknown_id, start_id}, options,
                       sampling_options))
        for (const Hypothesis& h : hypotheses) found_tokens->insert(h.tokens.begin(), h.tokens.end());
    CHECK(tokens_with_start.count(5) == 0);
    if (sampling_options.samples > 0) CHECK(tokens.count(5) == 1);
  }
  // A start token that also ends a target, as in BART, stays allowed.
  CHECK(beam_search(*model, sentences, {0, 1, 0}, options)[0][0].tokens ==
        beam_search(*model, sentences, {0, 1}, options)[0][0].tokens);
}

TEST_CASE("hypotheses are sorted and distinct, and independent of the order and size of the batch", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = build_peaked(kTiny, {30, 20});
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 24; ++i) lengths.push_back(1 + (i * 7) % 11);
  const auto sentences = random_sentences(lengths, 20);
  SearchOptions options;
  options.beam = 6, options.max_length_a = 1, options.max_length_b = 3;
  const auto batch_results = beam_search(*model, sentences, kSpecialTokens, options);
  for (const auto& hypotheses : batch_results) {
    std::set<std::vector<int32_t>> distinct;
    for (size_t k = 0; k < hypotheses.size(); ++k) {
      distinct.insert(hypotheses[k].tokens);
      if (k > 0) CHECK(hypotheses[k].score <= hypotheses[k - 1].score);
    }
    CHECK(distinct.size() == hypotheses.size());
  }
  CHECK(rc::check([&] {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < 24; ++i) order.push_back(i);
    RandomSequence(RandomStream(*rc::gen::inRange<uint64_t>(0, 1000), "order")).shuffle(order);
    order.resize(static_cast<size_t>(*rc::gen::inRange(1, 25)));
    std::vector<Sentence> subset;
    for (int64_t i : order) subset.push_back(sentences[static_cast<size_t>(i)]);
    const auto actual = beam_search(*model, subset, kSpecialTokens, options);
    for (size_t i = 0; i < order.size(); ++i)
      require_same(*model, actual[i], batch_results[static_cast<size_t>(order[i])]);
  }));
}

TEST_CASE("hypotheses are bit-identical for any batch size on the fused path", "[search]") {
  c10::NoGradGuard no_gradient;
  // The model is wide enough that matrix products use different kernels for few and for many rows.
  auto model = build_peaked(
      "[model]\nbackbone = 'encoder-decoder'\nlayers = 2\nwidth = 128\nffn_dim = 1024\n[attention]\nheads = 4\n",
      {300, 20});
  for (const auto* layer : model->attention_layers()) REQUIRE(layer->reasons_not_fused(false).empty());
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 30; ++i) lengths.push_back(1 + (i * 7) % 23);
  auto sentences = random_sentences(lengths, 20);
  // While the prefix of a sentence is forced, the sentence has a single hypothesis; other sentences of the batch have a
  // full beam.
  for (size_t i = 0; i < sentences.size(); i += 3) sentences[i].prefix = {5, 7};
  struct Case {
    int64_t beam, samples;
    bool bf16;
  };
  for (const auto& [beam, samples, bf16] :
       {Case{1, 0, false}, {5, 0, false}, {8, 0, false}, {1, 8, false}, {1, 0, true}, {5, 0, true}, {1, 8, true}}) {
    INFO("beam " << beam << ", samples " << samples << (bf16 ? ", bf16" : ""));
    model->parameters().use_bf16_copies(bf16);
    SearchOptions options;
    options.beam = beam, options.max_length_b = 12;
    SamplingOptions sampling;
    sampling.samples = samples;
    const auto batch_results = beam_search(*model, sentences, kSpecialTokens, options, sampling);
    for (size_t size : {1, 2, 13})
      for (size_t first = 0; first + size <= sentences.size(); first += size) {
        const auto begin = sentences.begin() + static_cast<ptrdiff_t>(first);
        const auto actual =
            beam_search(*model, {begin, begin + static_cast<ptrdiff_t>(size)}, kSpecialTokens, options, sampling);
        for (size_t i = 0; i < size; ++i) {
          REQUIRE(actual[i].size() == batch_results[first + i].size());
          for (size_t k = 0; k < actual[i].size(); ++k) {
            CHECK(actual[i][k].tokens == batch_results[first + i][k].tokens);
            CHECK(actual[i][k].log_probability == batch_results[first + i][k].log_probability);
          }
        }
      }
  }
}

TEST_CASE("beam search with several threads has the hypotheses and errors of beam search with one thread", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = build_peaked(kTiny, {300, 20});
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 40; ++i) lengths.push_back(1 + (i * 7) % 11);
  auto sentences = random_sentences(lengths, 20);
  for (size_t i = 0; i < sentences.size(); i += 5) sentences[i].prefix = {5, 7};
  SearchOptions options;
  options.beam = 5, options.max_length_a = 1, options.max_length_b = 3;
  SamplingOptions six_samples;
  six_samples.samples = 6;
  const int previous_num_threads = at::get_num_threads();
  for (const SamplingOptions& sampling : {SamplingOptions(), six_samples}) {
    at::set_num_threads(1);
    const auto single_threaded = beam_search(*model, sentences, kSpecialTokens, options, sampling);
    for (int num_threads : {2, 3}) {
      at::set_num_threads(num_threads);
      const auto actual = beam_search(*model, sentences, kSpecialTokens, options, sampling);
      REQUIRE(actual.size() == single_threaded.size());
      for (size_t i = 0; i < actual.size(); ++i) require_same(*model, actual[i], single_threaded[i]);
      auto too_long = sentences;
      too_long[17].prefix.assign(30, 5);
      CHECK(refusal([&] { beam_search(*model, too_long, kSpecialTokens, options, sampling); }).find("sentence 18") !=
            std::string::npos);
    }
  }
  at::set_num_threads(previous_num_threads);
}

TEST_CASE("ties between extensions go to the earlier hypothesis, then to the smaller token", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = build_model(kTiny, {12, 20});
  // Weights of zero make all tokens equally probable at every step.
  for (auto& p : model->parameters().all()) p.master().zero_();
  SearchOptions options;
  options.beam = 3, options.max_length_b = 2, options.length_penalty = 0;
  const auto sentences = random_sentences({4, 2, 6}, 20);
  // After the first step the live hypotheses are the tokens 1, 2 and 3. In the second step the extensions of token 1
  // come first, including the extension by the end token.
  const std::vector<std::vector<int32_t>> expected{{1, 0}, {1, 1, 0}, {1, 2, 0}};
  for (const auto& all_hypotheses :
       {beam_search(*model, sentences, kSpecialTokens, options), device_search(*model, sentences, options)})
    for (const auto& hypotheses : all_hypotheses) {
      REQUIRE(hypotheses.size() == 3);
      for (size_t k = 0; k < 3; ++k) CHECK(hypotheses[k].tokens == expected[k]);
    }
}

TEST_CASE("samples depend only on the seed and the number of the sentence, and obey min_length and no_unknown",
          "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = build_peaked(kTiny, {30, 20});
  SearchOptions options;
  options.max_length_b = 8;
  SamplingOptions sampling;
  sampling.samples = 5;
  const auto sentences = random_sentences({7, 2, 5}, 20);
  const auto samples = beam_search(*model, sentences, kSpecialTokens, options, sampling);
  std::set<std::vector<int32_t>> distinct;
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(samples[i].size() == 5);
    require_same(*model, beam_search(*model, {sentences[i]}, kSpecialTokens, options, sampling)[0], samples[i]);
    for (const Hypothesis& h : samples[i]) {
      distinct.insert(h.tokens);
      CHECK(h.log_probability == rounding::within(forced_log_probability(*model, sentences[i].source, h.tokens),
                                                  log_probability_bound(*model, h)));
    }
  }
  CHECK(distinct.size() > 8);
  sampling.seed = 2;
  CHECK(beam_search(*model, sentences, kSpecialTokens, options, sampling)[0][0].tokens != samples[0][0].tokens);
  // min_length and no_unknown hold for samples, too.
  SearchOptions strict_options = options;
  strict_options.min_length = 8, strict_options.no_unknown = true;
  for (const auto& sentence_samples : beam_search(*model, sentences, kSpecialTokens, strict_options, sampling))
    for (const Hypothesis& h : sentence_samples) {
      CHECK(h.tokens.size() == 9);
      CHECK(std::count(h.tokens.begin(), h.tokens.end(), kSpecialTokens.unknown_id) == 0);
    }
  // Sampling with top_k = 1 or temperature = 0 is greedy search.
  options.beam = 1;
  const auto greedy_hypotheses = beam_search(*model, sentences, kSpecialTokens, options);
  for (const bool use_top_k : {true, false}) {
    SamplingOptions greedy_sampling;
    greedy_sampling.samples = 2;
    if (use_top_k) greedy_sampling.top_k = 1;
    else greedy_sampling.temperature = 0;
    const auto sentence_samples = beam_search(*model, sentences, kSpecialTokens, options, greedy_sampling);
    for (size_t i = 0; i < 3; ++i)
      for (const Hypothesis& h : sentence_samples[i]) CHECK(h.tokens == greedy_hypotheses[i][0].tokens);
  }
}

TEST_CASE("the frequencies of sampled tokens are within 4 standard deviations of the model's probabilities",
          "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = build_peaked(kTiny, {6, 20});
  SearchOptions options;
  options.max_length_b = 1, options.min_length = 0;
  SamplingOptions sampling;
  sampling.samples = 6000;
  const auto sentences = random_sentences({4}, 20);
  std::vector<double> frequency(6, 0);
  const auto samples = beam_search(*model, sentences, kSpecialTokens, options, sampling);
  for (const Hypothesis& h : samples[0]) frequency[static_cast<size_t>(h.tokens[0])] += 1.0 / 6000;
  const auto log_p = log_probabilities(*model, sentences[0].source, {});
  for (size_t t = 0; t < 6; ++t) {
    const double expected = std::exp(log_p[t]), deviation = std::sqrt(expected * (1 - expected) / 6000);
    CHECK(frequency[t] == rounding::within(expected, 4 * deviation + rounding::fp64_bound(6000, 1)));
  }
}

TEST_CASE("forced tokens are sampled even if every token of the vocabulary is excluded", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model_of_two_tokens = build_model(kTiny, {2, 20});
  SearchOptions options;
  options.max_length_b = 2, options.min_length = 1, options.no_unknown = true;
  SamplingOptions sampling;
  sampling.samples = 3;
  // The first token is forced to be the unknown token, although the options exclude both the end token and the unknown
  // token; the second token can only be the end token.
  Sentence s{random_source(3, 20, 1), {kSpecialTokens.unknown_id}, 0};
  for (const auto& all_hypotheses : {beam_search(*model_of_two_tokens, {s}, kSpecialTokens, options, sampling),
                                     device_search(*model_of_two_tokens, {s}, options, sampling)}) {
    REQUIRE(all_hypotheses[0].size() == 3);
    for (const Hypothesis& h : all_hypotheses[0])
      CHECK(h.tokens == std::vector<int32_t>{kSpecialTokens.unknown_id, kSpecialTokens.end_id});
  }
  // A sentence without a prefix has no allowed first token.
  std::vector<Sentence> sentences{s, s};
  sentences[1].prefix.clear();
  CHECK(refusal([&] {
          beam_search(*model_of_two_tokens, sentences, kSpecialTokens, options, sampling);
        }).find("an allowed next token") != std::string::npos);
  CHECK(refusal([&] {
          device_search(*model_of_two_tokens, sentences, options, sampling);
        }).find("an allowed next token") != std::string::npos);
}

TEST_CASE("invalid search options, prefixes that are too long and logits of NaN are refused", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = build_model(kTiny, {6, 20});
  SearchOptions options;
  options.beam = 7;
  CHECK(refusal([&] { options.check(*model); }).find("at most 6, the size of the vocabulary") != std::string::npos);
  options.beam = 2, options.max_length_b = 2, options.min_length = 3;
  CHECK(refusal([&] { options.check(*model); }).find("--min-length") != std::string::npos);
  options.min_length = 1;
  Sentence s{random_source(3, 20, 1), {2, 3, 4}, 0};
  CHECK(refusal([&] { beam_search(*model, {s}, kSpecialTokens, options); }).find("the prefix of sentence 1") !=
        std::string::npos);
  s.prefix.clear();
  auto model_of_two_tokens = build_model(kTiny, {2, 20});
  options.no_unknown = true;
  CHECK(refusal([&] {
          beam_search(*model_of_two_tokens, {s}, kSpecialTokens, options);
        }).find("an allowed next token") != std::string::npos);
  CHECK(refusal([&] { device_search(*model_of_two_tokens, {s}, options); }).find("an allowed next token") !=
        std::string::npos);
  for (auto& p : model->parameters().all())
    if (p.master().dim() == 2) p.master().fill_(NAN);
  CHECK(status_of([&] { beam_search(*model, {s}, kSpecialTokens, options); }) == 1);
  CHECK(status_of([&] { device_search(*model, {s}, options); }) == 1);
  // Learned positions limit the length of hypotheses, too: the last position predicts the end token.
  auto bounded_model =
      build_model(std::string(kTiny).replace(8, 0, "positions = 'learned'\nmax_positions = 5\n"), {6, 20});
  CHECK(max_hypothesis_length({}, *bounded_model, 3) == 4);
  CHECK(beam_search(*bounded_model, {s}, kSpecialTokens, {})[0].size() == 5);
  CHECK(device_search(*bounded_model, {s}, {})[0].size() == 5);
  options = {2, 1, 1, 0, 4, false};
  options.check(*bounded_model);
  options.min_length = 5;
  CHECK(refusal([&] { options.check(*bounded_model); }).find("at most 4, the maximum length of the model") !=
        std::string::npos);
  options.check(*model);
  CHECK(max_hypothesis_length({5, 1, 1.2, 10, 1, false}, *model, 6) == 17);
}
