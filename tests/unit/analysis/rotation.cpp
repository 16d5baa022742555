// Importance of heads, their exchange, and the procedure that rotates them.
#include "analysis/rotation.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "analysis/importance.h"
#include "base/error.h"
#include "base/json_types.h"
#include "data/text.h"
#include "fixtures/corpora.h"
#include "fixtures/layers.h"
#include "fixtures/runs.h"

using namespace mh;
using namespace mh::analysis;
using namespace runs;

namespace {

// Layers of attention by themselves, all of one configuration.
struct Stack {
  static constexpr int64_t kWidth = 12;
  nn::ParameterList parameters{at::kCPU};
  std::map<AttentionKind, std::vector<std::unique_ptr<attention::AttentionLayer>>> layers;

  explicit Stack(const std::string& toml,
                 std::map<AttentionKind, int64_t> counts = {{AttentionKind::decoder_self, 3}}) {
    const auto init = nn::Init::normal(0.5);
    for (const auto& [kind, count] : counts)
      for (int64_t i = 0; i < count; ++i) {
        const auto options = layers::options_of(toml, kind);
        layers[kind].push_back(std::make_unique<attention::AttentionLayer>(
            parameters, options, make_layer_spec(options, kind, i, kWidth, prefix_of(kind, i)),
            attention::AttentionLayer::Inits{init, init, init}));
      }
    parameters.initialise(3);
    // No two numbers alike, so that each shows where it came from.
    c10::NoGradGuard no_gradient;
    uint64_t seed = 1;
    for (auto& p : parameters.all()) p.master().add_(layers::normal(p.master().sizes().vec(), seed++), 0.3);
  }
  at::Tensor run(AttentionKind kind, int64_t layer, const at::Tensor& x) {
    c10::NoGradGuard no_gradient;
    attention::Mask mask;
    mask.causal = true;
    return layers.at(kind)[static_cast<size_t>(layer)]->forward(x, x, mask, {});
  }
  std::map<std::string, at::Tensor> copy() const {
    std::map<std::string, at::Tensor> all;
    for (const auto& p : parameters.all()) all[p.name()] = p.master().detach().clone();
    return all;
  }
  std::set<std::string> changed_since(const std::map<std::string, at::Tensor>& before) const {
    std::set<std::string> names;
    for (const auto& p : parameters.all())
      if (!at::equal(p.master(), before.at(p.name()))) names.insert(p.name());
    return names;
  }
};

HeadPair pair(int64_t layer, int64_t head, int64_t other, int64_t other_head,
              AttentionKind kind = AttentionKind::decoder_self) {
  return {kind, {layer, head}, {other, other_head}};
}

// Every stage that holds something for a head.
const std::vector<std::string>& stages() {
  static const std::vector<std::string> all{
      "",
      "mixer = 'mixhead-a'\n",
      "mixer = 'mixhead-b'\n",
      "mixer = 'talking-heads'\n",
      "combiner = 'alphas'\n",
      "combiner = 'hard-concrete'\n",
      "combiner = 'mae'\n[attention.mae]\nhidden = 5\n",
      "score = 'relative'\n[attention.relative]\nshared_biases = false\n",
      "score = 'synthesizer-random'\n[attention.synthesizer-random]\nlength = 6\n"};
  return all;
}

std::vector<std::string> texts(const std::vector<HeadPair>& pairs) { return to_strings(pairs); }

}  // namespace

TEST_CASE("a pair of heads reads back from its text", "[rotation]") {
  CHECK(to_string(pair(1, 0, 5, 3)) == "decoder.self:1.0-5.3");
  for (const char* text : {"decoder.self:1.0-5.3", "encoder.self:0.11-12.0", "decoder.cross:1.7-5.7"})
    CHECK(to_string(parse_pair(text, "pairs")) == text);
  for (const char* text : {"", "decoder.self", "decoder.slef:1.0-5.3", "decoder.self:1-5", "decoder.self:1.0-5.-3",
                           "decoder.self:1.0-5.3 ", "decoder.self:1.0-5.3333333333333333333333"})
    CHECK_THROWS_AS(parse_pair(text, "pairs"), Error);
}

