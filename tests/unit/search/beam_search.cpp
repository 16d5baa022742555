// Beam search against plain loops without a cache, exhaustive search and teacher forcing; what a search promises of
// order, batches, prefixes and lengths; sampling; and the kernel and the cache below it.
#include "search/beam_search.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "attention/layer.h"
#include "base/random.h"
#include "cpu/best_entries.h"
#include "fixtures/status.h"
#include "fixtures/translators.h"
#include "search/candidates.h"
#include "search/device_search.h"

using namespace mh;
using namespace mh::search;
using translators::built;
using translators::kTiny;
using translators::stages;

namespace {

const EndTokens kEnds{0, 1};

const char* kDecoder = "[model]\nlayers = 2\nwidth = 16\nffn = 24\n[attention]\nheads = 4\n";

// Larger than a real model's, so that its distributions are far from even.
std::unique_ptr<model::LanguageModel> sharp(const std::string& toml, const model::Vocabularies& v, double by = 1.7) {
  auto model = built(toml, v);
  c10::NoGradGuard no_gradient;
  for (auto& p : model->parameters().all())
    if (p.master().dim() == 2) p.master().mul_(by);
  return model;
}

std::vector<int32_t> some_source(int64_t length, int64_t vocabulary, uint64_t seed) {
  const at::Tensor t = models::some_tokens(1, length, vocabulary, seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(t[0][i].item<int32_t>());
  tokens.back() = kEnds.end;
  return tokens;
}

at::Tensor row(const std::vector<int32_t>& tokens) {
  return at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()), at::kLong).unsqueeze(0);
}

model::Input forced_input(const std::vector<int32_t>& source, const std::vector<int32_t>& tokens) {
  std::vector<int32_t> in{kEnds.end};
  in.insert(in.end(), tokens.begin(), tokens.end());
  model::Input input(row(in));
  if (source.empty()) return input;
  input.source = row(source);
  input.lengths.encoder = at::tensor(std::vector<int64_t>{static_cast<int64_t>(source.size())}, at::kLong);
  return input;
}

// log p of every token behind these, by a pass over all of them.
std::vector<double> log_probabilities(model::LanguageModel& model, const std::vector<int32_t>& source,
                                      const std::vector<int32_t>& tokens) {
  const at::Tensor hidden = model.hidden(forced_input(source, tokens), {});
  const at::Tensor logits = model.logits(hidden.narrow(1, hidden.size(1) - 1, 1)).flatten().to(at::kDouble);
  const at::Tensor p = at::log_softmax(logits, 0).contiguous();
  return {p.const_data_ptr<double>(), p.const_data_ptr<double>() + p.numel()};
}

double forced_sum(model::LanguageModel& model, const std::vector<int32_t>& source, std::vector<int32_t> tokens) {
  const at::Tensor targets = row(tokens);
  tokens.pop_back();
  return model.target_log_probabilities(model.hidden(forced_input(source, tokens), {}), targets)
      .to(at::kDouble)
      .sum()
      .item<double>();
}

// One sentence, one hypothesis after the other, all ways sorted.
std::vector<Hypothesis> plain_search(model::LanguageModel& model, const Sentence& s, const SearchOptions& o) {
  struct Part {
    std::vector<int32_t> tokens;
    double sum;
  };
  std::vector<Part> live{{{}, 0}};
  std::vector<Hypothesis> finished;
  const int64_t longest = static_cast<int64_t>(o.max_length_a * static_cast<double>(s.source.size())) + o.max_length_b;
  const auto beam = static_cast<size_t>(o.beam);
  for (int64_t n = 0; !live.empty() && finished.size() < beam; ++n) {
    std::vector<Part> ways;
    for (const Part& part : live) {
      const auto p = log_probabilities(model, s.source, part.tokens);
      for (size_t t = 0; t < p.size(); ++t) {
        const auto token = static_cast<int32_t>(t);
        if (n < static_cast<int64_t>(s.prefix.size())) {
          if (token != s.prefix[static_cast<size_t>(n)]) continue;
        } else if (n >= longest) {
          if (token != kEnds.end) continue;
        } else if ((n < o.min_length && token == kEnds.end) || (o.no_unknown && token == kEnds.unknown)) {
          continue;
        }
        ways.push_back({part.tokens, part.sum + p[t]});
        ways.back().tokens.push_back(token);
      }
    }
    std::stable_sort(ways.begin(), ways.end(), [](const Part& a, const Part& b) { return a.sum > b.sum; });
    live.clear();
    for (size_t i = 0; i < std::min(2 * beam, ways.size()) && live.size() < beam && finished.size() < beam; ++i) {
      if (ways[i].tokens.back() != kEnds.end) live.push_back(ways[i]);
      else if (i < beam)
        finished.push_back(
            {ways[i].tokens, ways[i].sum, ways[i].sum / std::pow(static_cast<double>(n + 1), o.length_penalty)});
    }
  }
  std::stable_sort(finished.begin(), finished.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  return finished;
}

void require_same(const std::vector<Hypothesis>& found, const std::vector<Hypothesis>& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO("hypothesis " << i);
    REQUIRE(found[i].tokens == wanted[i].tokens);
    REQUIRE(found[i].log_probability == Approx(wanted[i].log_probability).epsilon(1e-5).margin(1e-5));
    REQUIRE(found[i].score == Approx(wanted[i].score).epsilon(1e-5).margin(1e-5));
  }
}

