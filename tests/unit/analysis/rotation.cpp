// Head rotation (Azov & Landau): swapping heads, and selecting and scheduling swaps.
#include "analysis/rotation.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "base/error.h"
#include "fixtures/layers.h"
#include "fixtures/modern_options.h"
#include "fixtures/passes.h"
#include "fixtures/segments.h"
#include "fixtures/status.h"

using namespace mh;
using namespace mh::analysis;

namespace {

// Attention layers of one configuration, without the rest of a model.
struct LayerStack {
  static constexpr int64_t kWidth = 12;
  nn::ParameterList parameters{at::kCPU};
  std::map<AttentionKind, std::vector<std::unique_ptr<attention::AttentionLayer>>> layers;

  explicit LayerStack(const std::string& toml,
                      std::map<AttentionKind, int64_t> num_layers = {{AttentionKind::decoder_self, 3}}) {
    const auto init = nn::Init::normal(0.5);
    for (const auto& [kind, count] : num_layers)
      for (int64_t i = 0; i < count; ++i) {
        const auto options = layers::options_of(toml, kind);
        layers[kind].push_back(std::make_unique<attention::AttentionLayer>(
            parameters, options, make_layer_spec(options, kind, i, kWidth, prefix_of(kind, i)),
            attention::AttentionLayer::Inits{init, init, init}));
      }
    parameters.initialise(3);
    // Perturbs all parameters, so that distinct values show the origin of each swapped entry.
    c10::NoGradGuard no_gradient;
    uint64_t seed = 1;
    for (auto& p : parameters.all()) p.master().add_(layers::normal(p.master().sizes().vec(), seed++), 0.3);
  }
  at::Tensor run_layer(AttentionKind kind, int64_t layer, const at::Tensor& x) {
    c10::NoGradGuard no_gradient;
    attention::Mask mask;
    mask.causal = true;
    return layers.at(kind)[static_cast<size_t>(layer)]->forward(x, x, mask, {});
  }
  // Returns the bound on the difference of the outputs of a layer with its heads in two different orders, relative to
  // the largest output, if each query sees at most `keys` keys.
  double output_bound(int64_t keys) const {
    return rounding::bound(at::kFloat, at::kFloat, rounding::num_parameter_roundings(parameters) + 2 * keys, 1);
  }
  std::map<std::string, at::Tensor> copy_parameters() const {
    std::map<std::string, at::Tensor> all;
    for (const auto& p : parameters.all()) all[p.name()] = p.master().detach().clone();
    return all;
  }
  std::set<std::string> changed_parameters(const std::map<std::string, at::Tensor>& before) const {
    std::set<std::string> names;
    for (const auto& p : parameters.all())
      if (!at::equal(p.master(), before.at(p.name()))) names.insert(p.name());
    return names;
  }
};

HeadPair head_pair(int64_t layer, int64_t head, int64_t other_layer, int64_t other_head,
                   AttentionKind kind = AttentionKind::decoder_self) {
  return {kind, {layer, head}, {other_layer, other_head}};
}

// Returns attention configurations: the default stages, and stages with parameters per head.
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

}  // namespace

TEST_CASE("parse_pair() inverts to_string() and refuses malformed pairs of heads", "[rotation]") {
  CHECK(to_string(head_pair(1, 0, 5, 3)) == "decoder.self:1.0-5.3");
  for (const char* text : {"decoder.self:1.0-5.3", "encoder.self:0.11-12.0", "decoder.cross:1.7-5.7"})
    CHECK(to_string(parse_pair(text, "pairs")) == text);
  for (const char* text : {"", "decoder.self", "decoder.slef:1.0-5.3", "decoder.self:1-5", "decoder.self:1.0-5.-3",
                           "decoder.self:1.0-5.3 ", "decoder.self:1.0-5.3333333333333333333333"})
    CHECK(status_of([&] { parse_pair(text, "pairs"); }) == 2);
}