TEST_CASE("a swap exchanges the rows of q, k and v and of their biases, and nothing else", "[rotation]") {
  Stack stack("heads = 4\nmixer = 'mixhead-b'\ncombiner = 'alphas'\n",
              {{AttentionKind::encoder_self, 2}, {AttentionKind::decoder_self, 3}, {AttentionKind::decoder_cross, 3}});
  const auto before = stack.copy();
  swap_heads(stack.parameters, {pair(0, 1, 2, 3)}, {}, "test");
  std::set<std::string> expected;
  for (const char* layer : {"decoder.layers.0.self.", "decoder.layers.2.self."})
    for (const char* part : {"query", "key", "value"})
      for (const char* what : {".weight", ".bias"}) expected.insert(std::string(layer) + part + what);
  CHECK(stack.changed_since(before) == expected);  // other kinds, other layers, W^O, norms and stages untouched
  const int64_t size = Stack::kWidth / 4;
  for (const char* part : {"query.weight", "key.weight", "value.weight", "query.bias", "key.bias", "value.bias"}) {
    const std::string from = std::string("decoder.layers.0.self.") + part,
                      to = std::string("decoder.layers.2.self.") + part;
    for (int64_t row = 0; row < Stack::kWidth; ++row) {
      const bool of_a = row / size == 1, of_b = row / size == 3;
      const at::Tensor a = of_a ? before.at(to)[3 * size + row % size] : before.at(from)[row];
      const at::Tensor b = of_b ? before.at(from)[1 * size + row % size] : before.at(to)[row];
      CHECK(at::equal(stack.parameters.find(from)->master()[row], a));
      CHECK(at::equal(stack.parameters.find(to)->master()[row], b));
    }
  }
}

TEST_CASE("an entry between two heads goes with them where they stay together, and stays where they part",
          "[rotation]") {
  Stack stack("heads = 4\nmixer = 'mixhead-a'\n");
  const auto before = stack.copy();
  // 0.1 and 0.2 go to layer 2 together; 0.0 and 0.3 stay.
  swap_heads(stack.parameters, {pair(0, 1, 2, 3), pair(2, 0, 0, 2)}, {false, true}, "test");
  const auto now = stack.copy();
  const std::string m = "decoder.layers.0.self.mixer.matrix", n = "decoder.layers.2.self.mixer.matrix";
  const std::map<int64_t, int64_t> from_n{{1, 3}, {2, 0}}, from_m{{3, 1}, {0, 2}};
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 4; ++j) {
      auto expected = [&](const std::string& own, const std::string& other, const std::map<int64_t, int64_t>& from) {
        return from.count(i) > 0 && from.count(j) > 0 ? before.at(other)[from.at(i)][from.at(j)] : before.at(own)[i][j];
      };
      CHECK(at::equal(now.at(m)[i][j], expected(m, n, from_n)));
      CHECK(at::equal(now.at(n)[i][j], expected(n, m, from_m)));
    }
}

TEST_CASE("identity 35: swapping twice is the identity, bit for bit", "[rotation]") {
  for (const std::string& toml : stages()) {
    Stack stack("heads = 4\n" + toml);
    const auto before = stack.copy();
    for (bool output : {false, true})
      for (bool of_stages : {false, true}) {
        INFO(toml << output << of_stages);
        const SwapOptions options{output, of_stages};
        CHECK(rc::check([&](uint64_t seed) {
          RandomSequence random(RandomStream(seed, "test"));
          const int64_t k = 1 + static_cast<int64_t>(random.below(6));
          const auto pairs = pair_random(AttentionKind::decoder_self, {4, 4, 4}, k, random);
          swap_heads(stack.parameters, pairs, options, "test");
          RC_ASSERT(!stack.changed_since(before).empty());
          swap_heads(stack.parameters, pairs, options, "test");
          RC_ASSERT(stack.changed_since(before).empty());
        }));
      }
  }
}

TEST_CASE("identity 35: heads of one layer that take all of theirs along leave its function as it is", "[rotation]") {
  for (const std::string& toml : stages()) {
    INFO(toml);
    Stack stack("heads = 4\n" + toml);
    const at::Tensor x = layers::normal({2, 5, Stack::kWidth}, 9), y = stack.run(AttentionKind::decoder_self, 1, x);
    const std::vector<HeadPair> pairs{pair(1, 0, 1, 2)};
    swap_heads(stack.parameters, pairs, {true, true}, "test");
    const double scale = y.abs().max().item<double>();
    CHECK((stack.run(AttentionKind::decoder_self, 1, x) - y).abs().max().item<double>() < 1e-5 * scale);
    swap_heads(stack.parameters, pairs, {true, true}, "test");
    swap_heads(stack.parameters, pairs, {false, true}, "test");
    CHECK((stack.run(AttentionKind::decoder_self, 1, x) - y).abs().max().item<double>() > 1e-3 * scale);
  }
}