// As beam_search(), by operations on tensors.
std::vector<std::vector<Hypothesis>> by_tensors(model::LanguageModel& model, const std::vector<Sentence>& sentences,
                                                const SearchOptions& o, const SamplingOptions& sampling = {}) {
  Sentences all;
  for (const Sentence& s : sentences) all.push_back(&s);
  return search_on_device(model, all, BeamPolicy(kEnds, o, sampling));
}

std::vector<Sentence> some_sentences(const std::vector<int64_t>& lengths, int64_t vocabulary) {
  std::vector<Sentence> all;
  for (size_t i = 0; i < lengths.size(); ++i)
    all.push_back({some_source(lengths[i], vocabulary, 50 + i), {}, static_cast<int64_t>(i)});
  return all;
}

}  // namespace

TEST_CASE("the largest logits of a row, and its sum of exponentials", "[search]") {
  CHECK(rc::check([] {
    const int n = *rc::gen::inRange(1, 700), count = *rc::gen::inRange(0, 40), levels = *rc::gen::inRange(1, 400);
    const bool has_infinite = *rc::gen::arbitrary<bool>();
    std::vector<float> x;
    for (int i = 0; i < n; ++i) {
      const int v = *rc::gen::inRange(0, levels);
      x.push_back(has_infinite && v == 0 && i > 0 ? -INFINITY : 0.1F * static_cast<float>(v) - 7);
    }
    const std::vector<int32_t> without = *rc::gen::container<std::vector<int32_t>>(2, rc::gen::inRange(0, n));
    std::vector<kernels::Entry> best(static_cast<size_t>(count));
    double log_sum = 0, sum = 0;
    const auto found = static_cast<size_t>(kernels::best_entries(x, without, best, &log_sum));
    std::vector<int32_t> order;
    for (int i = 0; i < n; ++i) {
      sum += std::exp(static_cast<double>(x[static_cast<size_t>(i)]));
      if (x[static_cast<size_t>(i)] > -INFINITY && std::find(without.begin(), without.end(), i) == without.end())
        order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)]; });
    order.resize(std::min(order.size(), static_cast<size_t>(count)));
    RC_ASSERT(found == order.size());
    for (size_t i = 0; i < found; ++i) {
      RC_ASSERT(best[i].index == order[i]);
      RC_ASSERT(best[i].logit == x[static_cast<size_t>(order[i])]);
    }
    RC_ASSERT(std::abs(log_sum - std::log(sum)) < 2e-6);
  }));
  for (float bad : {NAN, INFINITY}) {
    std::vector<float> x(300, 1.0F);
    x[123] = bad;
    std::vector<kernels::Entry> best(3);
    double log_sum = 0;
    kernels::best_entries(x, {}, best, &log_sum);
    CHECK(!std::isfinite(log_sum));
  }
}