TEST_CASE("swapping heads exchanges their rows of the q, k and v projections and biases, and changes nothing else",
          "[rotation]") {
  LayerStack stack(
      "heads = 4\nmixer = 'mixhead-b'\ncombiner = 'alphas'\n",
      {{AttentionKind::encoder_self, 2}, {AttentionKind::decoder_self, 3}, {AttentionKind::decoder_cross, 3}});
  const auto before = stack.copy_parameters();
  swap_heads(stack.parameters, {head_pair(0, 1, 2, 3)}, {}, "test");
  std::set<std::string> expected;
  for (const char* layer : {"decoder.layers.0.self.", "decoder.layers.2.self."})
    for (const char* projection : {"query", "key", "value"})
      for (const char* parameter : {".weight", ".bias"}) expected.insert(std::string(layer) + projection + parameter);
  CHECK(stack.changed_parameters(before) ==
        expected);  // unchanged: other kinds and layers, W^O and parameters of stages
  const int64_t size = LayerStack::kWidth / 4;
  for (const char* parameter : {"query.weight", "key.weight", "value.weight", "query.bias", "key.bias", "value.bias"}) {
    const std::string name_0 = std::string("decoder.layers.0.self.") + parameter,
                      name_2 = std::string("decoder.layers.2.self.") + parameter;
    for (int64_t row = 0; row < LayerStack::kWidth; ++row) {
      const bool in_head_1 = row / size == 1, in_head_3 = row / size == 3;
      const at::Tensor expected_0 = in_head_1 ? before.at(name_2)[3 * size + row % size] : before.at(name_0)[row];
      const at::Tensor expected_2 = in_head_3 ? before.at(name_0)[1 * size + row % size] : before.at(name_2)[row];
      CHECK(at::equal(stack.parameters.find(name_0)->master()[row], expected_0));
      CHECK(at::equal(stack.parameters.find(name_2)->master()[row], expected_2));
    }
  }
}

TEST_CASE("a swap moves entry (i, j) of a head mixing matrix only if heads i and j both move to the other layer",
          "[rotation]") {
  LayerStack stack("heads = 4\nmixer = 'mixhead-a'\n");
  const auto before = stack.copy_parameters();
  // Heads 1 and 2 of layer 0 move to layer 2; heads 0 and 3 of layer 0 stay in layer 0.
  swap_heads(stack.parameters, {head_pair(0, 1, 2, 3), head_pair(2, 0, 0, 2)}, {false, true}, "test");
  const auto after = stack.copy_parameters();
  const std::string m = "decoder.layers.0.self.mixer.matrix", n = "decoder.layers.2.self.mixer.matrix";
  const std::map<int64_t, int64_t> from_n{{1, 3}, {2, 0}}, from_m{{3, 1}, {0, 2}};
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 4; ++j) {
      auto expected = [&](const std::string& own_name, const std::string& other_name,
                          const std::map<int64_t, int64_t>& from) {
        return from.count(i) > 0 && from.count(j) > 0 ? before.at(other_name)[from.at(i)][from.at(j)]
                                                      : before.at(own_name)[i][j];
      };
      CHECK(at::equal(after.at(m)[i][j], expected(m, n, from_n)));
      CHECK(at::equal(after.at(n)[i][j], expected(n, m, from_m)));
    }
}

TEST_CASE("swapping the same heads twice restores all parameters bit for bit", "[rotation]") {
  for (const std::string& toml : stages()) {
    LayerStack stack("heads = 4\n" + toml);
    const auto before = stack.copy_parameters();
    for (bool output : {false, true})
      for (bool swap_stages : {false, true}) {
        INFO(toml << output << swap_stages);
        const SwapOptions options{output, swap_stages};
        CHECK(rc::check([&](uint64_t seed) {
          RandomSequence random(RandomStream(seed, "test"));
          const int64_t k = 1 + static_cast<int64_t>(random.uniform_below(6));
          const auto pairs = pair_random(AttentionKind::decoder_self, {4, 4, 4}, k, random);
          swap_heads(stack.parameters, pairs, options, "test");
          RC_ASSERT(!stack.changed_parameters(before).empty());
          swap_heads(stack.parameters, pairs, options, "test");
          RC_ASSERT(stack.changed_parameters(before).empty());
        }));
      }
  }
}