TEST_CASE("identity 35: all heads of two layers, with W^O and its bias, are the layers exchanged", "[rotation]") {
  for (const std::string& toml : stages()) {
    if (toml.find("mae") != std::string::npos) continue;  // the inside of a gate belongs to no head
    INFO(toml);
    Stack stack("heads = 4\n" + toml);
    const at::Tensor x = layers::normal({2, 5, Stack::kWidth}, 9);
    const at::Tensor first = stack.run(AttentionKind::decoder_self, 0, x),
                     last = stack.run(AttentionKind::decoder_self, 2, x);
    std::vector<HeadPair> pairs;
    for (int64_t head = 0; head < 4; ++head) pairs.push_back(pair(0, head, 2, head));
    swap_heads(stack.parameters, pairs, {true, true}, "test");
    {
      c10::NoGradGuard no_gradient;
      at::Tensor a = stack.parameters.find("decoder.layers.0.self.output.bias")->master(),
                 b = stack.parameters.find("decoder.layers.2.self.output.bias")->master(), kept = a.clone();
      a.copy_(b), b.copy_(kept);
    }
    CHECK(at::equal(stack.run(AttentionKind::decoder_self, 0, x), last));
    CHECK(at::equal(stack.run(AttentionKind::decoder_self, 2, x), first));
  }
}

TEST_CASE("companions of a parameter go where it goes", "[rotation]") {
  Stack stack("heads = 4\n");
  std::map<std::string, at::Tensor> twin;
  for (auto& p : stack.parameters.all()) twin[p.name()] = p.master().detach().clone();
  swap_heads(stack.parameters, {pair(0, 1, 2, 3)}, {}, "test",
             [&](const nn::Parameter& p) { return std::vector<at::Tensor>{twin.at(p.name())}; });
  CHECK(stack.changed_since(twin).empty());
}

TEST_CASE("what cannot be swapped is refused", "[rotation]") {
  Stack stack("heads = 4\n");
  auto refused = [&](const HeadPair& p, const SwapOptions& options = {}) {
    const auto before = stack.copy();
    CHECK_THROWS_AS(swap_heads(stack.parameters, {p}, options, "test"), Error);
    CHECK(stack.changed_since(before).empty());
  };
  refused(pair(0, 4, 1, 0));
  refused(pair(0, 0, 3, 0));
  refused(pair(0, 0, 0, 0));
  refused(pair(0, 0, 1, 0, AttentionKind::decoder_cross));
  CHECK_THROWS_AS(swap_heads(stack.parameters, {pair(0, 0, 1, 0), pair(1, 0, 2, 0)}, {}, "test"), Error);

  // Layers that differ.
  auto differing = [&](const std::string& second, const SwapOptions& options) {
    nn::ParameterList list(at::kCPU);
    const auto init = nn::Init::normal(1);
    std::vector<std::unique_ptr<attention::AttentionLayer>> both;
    for (int64_t i = 0; i < 2; ++i) {
      const auto o = layers::options_of("heads = 4\n" + (i == 0 ? "" : second));
      both.push_back(std::make_unique<attention::AttentionLayer>(
          list, o, make_layer_spec(o, AttentionKind::decoder_self, i, 12, prefix_of(AttentionKind::decoder_self, i)),
          attention::AttentionLayer::Inits{init, init, init}));
    }
    list.initialise(1);
    swap_heads(list, {pair(0, 0, 1, 0)}, options, "test");
  };
  CHECK_THROWS_AS(differing("head_size = 5\n", {}), Error);
  CHECK_THROWS_AS(differing("bias = false\n", {}), Error);
  CHECK_THROWS_AS(differing("score = 'synthesizer-random'\n[attention.synthesizer-random]\nlength = 6\n", {}), Error);
  CHECK_THROWS_AS(differing("mixer = 'mixhead-a'\n", {false, true}), Error);
  CHECK_NOTHROW(differing("mixer = 'mixhead-a'\n", {}));
  CHECK_NOTHROW(differing("", {true, true}));
}