TEST_CASE("the largest logits by operations on tensors are those of the kernel", "[search]") {
  CHECK(rc::check([] {
    const int64_t entries = *rc::gen::inRange(1, 700), rows = *rc::gen::inRange(1, 4);
    const int64_t count = *rc::gen::inRange(1, 40), levels = *rc::gen::inRange(1, 400);
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1000));
    at::Tensor x = at::randint(levels, {rows, entries}, at::kFloat) * 0.1 - 7;
    x.masked_fill_(x.eq(-7).logical_and(at::rand({rows, entries}) > 0.5), -INFINITY);
    x.select(1, 0).fill_(1);
    std::vector<int32_t> never;
    if (*rc::gen::arbitrary<bool>()) never.push_back(*rc::gen::inRange<int32_t>(0, static_cast<int32_t>(entries)));
    const Best best = best_of(x, count, never);
    RC_ASSERT(best.tokens.sizes() == at::IntArrayRef({rows, std::min(count, entries)}));
    const Candidates wanted = candidates_of(x, {count, never, {}});
    for (int64_t r = 0; r < rows; ++r) {
      const auto& of_row = wanted.rows[static_cast<size_t>(r)];
      RC_ASSERT(std::abs(best.log_sums[r].item<double>() - wanted.log_sums[static_cast<size_t>(r)]) < 2e-6);
      for (int64_t k = 0; k < best.tokens.size(1); ++k) {
        const auto place = static_cast<size_t>(k);
        const auto logit = best.logits[r][k].item<float>();
        RC_ASSERT((logit > -INFINITY) == (place < of_row.size()));
        if (place >= of_row.size()) continue;
        RC_ASSERT(best.tokens[r][k].item<int64_t>() == of_row[place].index);
        RC_ASSERT(logit == of_row[place].logit);
      }
    }
  }));
}

TEST_CASE("a cache keeps what its rows are, moved in place or not", "[search]") {
  CHECK(rc::check([] {
    const int64_t before = *rc::gen::inRange(1, 6), length = *rc::gen::inRange(1, 70);
    const at::Tensor k = at::randn({before, 2, length, 3}), v = at::randn({before, 2, length, 4});
    attention::Cache cache;
    cache.append(k, v);
    at::Tensor expected_k = k, expected_v = v;
    for (int times = 0; times < 3; ++times) {
      const int64_t rows = expected_k.size(0);
      const auto from = *rc::gen::container<std::vector<int64_t>>(static_cast<size_t>(*rc::gen::inRange(1, 8)),
                                                                  rc::gen::inRange<int64_t>(0, rows));
      const at::Tensor order = at::tensor(from, at::kLong);
      cache.reorder(order);
      const at::Tensor more_k = at::randn({order.numel(), 2, 1, 3}), more_v = at::randn({order.numel(), 2, 1, 4});
      cache.append(more_k, more_v);
      expected_k = at::cat({expected_k.index_select(0, order), more_k}, 2);
      expected_v = at::cat({expected_v.index_select(0, order), more_v}, 2);
      RC_ASSERT(at::equal(cache.all().first, expected_k));
      RC_ASSERT(at::equal(cache.all().second, expected_v));
    }
  }));
}

TEST_CASE("beam search equals plain loops without a cache, whatever the options", "[search]") {
  c10::NoGradGuard no_gradient;
  auto translator = sharp(kTiny, {9, 12});
  auto writer = sharp(kDecoder, 9);
  CHECK(rc::check([&] {
    const bool translates = *rc::gen::arbitrary<bool>();
    model::LanguageModel& model = translates ? *translator : *writer;
    SearchOptions o;
    o.beam = *rc::gen::inRange(1, 8);
    o.length_penalty = *rc::gen::elementOf(std::vector<double>{0, 0.6, 1, 2, -1});
    o.max_length_a = *rc::gen::elementOf(std::vector<double>{0, 0.5});
    o.max_length_b = *rc::gen::inRange(2, 7);
    o.min_length = *rc::gen::inRange(0, 3);
    o.no_unknown = *rc::gen::arbitrary<bool>();
    std::vector<Sentence> sentences;
    const int count = *rc::gen::inRange(1, 5);
    for (int i = 0; i < count; ++i) {
      Sentence s;
      if (translates) s.source = some_source(*rc::gen::inRange(1, 8), 12, *rc::gen::inRange<uint64_t>(0, 1000));
      s.prefix = *rc::gen::container<std::vector<int32_t>>(static_cast<size_t>(*rc::gen::inRange(0, 3)),
                                                           rc::gen::inRange<int32_t>(2, 9));
      sentences.push_back(s);
    }
    const auto found = beam_search(model, sentences, kEnds, o);
    const auto same = by_tensors(model, sentences, o);
    for (size_t i = 0; i < sentences.size(); ++i) {
      const auto wanted = plain_search(model, sentences[i], o);
      require_same(found[i], wanted);
      require_same(same[i], wanted);
    }
  }));
}

