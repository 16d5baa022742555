// Conformance of every registered stage in every kind of attention that it supports (Capabilities): outputs are finite
// and independent of the other rows of the batch and of padding, causal outputs are independent of later tokens,
// incremental decoding equals one forward pass over all tokens, and all gradients of parameters are finite. The cases
// are generated from the registries.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <utility>

#include "base/text.h"
#include "fixtures/combiners.h"
#include "fixtures/covering_array.h"
#include "fixtures/layers.h"
#include "fixtures/pick.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using layers::Layer;
using layers::LayerRounding;
using layers::normal;
using layers::rounding_of;

namespace {

// Sizes of a layer and its inputs. `keys`: number of keys with a memory and in cross-attention, more than `queries`.
struct Sizes {
  int64_t width = 12, rows = 2, queries = 6, keys = 9, heads = 4, head_size = 6;
  int64_t num_real = 4;  // real positions of the padded row; fewer than `queries`
  uint64_t seed = 1;
};

struct Combination {
  std::string transforms;  // names in attention.transform, joined by spaces
  std::string pairing, score, position_bias, normaliser, mixer;
  std::string combiners;        // names in attention.combiner, joined by spaces
  std::string logit_options{};  // further lines of [attention], which each kind of attention supports
  Sizes sizes{};
  std::vector<std::string> transform_names() const {
    return transforms.empty() ? std::vector<std::string>() : split(transforms, ' ');
  }
  std::string toml() const {
    const std::string names = transforms.empty() ? "" : str('\'', join(transform_names(), "', '"), '\'');
    return str("heads = ", sizes.heads, "\nhead_size = ", sizes.head_size, "\ntransform = [", names, "]\npairing = '",
               pairing, "'\nscore = '", score, "'\nposition_bias = '", position_bias, "'\nnormaliser = '", normaliser,
               "'\nmixer = '", mixer, "'\n", fixtures::combiner_line(split(combiners, ' ')), logit_options);
  }
  std::string name() const {
    return str('[', transforms, "] ", pairing, " ", score, " ", position_bias, " ", normaliser, " ", mixer, " ",
               combiners, " ", logit_options);
  }
};

// Returns the lists of transforms in the combinations, as in Combination::transforms: none, each registered transform,
// and all transforms in both orders.
std::vector<std::string> transform_lists() {
  std::vector<std::string> names = transforms().names();
  std::vector<std::string> lists{""};
  lists.insert(lists.end(), names.begin(), names.end());
  lists.push_back(join(names, " "));
  std::reverse(names.begin(), names.end());
  lists.push_back(join(names, " "));
  return lists;
}

// Returns lines of [attention] with options of the logits.
std::vector<std::string> logit_option_lines() {
  return {"", "soft_cap = 1.5\n", "sink = 'learned'\n", "sink = 'zero'\nsoft_cap = 2.0\n"};
}

// Returns combinations of stages and options of the logits in which every pair of stages of two types, and of a stage
// and an option, occurs; all combinations if the environment variable MH_FULL is set.
std::vector<Combination> combinations() {
  const auto transform = transform_lists(), pairing = pairings().names(), score = scores().names(),
             position_bias = position_biases().names(), normaliser = normalisers().names(), mixer = mixers().names(),
             combiner = combiners().names(), logit_options = logit_option_lines();
  std::vector<Combination> all;
  for (const fixtures::Combination& c :
       fixtures::covering_array({transform.size(), pairing.size(), score.size(), normaliser.size(), mixer.size(),
                                 combiner.size(), position_bias.size(), logit_options.size()}))
    all.push_back({transform[c[0]], pairing[c[1]], score[c[2]], position_bias[c[6]], normaliser[c[3]], mixer[c[4]],
                   combiner[c[5]], logit_options[c[7]]});
  return all;
}

template <class S>
Capabilities capabilities_of(const Registry<StageFactory<S>>& registry, const std::string& name,
                             const AttentionOptions& options, const LayerSpec& shape) {
  auto it = options.stages.find(name);
  return registry.make(name, "test")
      ->make(it == options.stages.end() ? nullptr : it->second.get(), shape)
      ->capabilities();
}

// Returns the capabilities that all stages share, without building a layer.
Capabilities shared_capabilities(const AttentionOptions& o, const LayerSpec& shape) {
  Capabilities shared;
  std::vector<Capabilities> all{
      capabilities_of(pairings(), o.pairing, o, shape), capabilities_of(scores(), o.score, o, shape),
      capabilities_of(position_biases(), o.position_bias, o, shape),
      capabilities_of(normalisers(), o.normaliser, o, shape), capabilities_of(mixers(), o.mixer, o, shape)};
  for (const std::string& name : o.combiner) all.push_back(capabilities_of(combiners(), name, o, shape));
  for (const std::string& name : o.transform) all.push_back(capabilities_of(transforms(), name, o, shape));
  for (const Capabilities& p : all)
    shared = {shared.supports_self_attention && p.supports_self_attention,
              shared.supports_causal_attention && p.supports_causal_attention,
              shared.supports_cross_attention && p.supports_cross_attention,
              shared.supports_memory && p.supports_memory,
              shared.supports_incremental_decoding && p.supports_incremental_decoding};
  return shared;
}

// Returns whether the score has the keys or the absolute positions that the transforms change, and whether sinks have
// the heads of the score.
bool stages_suit_each_other(const AttentionOptions& options, const LayerSpec& shape) {
  const Stages stages = make_stages(options, shape);
  if (options.sink != Sink::none && stages.mixer->mixer_input() == MixerInput::logits) return false;
  return options.transform.empty() ||
         (stages.score->uses_keys() &&
          !(stages.score->has_relative_positions() &&
            std::any_of(stages.transforms.begin(), stages.transforms.end(),
                        [](const auto& transform) { return transform->adds_positions(); })));
}

// Builds a layer of the kind. If a stage does not support the kind, or the stages do not suit each other, checks
// instead that the constructor of the layer throws, and returns null.
std::unique_ptr<Layer> build(const Combination& c, AttentionKind kind) {
  const AttentionOptions options = layers::options_of(c.toml(), kind);
  const LayerSpec shape = make_layer_spec(options, kind, 0, c.sizes.width, "x");
  const Capabilities capabilities = shared_capabilities(options, shape);
  const bool supports_kind = kind == AttentionKind::decoder_cross ? capabilities.supports_cross_attention
                             : kind == AttentionKind::decoder_self
                                 ? capabilities.supports_self_attention && capabilities.supports_causal_attention
                                 : capabilities.supports_self_attention;
  if (!supports_kind || !stages_suit_each_other(options, shape)) {
    CHECK_THROWS_AS(Layer(c.toml(), c.sizes.width, 1, kind), Error);
    return nullptr;
  }
  auto layer = std::make_unique<Layer>(c.toml(), c.sizes.width, c.sizes.seed, kind);
  layer->perturb_parameters(c.sizes.seed + 6);
  return layer;
}

// Checks that outputs and gradients are finite, that the output of each batch row equals the output of a batch of this
// row alone, and that the composed path has the same output.
void check_rows(Layer& l, const at::Tensor& x, const at::Tensor& m, const Mask& mask) {
  {
    c10::NoGradGuard no_gradient;
    const LayerRounding rounding = rounding_of(l, x, m, mask);
    const at::Tensor batch_output = l(x, m, mask);
    CHECK(batch_output.isfinite().all().item<bool>());
    for (int64_t b = 0; b < x.size(0); ++b) {
      Mask row_mask = mask;
      if (mask.key_lengths.defined()) row_mask.key_lengths = mask.key_lengths.narrow(0, b, 1);
      if (mask.query_lengths.defined()) row_mask.query_lengths = mask.query_lengths.narrow(0, b, 1);
      const at::Tensor row = x.narrow(0, b, 1);
      CHECK(rounding.agree(l(row, m.is_same(x) ? row : m.narrow(0, b, 1), row_mask), batch_output.narrow(0, b, 1)));
    }
    l.layer->set_path(Path::composed);
    CHECK(rounding.agree(l(x, m, mask), batch_output));
    l.layer->set_path(Path::automatic);
  }
  ForwardContext forward_context;
  forward_context.training = true;
  l.parameters.zero_gradients();
  const at::Tensor y = l(x, m, mask, forward_context);
  CHECK(y.isfinite().all().item<bool>());
  if (y.requires_grad()) (y * normal(y.sizes().vec(), 5)).sum().backward();
  for (auto& p : l.parameters.all())
    if (const at::Tensor& g = p.master().grad(); g.defined() && !g.isfinite().all().item<bool>())
      FAIL_CHECK("the gradient of " << p.name() << " is not finite");
}

// Checks that changes of the inputs from position `first` on change the outputs, but not the outputs before `first`.
void check_causality(Layer& l, const at::Tensor& x, const at::Tensor& m, const Mask& mask, int64_t first) {
  c10::NoGradGuard no_gradient;
  const int64_t num_past = m.size(1) - x.size(1);
  at::Tensor changed_inputs = m.clone();
  changed_inputs.narrow(1, num_past + first, x.size(1) - first)
      .add_(normal({x.size(0), x.size(1) - first, x.size(2)}, 11));
  const at::Tensor queries = m.is_same(x) ? changed_inputs : changed_inputs.narrow(1, num_past, x.size(1));
  const at::Tensor a = l(x, m, mask), b = l(queries, changed_inputs, mask);
  const LayerRounding rounding = rounding_of(l, x, m, mask);
  CHECK(rounding.agree(a.narrow(1, 0, first), b.narrow(1, 0, first)));
  CHECK(!rounding.agree(a, b));
}

Mask padding_mask(std::vector<int64_t> lengths, bool pads_queries) {
  Mask mask;
  mask.key_lengths = at::tensor(lengths, at::kLong);
  if (pads_queries) mask.query_lengths = mask.key_lengths;
  return mask;
}

// Returns the number of queries of the decoding step after `num_past` positions: alternately one and two.
int64_t step_size(int64_t num_past, int64_t queries) {
  return num_past % 3 == 0 ? 1 : std::min<int64_t>(2, queries - num_past);
}

void check_causal_self(const Combination& c) {
  const Sizes& sizes = c.sizes;
  auto l = build(c, AttentionKind::decoder_self);
  if (l == nullptr) return;
  const at::Tensor x = normal({sizes.rows, sizes.queries, sizes.width}, sizes.seed);
  Mask mask;
  mask.causal = true;
  check_rows(*l, x, x, mask);
  check_causality(*l, x, x, mask, sizes.queries / 2);
  const Capabilities capabilities = l->layer->capabilities();
  if (capabilities.supports_memory) {
    const at::Tensor m = nn::cat({normal({sizes.rows, sizes.keys - sizes.queries, sizes.width}, sizes.seed + 1), x}, 1);
    mask.offset = sizes.keys - sizes.queries;
    check_rows(*l, x, m, mask);
    check_causality(*l, x, m, mask, sizes.queries / 2);
  }
  if (!capabilities.supports_incremental_decoding) return;
  c10::NoGradGuard no_gradient;
  mask.offset = 0;
  const at::Tensor full_output = (*l)(x, x, mask);
  const LayerRounding rounding = rounding_of(*l, x, x, mask);
  Cache cache;
  while (cache.length() < sizes.queries) {
    const at::Tensor step_inputs = x.narrow(1, cache.length(), step_size(cache.length(), sizes.queries));
    mask.offset = mask.first_position = cache.length();
    CHECK(rounding.agree(l->layer->forward(step_inputs, step_inputs, mask, {}, &cache),
                         full_output.narrow(1, mask.offset, step_inputs.size(1))));
  }
}

void check_bidirectional_self(const Combination& c) {
  const Sizes& sizes = c.sizes;
  auto l = build(c, AttentionKind::encoder_self);
  if (l == nullptr) return;
  const at::Tensor x = normal({sizes.rows, sizes.queries, sizes.width}, sizes.seed);
  check_rows(*l, x, x, {});
  const Mask mask = padding_mask({sizes.queries, sizes.num_real}, true);
  check_rows(*l, x, x, mask);
  // The contents of padding do not change the outputs at real positions.
  c10::NoGradGuard no_gradient;
  at::Tensor changed_inputs = x.clone();
  changed_inputs[1].narrow(0, sizes.num_real, sizes.queries - sizes.num_real).add_(3);
  const at::Tensor a = (*l)(x, x, mask), b = (*l)(changed_inputs, changed_inputs, mask);
  const LayerRounding rounding = rounding_of(*l, x, x, mask);
  CHECK(rounding.agree(a[0], b[0]));
  CHECK(rounding.agree(a[1].narrow(0, 0, sizes.num_real), b[1].narrow(0, 0, sizes.num_real)));
}

void check_cross(const Combination& c) {
  const Sizes& sizes = c.sizes;
  auto l = build(c, AttentionKind::decoder_cross);
  if (l == nullptr) return;
  const at::Tensor x = normal({sizes.rows, sizes.queries, sizes.width}, sizes.seed),
                   m = normal({sizes.rows, sizes.keys, sizes.width}, sizes.seed + 1);
  check_rows(*l, x, m, {});
  const Mask mask = padding_mask({sizes.num_real, sizes.keys}, false);
  check_rows(*l, x, m, mask);
  c10::NoGradGuard no_gradient;
  const at::Tensor full_output = (*l)(x, m, mask);
  const LayerRounding rounding = rounding_of(*l, x, m, mask);
  at::Tensor changed_inputs = m.clone();
  changed_inputs[0].narrow(0, sizes.num_real, sizes.keys - sizes.num_real).add_(3);
  CHECK(rounding.agree((*l)(x, changed_inputs, mask), full_output));
  if (!l->layer->capabilities().supports_incremental_decoding) return;
  Cache cache;
  for (int64_t first = 0, size; first < sizes.queries; first += size) {
    size = step_size(first, sizes.queries);
    CHECK(rounding.agree(l->layer->forward(x.narrow(1, first, size), m, mask, {}, &cache),
                         full_output.narrow(1, first, size)));
  }
}

}  // namespace