TEST_CASE("the schedule of the published example", "[rotation]") {
  const RotationSchedule schedule{2, 4, 1, 20};
  std::vector<int64_t> swaps, undone;
  int64_t at = 0;
  bool active = false;
  for (int64_t epoch = 1; epoch <= 40; ++epoch) {
    const auto act = schedule.before(epoch, at, active);
    if (act == RotationSchedule::Action::swap) swaps.push_back(epoch), at = epoch, active = true;
    if (act == RotationSchedule::Action::undo) undone.push_back(epoch), active = false;
  }
  CHECK(swaps == std::vector<int64_t>{2, 7, 12, 17});
  CHECK(undone == std::vector<int64_t>{6, 11, 16, 21});
  // An end before the frequency is over puts back at once.
  CHECK(RotationSchedule{2, 10, 1, 4}.before(5, 2, true) == RotationSchedule::Action::undo);
  CHECK(RotationSchedule{2, 10, 1, 4}.before(4, 2, true) == RotationSchedule::Action::none);
}

TEST_CASE("hard, soft and released choose what they should", "[rotation]") {
  const LayerScores scores{{0.5, 0.1, 0.9, 0.4}, {0.3, 0.3, 0.7, 0.2}, {0.8, 0.6, 0.05, 1.0}};
  const AttentionKind kind = AttentionKind::decoder_self;
  CHECK(texts(pair_hard(kind, scores, 3)) ==
        std::vector<std::string>{"decoder.self:2.3-2.2", "decoder.self:0.2-0.1", "decoder.self:2.0-1.3"});
  // The middle layer has no partner.
  CHECK(texts(pair_soft(kind, scores, 2, 0)) ==
        std::vector<std::string>{"decoder.self:0.1-2.2", "decoder.self:0.3-2.1"});
  CHECK(texts(pair_released(kind, scores, 1)) ==
        std::vector<std::string>{"decoder.self:0.1-2.1", "decoder.self:0.3-2.3", "decoder.self:0.0-2.0",
                                 "decoder.self:0.2-2.2"});
  // t_max: the outermost pairs of layers alone; 0 takes all of them.
  const LayerScores five{{1, 2}, {4, 3}, {5, 6}, {8, 7}, {9, 10}};
  CHECK(texts(pair_soft(kind, five, 1, 1)) == std::vector<std::string>{"decoder.self:0.0-4.0"});
  CHECK(texts(pair_soft(kind, five, 1, 2)) == std::vector<std::string>{"decoder.self:0.0-4.0", "decoder.self:1.1-3.1"});
  CHECK(texts(pair_soft(kind, five, 1, 0)) == texts(pair_soft(kind, five, 1, 2)));
  CHECK(most_pairs(Selection::hard, {4, 4, 3}) == 5);
  CHECK(most_pairs(Selection::random, {4, 4, 3}) == 5);
  CHECK(most_pairs(Selection::soft, {4, 4, 3}) == 1);
  CHECK(most_pairs(Selection::soft, {4}) == 0);
  CHECK(most_pairs(Selection::released, {4, 4, 4}) == 1);
  CHECK(most_pairs(Selection::released, {3, 3}) == 0);
  CHECK(most_pairs(Selection::hard, {}) == 0);
}