TEST_CASE("a search by operations on tensors finds what the other one finds, through many looks", "[search]") {
  c10::NoGradGuard no_gradient;
  auto translator = sharp(kTiny, {70, 20});
  auto mixed = sharp(std::string(kTiny) + "mixer = 'mixhead-b'\nnormaliser = 'sigsoftmax'\n", {70, 20});
  auto writer = sharp(kDecoder, 70);
  auto remembers = sharp(
      "[model]\nbackbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 0\nlayers = 2\nwidth = "
      "16\nffn = "
      "24\n[attention]\nheads = 4\nscore = 'relative'\n",
      70);
  CHECK(rc::check([&] {
    const int which = *rc::gen::inRange(0, 4);
    model::LanguageModel& model = *(which == 0 ? translator : which == 1 ? mixed : which == 2 ? writer : remembers);
    SearchOptions o;
    o.beam = *rc::gen::elementOf(std::vector<int64_t>{1, 2, 3, 5, 8, 70});
    o.length_penalty = *rc::gen::elementOf(std::vector<double>{0, 1, 2});
    o.max_length_a = *rc::gen::elementOf(std::vector<double>{0, 2});
    o.max_length_b = *rc::gen::inRange(1, 30);
    o.min_length = *rc::gen::inRange<int64_t>(0, std::min<int64_t>(o.max_length_b, 20) + 1);
    o.no_unknown = *rc::gen::arbitrary<bool>();
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
      if (model.has_encoder()) s.source = some_source(*rc::gen::inRange(1, 12), 20, *rc::gen::inRange<uint64_t>(0, 99));
      s.prefix = *rc::gen::container<std::vector<int32_t>>(
          static_cast<size_t>(*rc::gen::inRange(0, static_cast<int>(std::min<int64_t>(o.max_length_b, 12)))),
          rc::gen::inRange<int32_t>(2, 9));
      s.number = i;
      sentences.push_back(s);
    }
    const auto wanted = beam_search(model, sentences, kEnds, o, sampling),
               found = by_tensors(model, sentences, o, sampling);
    RC_ASSERT(found.size() == wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) require_same(found[i], wanted[i]);
  }));
}