TEST_CASE("pairwise combinations of all stages pass the conformance checks in each supported kind of attention",
          "[combinations]") {
  for (const Combination& c : combinations()) {
    INFO(c.name());
    check_causal_self(c);
    check_bidirectional_self(c);
    check_cross(c);
  }
}

TEST_CASE("every ordered pair of combiners passes the conformance checks in each supported kind of attention",
          "[combinations]") {
  for (const std::vector<std::string>& names : fixtures::combiner_pairs()) {
    const Combination c{"", "own", "dot-product", "none", "softmax", "none", join(names, " ")};
    INFO(c.name());
    check_causal_self(c);
    check_bidirectional_self(c);
    check_cross(c);
  }
}

TEST_CASE("every pair of two stages occurs in one of the pairwise combinations", "[combinations]") {
  std::set<std::pair<std::string, std::string>> covered_pairs;
  for (const Combination& c : combinations()) {
    const std::string stages[] = {"transform " + c.transforms,  "pairing " + c.pairing,
                                  "score " + c.score,           "position bias " + c.position_bias,
                                  "normaliser " + c.normaliser, "mixer " + c.mixer,
                                  "combiner " + c.combiners,    "logit options " + c.logit_options};
    for (const std::string& a : stages)
      for (const std::string& b : stages) covered_pairs.emplace(a, b);
  }
  const size_t counts[] = {transform_lists().size(),         pairings().names().size(),    scores().names().size(),
                           position_biases().names().size(), normalisers().names().size(), mixers().names().size(),
                           combiners().names().size(),       logit_option_lines().size()};
  size_t expected = 0;
  for (const size_t& a : counts)
    for (const size_t& b : counts) expected += &a == &b ? a : a * b;
  CHECK(covered_pairs.size() == expected);
}