TEST_CASE("identity 39: pairs are disjoint, and hard touches each head at most once", "[rotation]") {
  CHECK(rc::check([](uint64_t seed) {
    RandomSequence random(RandomStream(seed, "test"));
    LayerScores scores(1 + random.below(5));
    std::vector<int64_t> heads;
    std::vector<double> sorted;
    for (auto& layer : scores) {
      layer.resize(1 + random.below(9));
      // Some alike.
      for (double& score : layer) score = static_cast<double>(random.below(20)), sorted.push_back(score);
      heads.push_back(static_cast<int64_t>(layer.size()));
    }
    std::sort(sorted.begin(), sorted.end());
    auto score = [&](const Head& h) { return scores[static_cast<size_t>(h.layer)][static_cast<size_t>(h.head)]; };
    auto disjoint = [](const std::vector<HeadPair>& pairs) {
      std::set<Head> used;
      for (const HeadPair& p : pairs) used.insert(p.a), used.insert(p.b);
      RC_ASSERT(used.size() == 2 * pairs.size());
    };
    const int64_t most = most_pairs(Selection::hard, heads);
    const auto hard = pair_hard(AttentionKind::decoder_self, scores, most);
    disjoint(hard);
    RC_ASSERT(static_cast<int64_t>(hard.size()) == most);
    for (size_t i = 0; i < hard.size(); ++i) {
      RC_ASSERT(score(hard[i].a) == sorted[sorted.size() - 1 - i]);
      RC_ASSERT(score(hard[i].b) == sorted[i]);
    }
    const int64_t soft_k = most_pairs(Selection::soft, heads);
    const auto soft = pair_soft(AttentionKind::decoder_self, scores, soft_k, 0);
    const auto layer_pairs = static_cast<int64_t>(scores.size()) / 2;
    const int64_t t_max =
        layer_pairs > 0 ? 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(layer_pairs))) : 0;
    const auto outer = pair_soft(AttentionKind::decoder_self, scores, soft_k, t_max);
    RC_ASSERT(static_cast<int64_t>(outer.size()) == t_max * soft_k);
    RC_ASSERT(texts(outer) == texts({soft.begin(), soft.begin() + t_max * soft_k}));
    disjoint(soft);
    for (const HeadPair& p : soft) {
      RC_ASSERT(p.a.layer + p.b.layer == static_cast<int64_t>(scores.size()) - 1);
      for (const Head& head : {p.a, p.b}) {
        const auto& layer = scores[static_cast<size_t>(head.layer)];
        RC_ASSERT(std::count_if(layer.begin(), layer.end(), [&](double s) { return s < score(head); }) < soft_k);
      }
    }
    const int64_t released = most_pairs(Selection::released, heads);
    disjoint(pair_released(AttentionKind::decoder_self, scores, released));
    disjoint(pair_random(AttentionKind::decoder_self, heads, most, random));
  }));
  RandomSequence one(RandomStream(5, "x"), 1), same(RandomStream(5, "x"), 1), next(RandomStream(5, "x"), 2);
  const std::vector<int64_t> heads{8, 8, 8};
  const auto drawn = texts(pair_random(AttentionKind::decoder_self, heads, 6, one));
  CHECK(texts(pair_random(AttentionKind::decoder_self, heads, 6, same)) == drawn);
  CHECK(texts(pair_random(AttentionKind::decoder_self, heads, 6, next)) != drawn);
}

TEST_CASE("measures of importance equal plain loops, without padding", "[rotation]") {
  CHECK(rc::check([](uint64_t seed) {
    RandomSequence random(RandomStream(seed, "test"));
    const auto any = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random.below(static_cast<uint64_t>(high - low + 1)));
    };
    const int64_t h = any(1, 4), queries = any(1, 5), keys = any(1, 5), passes = any(1, 3);
    const bool pads = any(0, 1) == 1;
    attention::LayerSpec shape;
    shape.layer = any(0, 2), shape.kind = AttentionKind::decoder_self;
    std::map<std::string, std::vector<double>> expected;
    for (const char* name : {"avg-l2", "avg-l2-outputs", "confidence"}) expected[name].resize(static_cast<size_t>(h));
    double rows = 0, real_queries = 0;
    std::map<std::string, std::unique_ptr<Measure>> all;
    for (const auto& [name, means] : expected) all[name] = importances().make(name, "")->observing_measure(Side::whole);
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t batch = any(1, 3);
      const at::Tensor p = at::softmax(layers::normal({batch, h, queries, keys}, seed + 1), -1);
      const at::Tensor z = layers::normal({batch, h, queries, 3}, seed + 2);
      std::vector<int64_t> lengths;
      for (int64_t b = 0; b < batch; ++b) lengths.push_back(pads ? any(0, queries) : queries);
      for (auto& [name, measure] : all) {
        if (pads) measure->begin(at::tensor(lengths, at::kLong));
        measure->probabilities(shape, p);
        RC_ASSERT(measure->heads(attention::HeadSide::value, shape, z).is_same(z));
      }
      for (int64_t b = 0; b < batch; ++b) {
        const int64_t real = lengths[static_cast<size_t>(b)];
        if (real == 0) continue;
        ++rows, real_queries += static_cast<double>(real);
        for (int64_t i = 0; i < h; ++i) {
          const auto head = static_cast<size_t>(i);
          for (auto [name, x] : {std::pair<std::string, at::Tensor>{"avg-l2", p}, {"avg-l2-outputs", z}})
            for (int64_t j = 0; j < h; ++j) {
              double squares = 0;
              for (int64_t t = 0; t < real; ++t)
                for (int64_t s = 0; s < x.size(3); ++s) {
                  const double d = x[b][i][t][s].item<double>() - x[b][j][t][s].item<double>();
                  squares += d * d;
                }
              if (j != i) expected[name][head] += std::sqrt(squares) / static_cast<double>(h - 1);
            }
          for (int64_t t = 0; t < real; ++t) {
            double largest = 0;
            for (int64_t s = 0; s < keys; ++s) largest = std::max(largest, p[b][i][t][s].item<double>());
            expected["confidence"][head] += largest;
          }
        }
      }
    }
    for (const auto& [name, measure] : all) {
      const auto scores = measure->mean_scores();
      if (rows == 0) continue;
      const auto& layer = scores.at(shape.kind).at(static_cast<size_t>(shape.layer));
      RC_ASSERT(static_cast<int64_t>(layer.size()) == h);
      for (size_t i = 0; i < layer.size(); ++i)
        RC_ASSERT(std::abs(layer[i] - expected[name][i] / (name == "confidence" ? real_queries : rows)) < 1e-12);
      measure->reset();
      RC_ASSERT(measure->mean_scores().empty());
    }
  }));
}