TEST_CASE("swapping heads within a layer keeps its outputs if columns of W^O and stage parameters are swapped, too",
          "[rotation]") {
  for (const std::string& toml : stages()) {
    INFO(toml);
    LayerStack stack("heads = 4\n" + toml);
    const at::Tensor x = layers::normal({2, 5, LayerStack::kWidth}, 9),
                     y = stack.run_layer(AttentionKind::decoder_self, 1, x);
    const std::vector<HeadPair> pairs{head_pair(1, 0, 1, 2)};
    swap_heads(stack.parameters, pairs, {true, true}, "test");
    const double bound = stack.output_bound(5) * numbers::max_abs(y);
    CHECK((stack.run_layer(AttentionKind::decoder_self, 1, x) - y).abs().max().item<double>() <= bound);
    swap_heads(stack.parameters, pairs, {true, true}, "test");
    swap_heads(stack.parameters, pairs, {false, true}, "test");
    CHECK((stack.run_layer(AttentionKind::decoder_self, 1, x) - y).abs().max().item<double>() > bound);
  }
}

TEST_CASE("with any option of modern decoders, swapping heads or groups within a layer keeps the hidden states",
          "[rotation]") {
  for (const modern_options::Configuration& c : modern_options::all()) {
    INFO(c.name);
    const segment_fixtures::Model full("decoder", "", c.toml);
    nn::ParameterList& parameters = full.model->parameters();
    const auto copy_parameters = [&] {
      std::vector<at::Tensor> copies;
      for (const auto& p : parameters.all()) copies.push_back(p.master().detach().clone());
      return copies;
    };
    const auto before = copy_parameters();
    const auto are_restored = [&] {
      const auto after = copy_parameters();
      return std::equal(after.begin(), after.end(), before.begin(),
                        [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
    };
    const auto expected = segment_fixtures::hidden_states(*full.model);
    const int64_t group_size = 4 / c.key_value_heads;
    for (const bool by_group : {false, true}) {
      if (by_group && c.key_value_heads == 1) continue;  // the layer has one group
      INFO("by group " << by_group);
      // Heads 0 and 1 are in one group, unless each head is its own group.
      const SwapOptions options{true, true, by_group ? group_size : 0};
      const std::vector<HeadPair> pairs{head_pair(1, 0, 1, 1)}, other_layer_pairs{head_pair(0, 0, 2, 1)};
      swap_heads(parameters, pairs, options, "test");
      CHECK_FALSE(are_restored());
      const auto states = segment_fixtures::hidden_states(*full.model);
      if (c.has_options_by_index) CHECK_FALSE(segment_fixtures::close(states[0], expected[0]));
      else segment_fixtures::check_close(states, expected, segment_fixtures::amplification(*full.model));
      swap_heads(parameters, pairs, options, "test");
      CHECK(are_restored());
      swap_heads(parameters, other_layer_pairs, options, "test");
      CHECK_FALSE(segment_fixtures::close(segment_fixtures::hidden_states(*full.model)[0], expected[0]));
      swap_heads(parameters, other_layer_pairs, options, "test");
      CHECK(are_restored());
    }
  }
}

TEST_CASE("swapping all heads of two layers, together with W^O and its bias, exchanges the outputs of the layers",
          "[rotation]") {
  for (const std::string& toml : stages()) {
    if (toml.find("mae") != std::string::npos)
      continue;  // the hidden layer of a gate belongs to no head and is not swapped
    INFO(toml);
    LayerStack stack("heads = 4\n" + toml);
    const at::Tensor x = layers::normal({2, 5, LayerStack::kWidth}, 9);
    const at::Tensor outputs_0 = stack.run_layer(AttentionKind::decoder_self, 0, x),
                     outputs_2 = stack.run_layer(AttentionKind::decoder_self, 2, x);
    std::vector<HeadPair> pairs;
    for (int64_t head = 0; head < 4; ++head) pairs.push_back(head_pair(0, head, 2, head));
    swap_heads(stack.parameters, pairs, {true, true}, "test");
    {
      c10::NoGradGuard no_gradient;
      at::Tensor a = stack.parameters.find("decoder.layers.0.self.output.bias")->master(),
                 b = stack.parameters.find("decoder.layers.2.self.output.bias")->master(), old_a = a.clone();
      a.copy_(b), b.copy_(old_a);
    }
    CHECK(at::equal(stack.run_layer(AttentionKind::decoder_self, 0, x), outputs_2));
    CHECK(at::equal(stack.run_layer(AttentionKind::decoder_self, 2, x), outputs_0));
  }
}

TEST_CASE("swap_heads() swaps the extra tensors of a parameter, such as moments, along with the parameter",
          "[rotation]") {
  LayerStack stack("heads = 4\n");
  std::map<std::string, at::Tensor> extra_tensors;
  for (auto& p : stack.parameters.all()) extra_tensors[p.name()] = p.master().detach().clone();
  swap_heads(stack.parameters, {head_pair(0, 1, 2, 3)}, {}, "test",
             [&](const nn::Parameter& p) { return std::vector<at::Tensor>{extra_tensors.at(p.name())}; });
  CHECK(stack.changed_parameters(extra_tensors).empty());
}

TEST_CASE("a swap of missing or repeated heads, or between layers of different shapes, is refused and changes nothing",
          "[rotation]") {
  LayerStack stack("heads = 4\n");
  auto check_refused = [&](const HeadPair& p, const SwapOptions& options = {}) {
    const auto before = stack.copy_parameters();
    CHECK(status_of([&] { swap_heads(stack.parameters, {p}, options, "test"); }) == 2);
    CHECK(stack.changed_parameters(before).empty());
  };
  check_refused(head_pair(0, 4, 1, 0));
  check_refused(head_pair(0, 0, 3, 0));
  check_refused(head_pair(0, 0, 0, 0));
  check_refused(head_pair(0, 0, 1, 0, AttentionKind::decoder_cross));
  CHECK(status_of([&] {
          swap_heads(stack.parameters, {head_pair(0, 0, 1, 0), head_pair(1, 0, 2, 0)}, {}, "test");
        }) == 2);

  // Swaps head 0 of two layers, the second of which has the additional options `second_layer`.
  auto swap_with = [&](const std::string& second_layer, const SwapOptions& options) {
    nn::ParameterList list(at::kCPU);
    const auto init = nn::Init::normal(1);
    std::vector<std::unique_ptr<attention::AttentionLayer>> two_layers;
    for (int64_t i = 0; i < 2; ++i) {
      const auto attention_options = layers::options_of("heads = 4\n" + (i == 0 ? "" : second_layer));
      two_layers.push_back(
          std::make_unique<attention::AttentionLayer>(list, attention_options,
                                                      make_layer_spec(attention_options, AttentionKind::decoder_self, i,
                                                                      12, prefix_of(AttentionKind::decoder_self, i)),
                                                      attention::AttentionLayer::Inits{init, init, init}));
    }
    list.initialise(1);
    swap_heads(list, {head_pair(0, 0, 1, 0)}, options, "test");
  };
  CHECK(status_of([&] { swap_with("head_size = 5\n", {}); }) == 2);
  CHECK(status_of([&] { swap_with("bias = false\n", {}); }) == 2);
  CHECK(status_of(
            [&] { swap_with("score = 'synthesizer-random'\n[attention.synthesizer-random]\nlength = 6\n", {}); }) == 2);
  CHECK(status_of([&] { swap_with("mixer = 'mixhead-a'\n", {false, true}); }) == 2);
  CHECK_NOTHROW(swap_with("mixer = 'mixhead-a'\n", {}));
  CHECK_NOTHROW(swap_with("", {true, true}));
}

TEST_CASE("layers differ in the options that a swap does not move, and not in sizes, numbers of heads and biases",
          "[rotation]") {
  const auto differing_keys = [](const std::string& a, const std::string& b) {
    const std::map<AttentionKind, int64_t> one_layer{{AttentionKind::decoder_self, 1}};
    LayerStack stack(a, one_layer), other_stack(b, one_layer);
    const auto layer_of = [](LayerStack& s) -> const attention::AttentionLayer& {
      return *s.layers.at(AttentionKind::decoder_self)[0];
    };
    return layer_of(stack).differing_head_options(layer_of(other_stack));
  };
  using Keys = std::vector<std::string>;
  const std::string heads = "heads = 3\n", rotary = heads + "transform = ['rotary']\n";
  for (const char* options : {"", "head_size = 4\n", "bias = false\n", "output_bias = 'false'\n", "value_size = 5\n",
                              "scale = 0.5\n", "key_value_heads = 1\n"})
    CHECK(differing_keys(heads, heads + options).empty());
  CHECK(differing_keys(heads, "heads = 6\nhead_size = 4\n").empty());
  CHECK(differing_keys(heads, "heads = 6\n") == Keys{"attention.scale"});  // 1/√2 instead of 1/√4
  for (const auto& [options, key] : std::map<std::string, std::string>{{"dropout = 0.5\n", "dropout"},
                                                                       {"mixer = 'mean'\n", "mixer"},
                                                                       {"normaliser = 'sigsoftmax'\n", "normaliser"},
                                                                       {"pairing = 'cross-head'\n", "pairing"},
                                                                       {"position_bias = 'alibi'\n", "position_bias"},
                                                                       {"scale = 0.25\n", "scale"},
                                                                       {"score = 'relative'\n", "score"},
                                                                       {"sink = 'zero'\n", "sink"},
                                                                       {"soft_cap = 20.0\n", "soft_cap"},
                                                                       {"transform = ['rotary']\n", "transform"},
                                                                       {"window = 3\n", "window"}}) {
    INFO(options);
    CHECK(differing_keys(heads, heads + options) == Keys{"attention." + key});
    CHECK(differing_keys(heads + options, heads) == Keys{"attention." + key});
  }
  CHECK(differing_keys(rotary, rotary + "window = 3\n[attention.rotary]\nbase = 500.0\nsize = 2\n") ==
        Keys{"attention.rotary.base", "attention.rotary.size", "attention.window"});
}

TEST_CASE("RotationSchedule swaps heads and swaps them back before the epochs of the published example", "[rotation]") {
  const RotationSchedule schedule{2, 4, 1, 20};
  std::vector<int64_t> swaps, undos;
  int64_t last_swap = 0;
  bool is_swapped = false;
  for (int64_t epoch = 1; epoch <= 40; ++epoch) {
    const auto next_action = schedule.action_before(epoch, last_swap, is_swapped);
    if (next_action == RotationSchedule::Action::swap) swaps.push_back(epoch), last_swap = epoch, is_swapped = true;
    if (next_action == RotationSchedule::Action::undo) undos.push_back(epoch), is_swapped = false;
  }
  CHECK(swaps == std::vector<int64_t>{2, 7, 12, 17});
  CHECK(undos == std::vector<int64_t>{6, 11, 16, 21});
  // After `end_epoch`, heads are swapped back without waiting for `num_swapped_epochs` epochs.
  CHECK(RotationSchedule{2, 10, 1, 4}.action_before(5, 2, true) == RotationSchedule::Action::undo);
  CHECK(RotationSchedule{2, 10, 1, 4}.action_before(4, 2, true) == RotationSchedule::Action::none);
}

TEST_CASE("the modes hard, soft, released and in-layer of head rotation select the pairs of a worked example",
          "[rotation]") {
  const LayerScores scores{{0.5, 0.1, 0.9, 0.4}, {0.3, 0.3, 0.7, 0.2}, {0.8, 0.6, 0.05, 1.0}};
  const AttentionKind kind = AttentionKind::decoder_self;
  CHECK(to_strings(pair_hard(kind, scores, 3)) ==
        std::vector<std::string>{"decoder.self:2.3-2.2", "decoder.self:0.2-0.1", "decoder.self:2.0-1.3"});
  // With three layers, the middle layer has no partner.
  CHECK(to_strings(pair_soft(kind, scores, 2, 0)) ==
        std::vector<std::string>{"decoder.self:0.1-2.2", "decoder.self:0.3-2.1"});
  CHECK(to_strings(pair_as_in_released_code(kind, scores, 1)) ==
        std::vector<std::string>{"decoder.self:0.1-2.1", "decoder.self:0.3-2.3", "decoder.self:0.0-2.0",
                                 "decoder.self:0.2-2.2"});
  CHECK(to_strings(pair_in_layer(kind, scores, 2)) ==
        std::vector<std::string>{"decoder.self:0.2-0.1", "decoder.self:0.0-0.3", "decoder.self:1.2-1.3",
                                 "decoder.self:1.1-1.0", "decoder.self:2.3-2.2", "decoder.self:2.0-2.1"});
  // t_max limits the pairs of layers to the t_max outermost pairs; 0: no limit.
  const LayerScores five_layers{{1, 2}, {4, 3}, {5, 6}, {8, 7}, {9, 10}};
  CHECK(to_strings(pair_soft(kind, five_layers, 1, 1)) == std::vector<std::string>{"decoder.self:0.0-4.0"});
  CHECK(to_strings(pair_soft(kind, five_layers, 1, 2)) ==
        std::vector<std::string>{"decoder.self:0.0-4.0", "decoder.self:1.1-3.1"});
  CHECK(to_strings(pair_soft(kind, five_layers, 1, 0)) == to_strings(pair_soft(kind, five_layers, 1, 2)));
  CHECK(largest_k(PairSelection::hard, {4, 4, 3}) == 5);
  CHECK(largest_k(PairSelection::random, {4, 4, 3}) == 5);
  CHECK(largest_k(PairSelection::soft, {4, 4, 3}) == 1);
  CHECK(largest_k(PairSelection::soft, {4}) == 0);
  CHECK(largest_k(PairSelection::released, {4, 4, 4}) == 1);
  CHECK(largest_k(PairSelection::released, {3, 3}) == 0);
  CHECK(largest_k(PairSelection::in_layer, {5, 4}) == 2);
  CHECK(largest_k(PairSelection::in_layer, {4}) == 2);
  CHECK(largest_k(PairSelection::in_layer, {4, 1}) == 0);
  CHECK(largest_k(PairSelection::in_layer, {}) == 0);
  CHECK(largest_k(PairSelection::hard, {}) == 0);
}

TEST_CASE("every mode of head rotation selects disjoint pairs, and the modes hard and soft select heads by rank",
          "[rotation]") {
  CHECK(rc::check([](uint64_t seed) {
    RandomSequence random(RandomStream(seed, "test"));
    LayerScores scores(1 + random.uniform_below(5));
    std::vector<int64_t> head_counts;
    std::vector<double> sorted_scores;
    for (auto& layer : scores) {
      layer.resize(1 + random.uniform_below(9));
      // Few distinct scores, so that ties occur.
      for (double& score : layer) score = static_cast<double>(random.uniform_below(20)), sorted_scores.push_back(score);
      head_counts.push_back(static_cast<int64_t>(layer.size()));
    }
    std::sort(sorted_scores.begin(), sorted_scores.end());
    auto score = [&](const Head& h) { return scores[static_cast<size_t>(h.layer)][static_cast<size_t>(h.head)]; };
    auto check_disjoint = [](const std::vector<HeadPair>& pairs) {
      std::set<Head> used;
      for (const HeadPair& p : pairs) used.insert(p.a), used.insert(p.b);
      RC_ASSERT(used.size() == 2 * pairs.size());
    };
    const int64_t num_pairs = largest_k(PairSelection::hard, head_counts);
    const auto hard_pairs = pair_hard(AttentionKind::decoder_self, scores, num_pairs);
    check_disjoint(hard_pairs);
    RC_ASSERT(static_cast<int64_t>(hard_pairs.size()) == num_pairs);
    for (size_t i = 0; i < hard_pairs.size(); ++i) {
      RC_ASSERT(score(hard_pairs[i].a) == sorted_scores[sorted_scores.size() - 1 - i]);
      RC_ASSERT(score(hard_pairs[i].b) == sorted_scores[i]);
    }
    const int64_t soft_k = largest_k(PairSelection::soft, head_counts);
    const auto soft_pairs = pair_soft(AttentionKind::decoder_self, scores, soft_k, 0);
    const auto num_layer_pairs = static_cast<int64_t>(scores.size()) / 2;
    const int64_t t_max = num_layer_pairs > 0
                              ? 1 + static_cast<int64_t>(random.uniform_below(static_cast<uint64_t>(num_layer_pairs)))
                              : 0;
    const auto outermost_pairs = pair_soft(AttentionKind::decoder_self, scores, soft_k, t_max);
    RC_ASSERT(static_cast<int64_t>(outermost_pairs.size()) == t_max * soft_k);
    RC_ASSERT(to_strings(outermost_pairs) == to_strings({soft_pairs.begin(), soft_pairs.begin() + t_max * soft_k}));
    check_disjoint(soft_pairs);
    for (const HeadPair& p : soft_pairs) {
      RC_ASSERT(p.a.layer + p.b.layer == static_cast<int64_t>(scores.size()) - 1);
      for (const Head& head : {p.a, p.b}) {
        const auto& layer = scores[static_cast<size_t>(head.layer)];
        RC_ASSERT(std::count_if(layer.begin(), layer.end(), [&](double s) { return s < score(head); }) < soft_k);
      }
    }
    const int64_t in_layer_k = largest_k(PairSelection::in_layer, head_counts);
    const auto in_layer_pairs = pair_in_layer(AttentionKind::decoder_self, scores, in_layer_k);
    check_disjoint(in_layer_pairs);
    RC_ASSERT(static_cast<int64_t>(in_layer_pairs.size()) == in_layer_k * static_cast<int64_t>(scores.size()));
    for (const HeadPair& p : in_layer_pairs) {
      RC_ASSERT(p.a.layer == p.b.layer);
      const auto& layer = scores[static_cast<size_t>(p.a.layer)];
      RC_ASSERT(std::count_if(layer.begin(), layer.end(), [&](double s) { return s > score(p.a); }) < in_layer_k);
      RC_ASSERT(std::count_if(layer.begin(), layer.end(), [&](double s) { return s < score(p.b); }) < in_layer_k);
    }
    const int64_t released_k = largest_k(PairSelection::released, head_counts);
    check_disjoint(pair_as_in_released_code(AttentionKind::decoder_self, scores, released_k));
    check_disjoint(pair_random(AttentionKind::decoder_self, head_counts, num_pairs, random));
  }));
  RandomSequence random_sequence(RandomStream(5, "x"), 1), same_random(RandomStream(5, "x"), 1),
      other_random(RandomStream(5, "x"), 2);
  const std::vector<int64_t> head_counts{8, 8, 8};
  const auto drawn_pairs = to_strings(pair_random(AttentionKind::decoder_self, head_counts, 6, random_sequence));
  CHECK(to_strings(pair_random(AttentionKind::decoder_self, head_counts, 6, same_random)) == drawn_pairs);
  CHECK(to_strings(pair_random(AttentionKind::decoder_self, head_counts, 6, other_random)) != drawn_pairs);
}
