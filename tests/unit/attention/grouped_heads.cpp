// Grouped-query attention: equality with a layer whose key/value heads are repeated for each query head of a group, for
// every mixer, combiner and pairing; decoding with a cache that stores key/value heads; pruning of heads.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/text.h"
#include "fixtures/layers.h"

using namespace mh;
using namespace mh::attention;
using layers::causal_mask;
using layers::Layer;
using layers::normal;

namespace {

// Returns the values (hkv size, …) of a projection to key/value heads with one copy for each of the `heads` query
// heads.
at::Tensor repeat_groups(const at::Tensor& x, int64_t kv_heads, const std::vector<int64_t>& kv_head_of) {
  return x.unflatten(0, {kv_heads, x.size(0) / kv_heads})
      .index_select(0, at::tensor(kv_head_of, at::kLong))
      .flatten(0, 1);
}

// Copies the parameters of a grouped layer to a layer without groups, with repeated key/value heads.
void copy_repeated(Layer& grouped, Layer& plain) {
  c10::NoGradGuard no_gradient;
  const LayerSpec& s = grouped.layer->layer_spec();
  for (auto& p : plain.parameters.all()) {
    const at::Tensor source = grouped.parameters.find(p.name())->master();
    p.master().copy_(source.sizes() == p.master().sizes() ? source : repeat_groups(source, s.kv_heads, s.kv_head_of));
  }
}

std::string lines_of(int64_t heads, int64_t size, const std::string& more) {
  return str("heads = ", heads, "\nhead_size = ", size, "\n", more, "\n");
}

}  // namespace

TEST_CASE("a grouped layer equals a layer with repeated key/value heads, in outputs and gradients, on every path",
          "[attention]") {
  const std::vector<std::string> stage_lines{"",
                                             "mixer = 'mixhead-a'",
                                             "mixer = 'mixhead-b'",
                                             "mixer = 'talking-heads'",
                                             "combiner = 'gates'",
                                             "normaliser = 'sigsoftmax'",
                                             "window = 3",
                                             "scale = 0.7",
                                             "transform = ['qk-norm', 'rotary']\nrotary.size = 4",
                                             "transform = ['qk-norm']\nqk-norm.scope = 'joint'",
                                             "pairing = 'cross-head'"};
  for (const std::string& stage : stage_lines)
    for (const int64_t size : {16, 5})
      for (const int64_t kv_heads : {1, 2, 3}) {
        INFO(stage << ", head size " << size << ", key/value heads " << kv_heads);
        Layer grouped(lines_of(6, size, str("key_value_heads = ", kv_heads, "\n", stage)), 12, 3),
            plain(lines_of(6, size, stage), 12, 4);
        grouped.perturb_parameters(5);
        copy_repeated(grouped, plain);
        const at::Tensor x = normal({2, 7, 12}, 6);
        const auto run = [&](Layer& l) {
          return layers::results_of(
              l, x, [&](const at::Tensor& input) { return l(input, input, causal_mask()); }, true);
        };
        const layers::LayerRounding rounding = layers::rounding_of(plain, x, x, causal_mask());
        for (const Path path : {Path::automatic, Path::composed}) {
          grouped.layer->set_path(path), plain.layer->set_path(path);
          const layers::Results a = run(grouped), b = run(plain);
          CHECK(rounding.agree(a[0], b[0]));
          const double largest_entry = layers::largest_gradient(plain, {});
          CHECK(rounding.gradients_agree(a[1], b[1], std::max(largest_entry, numbers::max_abs(b[1]))));
          // The gradient of a key/value head is the sum of the gradients of its copies.
          const LayerSpec& s = grouped.layer->layer_spec();
          for (const auto& p : grouped.parameters.all()) {
            const at::Tensor expected = plain.parameters.find(p.name())->master().grad();
            if (!expected.defined()) continue;
            INFO(p.name());
            at::Tensor sum = expected;
            if (expected.sizes() != p.master().sizes()) {
              sum = at::zeros_like(p.master().unflatten(0, {s.kv_heads, -1}));
              sum.index_add_(0, at::tensor(s.kv_head_of, at::kLong), expected.unflatten(0, {s.heads, -1}));
              sum = sum.flatten(0, 1);
            }
            CHECK(rounding.gradients_agree(p.master().grad(), sum, 6 * largest_entry));
          }
        }
      }
}