namespace {

constexpr int kEpoch = 7;  // updates of the text below

std::string rotation(const std::string& options) { return "[train.procedures.head-rotation]\n" + options; }

std::string length(int updates, const std::string& lr = "0.0", const std::string& validate_every = "1e") {
  return str("[model]\nlayers = 3\n[train]\nlength = '", updates, "u'\nlr = ", lr,
             "\nschedule.length = '40u'\nvalidation.every = '", validate_every, "'\n");
}

// What the log says of the procedure: "swapped 2 [pairs]".
std::vector<std::string> told(const Folder& folder, const std::string& name) {
  std::vector<std::string> lines;
  for (const auto& line : runs::logged(folder.file(name), "head-rotation")) {
    const auto& did = line.at("head-rotation");
    const char* what = did.contains("swapped") ? "swapped" : "undone";
    lines.push_back(str(what, " ", did.at("epoch").get<int>(), " ", did.at(what).dump()));
  }
  return lines;
}

std::vector<std::string> without_pairs(std::vector<std::string> lines) {
  for (std::string& line : lines) line = line.substr(0, line.find(" ["));
  return lines;
}

}  // namespace

TEST_CASE("head rotation, manual: before the given epochs, there and back", "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  const std::string method =
      rotation("mode = 'manual'\npairs = ['decoder.self:0.1-2.3', 'decoder.self:1.0-2.0']\nepochs = [2, 4]\n");
  auto start = run_of(folder, "start", length(1));
  // Nothing moves at a rate of 0 but the heads. What is saved at the end of an epoch is not swapped yet.
  for (auto [updates, swapped] :
       {std::pair{kEpoch, false}, {kEpoch + 1, true}, {3 * kEpoch, true}, {3 * kEpoch + 1, false}}) {
    INFO(updates);
    auto run = run_of(folder, str("run", updates), method + length(updates));
    auto expected = run_of(folder, str("start", updates), length(1));
    if (swapped) swap_heads(expected.model->parameters(), {pair(0, 1, 2, 3), pair(1, 0, 2, 0)}, {}, "test");
    for (auto& p : expected.model->parameters().all()) {
      INFO(p.name());
      CHECK(at::equal(p.master(), find(run, p.name())));
    }
    CHECK(at::equal(find(run, "decoder.layers.0.self.query.weight"),
                    find(start, "decoder.layers.0.self.query.weight")) != swapped);
  }
  CHECK(told(folder, str("run", 3 * kEpoch + 1)) ==
        std::vector<std::string>{"swapped 2 [\"decoder.self:0.1-2.3\",\"decoder.self:1.0-2.0\"]",
                                 "undone 4 [\"decoder.self:0.1-2.3\",\"decoder.self:1.0-2.0\"]"});
}