TEST_CASE("a beam wide enough finds what exhaustive search finds", "[search]") {
  c10::NoGradGuard no_gradient;
  for (double penalty : {0.0, 1.0, 1.5}) {
    auto model = sharp(kTiny, {4, 6});
    SearchOptions o;
    o.max_length_b = 4, o.min_length = 0, o.beam = 3 * 3 * 3 * 3 * 4, o.length_penalty = penalty;
    const Sentence s{some_source(5, 6, 3), {}, 0};
    std::vector<Hypothesis> all;
    std::vector<std::vector<int32_t>> parts{{}};
    for (int n = 0; n <= 4; ++n) {
      std::vector<std::vector<int32_t>> longer;
      for (const auto& part : parts) {
        auto ended = part;
        ended.push_back(kEnds.end);
        const double sum = forced_sum(*model, s.source, ended);
        all.push_back({ended, sum, sum / std::pow(static_cast<double>(ended.size()), penalty)});
        for (int32_t token = 1; token < 4; ++token) {
          longer.push_back(part);
          longer.back().push_back(token);
        }
      }
      parts = longer;
    }
    std::sort(all.begin(), all.end(), [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    const auto found = beam_search(*model, {s}, kEnds, o)[0];
    REQUIRE(found.size() == 1 + 3 + 9 + 27 + 81);
    require_same(found, all);
  }
}

TEST_CASE("a beam of 1 takes the likeliest token each time", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = sharp(kTiny, {30, 20});
  SearchOptions o;
  o.beam = 1, o.max_length_b = 12;
  const auto sentences = some_sentences({6, 2, 9}, 20);
  const auto found = beam_search(*model, sentences, kEnds, o);
  for (size_t i = 0; i < sentences.size(); ++i) {
    std::vector<int32_t> tokens;
    while (tokens.empty() || tokens.back() != kEnds.end) {
      auto p = log_probabilities(*model, sentences[i].source, tokens);
      if (tokens.empty()) p[0] = -INFINITY;  // not empty
      tokens.push_back(tokens.size() == 12 ? 0
                                           : static_cast<int32_t>(std::max_element(p.begin(), p.end()) - p.begin()));
    }
    CHECK(found[i].size() == 1);
    CHECK(found[i][0].tokens == tokens);
  }
}

TEST_CASE("scores are those of a teacher-forced pass, and of a sentence alone, in every stage", "[search]") {
  c10::NoGradGuard no_gradient;
  for (const std::string& stage : stages()) {
    INFO(stage);
    auto model = sharp(kTiny + stage, {30, 20}, 1.3);
    SearchOptions o;
    o.beam = 4, o.max_length_b = 9;
    const auto sentences = some_sentences({7, 2, 5, 5, 3}, 20);
    const auto found = beam_search(*model, sentences, kEnds, o);
    for (size_t i = 0; i < sentences.size(); ++i) {
      REQUIRE(found[i].size() == 4);
      for (const Hypothesis& h : found[i]) {
        CHECK(h.log_probability ==
              Approx(forced_sum(*model, sentences[i].source, h.tokens)).epsilon(2e-5).margin(2e-4));
        CHECK(h.score == Approx(h.log_probability / static_cast<double>(h.tokens.size())));
        CHECK(std::count(h.tokens.begin(), h.tokens.end(), kEnds.end) == 1);
      }
      require_same(beam_search(*model, {sentences[i]}, kEnds, o)[0], found[i]);
    }
  }
}

TEST_CASE("hypotheses are sorted, all different, and the same in any order and batch", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = sharp(kTiny, {30, 20});
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 24; ++i) lengths.push_back(1 + (i * 7) % 11);
  const auto sentences = some_sentences(lengths, 20);
  SearchOptions o;
  o.beam = 6, o.max_length_a = 1, o.max_length_b = 3;
  const auto all = beam_search(*model, sentences, kEnds, o);
  for (const auto& found : all) {
    std::set<std::vector<int32_t>> different;
    for (size_t k = 0; k < found.size(); ++k) {
      different.insert(found[k].tokens);
      if (k > 0) CHECK(found[k].score <= found[k - 1].score);
    }
    CHECK(different.size() == found.size());
  }
  CHECK(rc::check([&] {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < 24; ++i) order.push_back(i);
    RandomSequence(RandomStream(*rc::gen::inRange<uint64_t>(0, 1000), "order")).shuffle(order);
    order.resize(static_cast<size_t>(*rc::gen::inRange(1, 25)));
    std::vector<Sentence> some;
    for (int64_t i : order) some.push_back(sentences[static_cast<size_t>(i)]);
    const auto found = beam_search(*model, some, kEnds, o);
    for (size_t i = 0; i < order.size(); ++i) require_same(found[i], all[static_cast<size_t>(order[i])]);
  }));
}