TEST_CASE("as many key/value heads as heads give the same bits as a layer without groups", "[attention]") {
  Layer grouped(lines_of(4, 16, "key_value_heads = 4"), 12, 3), plain(lines_of(4, 16, ""), 12, 3);
  CHECK(!grouped.layer->layer_spec().is_grouped());
  const at::Tensor x = normal({2, 7, 12}, 6);
  CHECK(at::equal(grouped(x, x, causal_mask()), plain(x, x, causal_mask())));
}

TEST_CASE("a grouped layer decodes token by token, and its cache has one key and value for each key/value head",
          "[attention]") {
  c10::NoGradGuard no_gradient;
  for (const std::string& stage :
       {std::string(), std::string("mixer = 'mixhead-b'"), std::string("window = 3"), std::string("head_size = 5")}) {
    INFO(stage);
    const bool has_size = stage.find("head_size") != std::string::npos;
    Layer l(
        has_size ? "heads = 6\nkey_value_heads = 2\nhead_size = 5\n" : lines_of(6, 16, "key_value_heads = 2\n" + stage),
        12, 3);
    l.perturb_parameters(5);
    const at::Tensor x = normal({3, 8, 12}, 6), expected = l(x, x, causal_mask());
    const layers::LayerRounding rounding = layers::rounding_of(l, x, x, causal_mask());
    Cache cache;
    for (int64_t t = 0; t < x.size(1); ++t) {
      Mask mask = causal_mask();
      mask.offset = mask.first_position = t;
      const at::Tensor token = x.narrow(1, t, 1);
      CHECK(rounding.agree(l.layer->forward(token, token, mask, {}, &cache), expected.narrow(1, t, 1)));
    }
    CHECK(cache.keys_and_values().first.size(1) == 2);
    CHECK(cache.keys_and_values().second.size(1) == 2);
  }
}

TEST_CASE("pruning a query head keeps its key/value head until the last head of the group is pruned", "[attention]") {
  const auto groups_after = [](const std::vector<int64_t>& heads) {
    Layer l(lines_of(6, 4, "key_value_heads = 2"), 12, 3);
    std::set<int64_t> kv_heads;
    for (const int64_t head : heads) kv_heads.insert(l.layer->layer_spec().kv_head_of[static_cast<size_t>(head)]);
    const AttentionOptions o =
        l.layer->options_after_pruning({heads, heads, heads, {kv_heads.begin(), kv_heads.end()}});
    return std::tuple(o.heads, o.kv_heads, o.group_sizes);
  };
  using Groups = std::tuple<int64_t, int64_t, std::vector<int64_t>>;
  CHECK(groups_after({0, 2, 3, 4, 5}) == Groups{5, 2, {2, 3}});
  CHECK(groups_after({3, 4, 5}) == Groups{3, 1, {}});
  CHECK(groups_after({0, 5}) == Groups{2, 2, {}});
}

TEST_CASE("key/value heads that do not fit the query heads are refused", "[attention]") {
  using Catch::Contains;
  CHECK_THROWS_WITH(Layer(lines_of(6, 4, "key_value_heads = 4"), 12), Contains("a divisor of attention.heads, 6"));
  CHECK_THROWS_WITH(Layer(lines_of(6, 4, "key_value_heads = 2\ngroup_sizes = [3, 2]"), 12), Contains("with the sum 6"));
  CHECK_THROWS_WITH(Layer(lines_of(6, 4, "group_sizes = [3, 3]"), 12), Contains("attention.key_value_heads is 0"));
  CHECK_THROWS_WITH(Layer(lines_of(6, 4, "key_value_heads = 2\nvalue_heads = 3\nmixer = 'talking-heads'"), 12),
                    Contains("attention.value_heads"));
  CHECK_THROWS_WITH(Layer(lines_of(6, 4, "key_value_heads = 2\nscore = 'relative'"), 12),
                    Contains("since attention.score is"));
}