TEST_CASE("head rotation: the optimizer's moments stay, or go with the heads", "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  const std::string method = rotation("mode = 'manual'\npairs = ['decoder.self:0.1-2.3']\nepochs = [2]\n");
  auto moments = [&](const std::string& name, const std::string& extra) {
    run_of(folder, name, extra);
    io::Checkpoint checkpoint(folder.file(name) + "/last.safetensors");
    std::vector<at::Tensor> both;
    for (int layer : {0, 2}) {
      at::Tensor m = at::empty({16, 16});
      model::load_tensor(checkpoint, str("optimizer.decoder.layers.", layer, ".self.query.weight.first"), m);
      both.push_back(m);
    }
    return both;
  };
  const auto before = moments("before", length(kEpoch));
  const auto stay = moments("stay", method + length(kEpoch + 1));
  const auto go = moments("go", method + "swap_optimizer_state = true\n" + length(kEpoch + 1));
  // Both take the same gradient at the same weights: m' - m = β (moved moment - moment that stays).
  const double beta = 0.9;
  const at::Tensor a = before[0].narrow(0, 4, 4), b = before[1].narrow(0, 12, 4);
  CHECK((b - a).abs().max().item<double>() > 1e-5);
  CHECK(at::allclose(go[0].narrow(0, 4, 4) - stay[0].narrow(0, 4, 4), beta * (b - a), 1e-3, 1e-7));
  CHECK(at::allclose(go[1].narrow(0, 12, 4) - stay[1].narrow(0, 12, 4), beta * (a - b), 1e-3, 1e-7));
  CHECK(at::equal(go[0].narrow(0, 0, 4), stay[0].narrow(0, 0, 4)));
}

TEST_CASE("head rotation: swaps, undoes and rests as scheduled, each time anew", "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  const std::string schedule = "start = 2\nfrequency = 2\nrest = 1\nend = 5\nk = 2\n";
  const std::vector<std::string> expected{"swapped 2", "undone 4", "swapped 5", "undone 6"};
  for (const char* mode : {"mode = 'soft'\n", "mode = 'random'\n", "mode = 'hard'\nmeasure = 'confidence'\n"}) {
    INFO(mode);
    const std::string name = str("run", std::hash<std::string>()(mode));
    run_of(folder, name, rotation(mode + schedule) + length(5 * kEpoch + 1, "0.01"));
    CHECK(without_pairs(told(folder, name)) == expected);
    // What was exchanged is what is put back.
    const auto lines = told(folder, name);
    for (size_t i = 0; i + 1 < lines.size(); i += 2)
      CHECK(lines[i].substr(lines[i].find('[')) == lines[i + 1].substr(lines[i + 1].find('[')));
  }
}

TEST_CASE("head rotation, hard: the ranking is that of the validation before", "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(403));  // the last block is padded
  auto run = run_of(folder, "run", rotation("mode = 'hard'\nk = 4\n") + length(kEpoch, "0.01"));
  auto measure = importances().make("avg-l2", "")->observing_measure(Side::whole);
  {
    c10::NoGradGuard no_gradient;
    io::ShardFile shard(folder.file("t.mhs"));
    for (int64_t block = 0; block < 51; ++block) {
      const data::Row row{block * 8, std::min<int64_t>(8, 403 - block * 8), 0};
      const data::Batch batch = data::load_rows(corpora::text_of(shard, 0), {row}, 8);
      measure->begin(at::tensor({row.length}, at::kLong));
      run.model->hidden(batch.input.tokens, {}, nullptr, measure.get());
    }
  }
  const auto pairs = pair_hard(AttentionKind::decoder_self, measure->mean_scores().at(AttentionKind::decoder_self), 4);
  io::Checkpoint checkpoint(folder.file("run") + "/last.safetensors");
  const auto state = nlohmann::json::parse(checkpoint.entry(io::kTrainingKey));
  const auto mine = nlohmann::json::parse(state.at("procedures").at("head-rotation").get<std::string>());
  CHECK(mine.at("planned").get<std::vector<std::string>>() == texts(pairs));
  CHECK(mine.at("active").empty());
}

TEST_CASE("head rotation, soft: t_max bounds the pairs of layers", "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  auto pairs = [&](const std::string& name, const std::string& t_max) {
    run_of(folder, name,
           rotation("mode = 'soft'\nk = 1\n" + t_max) +
               str("[model]\nlayers = 5\n[train]\nlength = '", kEpoch + 1, "u'\nlr = 0.0\nschedule.length = '40u'\n"));
    const auto swapped = runs::logged(folder.file(name), "head-rotation").at(0).at("head-rotation").at("swapped");
    std::vector<std::string> layers;
    for (const auto& text : swapped) {
      const HeadPair p = parse_pair(text.get<std::string>(), "test");
      layers.push_back(str(p.a.layer, "-", p.b.layer));
    }
    return layers;
  };
  CHECK(pairs("all", "") == std::vector<std::string>{"0-4", "1-3"});
  CHECK(pairs("one", "t_max = 1\n") == std::vector<std::string>{"0-4"});
  CHECK(pairs("two", "t_max = 2\n") == std::vector<std::string>{"0-4", "1-3"});
}