TEST_CASE("a sentence is the same alone and in any batch, bit for bit, on the fused path", "[search]") {
  c10::NoGradGuard no_gradient;
  // Wide enough that products are taken another way where they have few rows.
  auto model =
      sharp("[model]\nbackbone = 'encoder-decoder'\nlayers = 2\nwidth = 128\nffn = 1024\n[attention]\nheads = 4\n",
            {300, 20});
  for (const auto* layer : model->attention_layers()) REQUIRE(layer->unfused_reasons(false).empty());
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 30; ++i) lengths.push_back(1 + (i * 7) % 23);
  auto sentences = some_sentences(lengths, 20);
  // A hypothesis that is forced is alone, beside sentences that have a whole beam.
  for (size_t i = 0; i < sentences.size(); i += 3) sentences[i].prefix = {5, 7};
  struct Case {
    int64_t beam, samples;
    bool bf16;
  };
  for (const auto& [beam, samples, bf16] :
       {Case{1, 0, false}, {5, 0, false}, {8, 0, false}, {1, 8, false}, {1, 0, true}, {5, 0, true}, {1, 8, true}}) {
    INFO("beam " << beam << ", samples " << samples << (bf16 ? ", bf16" : ""));
    model->parameters().set_bf16(bf16);
    SearchOptions o;
    o.beam = beam, o.max_length_b = 12;
    SamplingOptions sampling;
    sampling.samples = samples;
    const auto all = beam_search(*model, sentences, kEnds, o, sampling);
    for (size_t size : {1, 2, 13})
      for (size_t first = 0; first + size <= sentences.size(); first += size) {
        const auto begin = sentences.begin() + static_cast<ptrdiff_t>(first);
        const auto found = beam_search(*model, {begin, begin + static_cast<ptrdiff_t>(size)}, kEnds, o, sampling);
        for (size_t i = 0; i < size; ++i) {
          REQUIRE(found[i].size() == all[first + i].size());
          for (size_t k = 0; k < found[i].size(); ++k) {
            CHECK(found[i][k].tokens == all[first + i][k].tokens);
            CHECK(found[i][k].log_probability == all[first + i][k].log_probability);
          }
        }
      }
  }
}