TEST_CASE("random combinations of stages and shapes pass the conformance checks in each supported kind of attention",
          "[combinations]") {
  CHECK(rc::check([&] {
    const auto random_name = [](const auto& registry) { return *rc::gen::elementOf(registry.names()); };
    Combination c{*rc::gen::elementOf(transform_lists()),
                  random_name(pairings()),
                  random_name(scores()),
                  random_name(position_biases()),
                  random_name(normalisers()),
                  random_name(mixers()),
                  random_name(combiners()),
                  *rc::gen::elementOf(logit_option_lines())};
    c.sizes.width = 2 * pick(2, 9);
    c.sizes.queries = pick(2, 9);
    c.sizes.keys = c.sizes.queries + pick(1, 9);
    c.sizes.heads = 2 * pick(2, 4);
    // A rotation needs an even head size. A norm of very few elements may be close to 0, which amplifies rounding
    // errors.
    c.sizes.head_size = c.transforms.empty() ? pick(1, 9) : 2 * pick(2, 5);
    c.sizes.num_real = pick(1, c.sizes.queries - 1);
    c.sizes.seed = static_cast<uint64_t>(pick(1, 1000000));
    INFO(c.name());
    check_causal_self(c);
    check_bidirectional_self(c);
    check_cross(c);
  }));
}