TEST_CASE("head rotation: stopped at any update and resumed, a run is the one that never stopped", "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  const std::string schedule = "start = 2\nfrequency = 1\nrest = 1\nend = 9\nk = 2\nswap_optimizer_state = true\n";
  const int end = 4 * kEpoch + 2;
  // In the first epoch; with a plan; with heads in other places; before they are put back; at rest; with a new plan.
  const std::map<std::string, std::vector<int>> stops{
      {"soft", {3, kEpoch, kEpoch + 2, 2 * kEpoch, 2 * kEpoch + 3, 3 * kEpoch}}, {"random", {kEpoch, kEpoch + 2}}};
  for (const auto& [mode, updates] : stops) {
    const std::string method = rotation(str("mode = '", mode, "'\n") + schedule);
    auto whole = run_of(folder, str("whole-", mode), method + length(end, "0.01"));
    for (int stop : updates) {
      INFO(mode << " " << stop);
      const std::string name = str(mode, stop);
      run_of(folder, name, method + length(stop, "0.01"));
      auto halves = run_of(folder, name, method + length(end, "0.01"), true);
      for (auto& p : whole.model->parameters().all()) {
        INFO(p.name());
        CHECK(at::equal(p.master(), find(halves, p.name())));
      }
      CHECK(told(folder, name) == told(folder, str("whole-", mode)));
    }
  }
}

TEST_CASE("head rotation: what cannot be done is refused before training begins", "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  auto refused = [&](const std::string& options, const std::string& extra = "", const std::string& every = "1e") {
    INFO(options << extra << every);
    CHECK_THROWS_AS(run_of(folder, "refused", rotation(options) + length(3, "0.0", every) + extra), Error);
  };
  refused("mode = 'soft'\nk = 3\n");
  refused("mode = 'hard'\nk = 7\n");
  refused("mode = 'soft'\nk = 2\nsoft = 'released'\n");
  refused("mode = 'hard'\nk = 2\nsoft = 'released'\n");
  refused("mode = 'soft'\nk = 2\nt_max = 2\n");  // three layers have one pair
  refused("mode = 'soft'\nk = 1\nsoft = 'released'\nt_max = 1\n");
  refused("mode = 'hard'\nt_max = 1\n");
  refused("mode = 'random'\nt_max = 1\n");
  refused("mode = 'manual'\npairs = ['decoder.self:0.0-1.0']\nepochs = [2]\nt_max = 1\n");
  refused("mode = 'hard'\nstart = 1\n");
  refused("mode = 'hard'\nstart = 5\nend = 4\n");
  refused("mode = 'hard'\nrest = 0\n");
  refused("mode = 'hard'\nmeasure = 'tailor'\n");
  refused("mode = 'hard'\n", "[data]\nvalid = ''\n");
  refused("mode = 'hard'\n", "", "2e");
  refused("mode = 'hard'\n", "", "0u");
  refused("mode = 'hard'\nkind = ['decoder.cross']\n");
  refused("mode = 'hard'\nkind = ['decoder']\n");
  refused("mode = 'hard'\npairs = ['decoder.self:0.0-1.0']\n");
  refused("mode = 'hard'\nepochs = [2]\n");
  refused("mode = 'manual'\nepochs = [2]\n");
  refused("mode = 'manual'\npairs = ['decoder.self:0.0-1.0']\n");
  refused("mode = 'manual'\npairs = ['decoder.self:0.0-1.9']\nepochs = [2]\n");
  refused("mode = 'manual'\npairs = ['decoder.self:0.0-1.0']\nepochs = [4, 2]\n");
  refused("mode = 'manual'\npairs = ['decoder.self:0.0-1.0']\nepochs = [2]\nkind = ['decoder.self']\n");
  refused("mode = 'random'\nk = 2\n", "[attention.decoder.self.1]\nhead_size = 3\n");
  refused("mode = 'random'\nk = 2\nswap_optimizer_state = true\n",
          "[train.groups.low]\nmatch = ['decoder.layers.0.*']\nrule = 'sgd'\n");
  CHECK_NOTHROW(
      run_of(folder, "random", rotation("mode = 'random'\nstart = 1\n") + length(3) + "[data]\nvalid = ''\n"));
  CHECK(without_pairs(told(folder, "random")) == std::vector<std::string>{"swapped 1"});
}