TEST_CASE("a batch that each thread searches a part of is what one thread makes of it", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = sharp(kTiny, {300, 20});
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 40; ++i) lengths.push_back(1 + (i * 7) % 11);
  auto sentences = some_sentences(lengths, 20);
  for (size_t i = 0; i < sentences.size(); i += 5) sentences[i].prefix = {5, 7};
  SearchOptions o;
  o.beam = 5, o.max_length_a = 1, o.max_length_b = 3;
  SamplingOptions drawn;
  drawn.samples = 6;
  const int threads = at::get_num_threads();
  for (const SamplingOptions& sampling : {SamplingOptions(), drawn}) {
    at::set_num_threads(1);
    const auto alone = beam_search(*model, sentences, kEnds, o, sampling);
    for (int parts : {2, 3}) {
      at::set_num_threads(parts);
      const auto found = beam_search(*model, sentences, kEnds, o, sampling);
      REQUIRE(found.size() == alone.size());
      for (size_t i = 0; i < found.size(); ++i) require_same(found[i], alone[i]);
      auto refused = sentences;
      refused[17].prefix.assign(30, 5);
      CHECK(refusal([&] { beam_search(*model, refused, kEnds, o, sampling); }).find("sentence 18") !=
            std::string::npos);
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("equal ways are taken in the order of hypotheses and tokens", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = built(kTiny, {12, 20});
  // All tokens are equally likely, everywhere.
  for (auto& p : model->parameters().all()) p.master().zero_();
  SearchOptions o;
  o.beam = 3, o.max_length_b = 2, o.length_penalty = 0;
  const auto sentences = some_sentences({4, 2, 6}, 20);
  // Of 1, 2 and 3 in the first place the first goes on in all ways, of which one is the end.
  const std::vector<std::vector<int32_t>> wanted{{1, 0}, {1, 1, 0}, {1, 2, 0}};
  for (const auto& found : {beam_search(*model, sentences, kEnds, o), by_tensors(*model, sentences, o)})
    for (const auto& hypotheses : found) {
      REQUIRE(hypotheses.size() == 3);
      for (size_t k = 0; k < 3; ++k) CHECK(hypotheses[k].tokens == wanted[k]);
    }
}

TEST_CASE("samples follow from the seed and the sentence's number alone", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = sharp(kTiny, {30, 20});
  SearchOptions o;
  o.max_length_b = 8;
  SamplingOptions sampling;
  sampling.samples = 5;
  const auto sentences = some_sentences({7, 2, 5}, 20);
  const auto found = beam_search(*model, sentences, kEnds, o, sampling);
  std::set<std::vector<int32_t>> different;
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(found[i].size() == 5);
    require_same(beam_search(*model, {sentences[i]}, kEnds, o, sampling)[0], found[i]);
    for (const Hypothesis& h : found[i]) {
      different.insert(h.tokens);
      CHECK(h.log_probability == Approx(forced_sum(*model, sentences[i].source, h.tokens)).epsilon(1e-4));
    }
  }
  CHECK(different.size() > 8);
  sampling.seed = 2;
  CHECK(beam_search(*model, sentences, kEnds, o, sampling)[0][0].tokens != found[0][0].tokens);
  // What a search never writes no sample has.
  SearchOptions strict = o;
  strict.min_length = 8, strict.no_unknown = true;
  for (const auto& drawn : beam_search(*model, sentences, kEnds, strict, sampling))
    for (const Hypothesis& h : drawn) {
      CHECK(h.tokens.size() == 9);
      CHECK(std::count(h.tokens.begin(), h.tokens.end(), kEnds.unknown) == 0);
    }
  // The likeliest only: greedy.
  o.beam = 1;
  const auto greedy = beam_search(*model, sentences, kEnds, o);
  for (const bool by_k : {true, false}) {
    SamplingOptions sure;
    sure.samples = 2;
    if (by_k) sure.top_k = 1;
    else sure.temperature = 0;
    const auto drawn = beam_search(*model, sentences, kEnds, o, sure);
    for (size_t i = 0; i < 3; ++i)
      for (const Hypothesis& h : drawn[i]) CHECK(h.tokens == greedy[i][0].tokens);
  }
}

TEST_CASE("samples have the model's distribution", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = sharp(kTiny, {6, 20});
  SearchOptions o;
  o.max_length_b = 1, o.min_length = 0;
  SamplingOptions sampling;
  sampling.samples = 6000;
  const auto sentences = some_sentences({4}, 20);
  std::vector<double> share(6, 0);
  const auto found = beam_search(*model, sentences, kEnds, o, sampling);
  for (const Hypothesis& h : found[0]) share[static_cast<size_t>(h.tokens[0])] += 1.0 / 6000;
  const auto p = log_probabilities(*model, sentences[0].source, {});
  for (size_t t = 0; t < 6; ++t) {
    const double expected = std::exp(p[t]), deviation = std::sqrt(expected * (1 - expected) / 6000);
    CHECK(std::abs(share[t] - expected) < 5 * deviation + 1e-9);
  }
}

TEST_CASE("searches that make no sense", "[search]") {
  c10::NoGradGuard no_gradient;
  auto model = built(kTiny, {6, 20});
  SearchOptions o;
  o.beam = 7;
  CHECK(refusal([&] { o.check(*model); }).find("at most 6, the size of the vocabulary") != std::string::npos);
  o.beam = 2, o.max_length_b = 2, o.min_length = 3;
  CHECK(refusal([&] { o.check(*model); }).find("min_length") != std::string::npos);
  o.min_length = 1;
  Sentence s{some_source(3, 20, 1), {2, 3, 4}, 0};
  CHECK(refusal([&] { beam_search(*model, {s}, kEnds, o); }).find("the prefix of sentence 1") != std::string::npos);
  s.prefix.clear();
  auto two = built(kTiny, {2, 20});
  o.no_unknown = true;
  CHECK(refusal([&] { beam_search(*two, {s}, kEnds, o); }).find("an allowed next token") != std::string::npos);
  CHECK(refusal([&] { by_tensors(*two, {s}, o); }).find("an allowed next token") != std::string::npos);
  for (auto& p : model->parameters().all())
    if (p.master().dim() == 2) p.master().fill_(NAN);
  CHECK(status_of([&] { beam_search(*model, {s}, kEnds, o); }) == 1);
  CHECK(status_of([&] { by_tensors(*model, {s}, o); }) == 1);
  // Positions bound hypotheses too: the end is predicted from the last of them.
  auto bounded = built(std::string(kTiny).replace(8, 0, "positions = 'learned'\nmax_positions = 5\n"), {6, 20});
  CHECK(longest_hypothesis({}, *bounded, 3) == 4);
  CHECK(beam_search(*bounded, {s}, kEnds, {})[0].size() == 5);
  CHECK(by_tensors(*bounded, {s}, {})[0].size() == 5);
  o = {2, 1, 1, 0, 4, false};
  o.check(*bounded);
  o.min_length = 5;
  CHECK(refusal([&] { o.check(*bounded); }).find("at most 4, the maximum length of the model") != std::string::npos);
  o.check(*model);
  CHECK(longest_hypothesis({5, 1, 1.2, 10, 1, false}, *model, 6) == 17);
}
