// Heads that are cut: what is left computes what the whole layer, or model, does with those heads masked, whatever its
// stages, wherever it stands; and what cannot be cut is refused.
#include "analysis/prune.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "analysis/swap.h"
#include "fixtures/folder.h"
#include "fixtures/layers.h"
#include "fixtures/segments.h"
#include "fixtures/status.h"
#include "model/load.h"
#include "text/tokenizer.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using analysis::Kept;
using analysis::Side;
using layers::normal;
using passes::check_same;
using passes::close;
using passes::Model;
using passes::run;
using passes::segments;

namespace {

using Heads = std::vector<int64_t>;

Heads all_of(int64_t heads) {
  Heads all(static_cast<size_t>(heads));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// 1 for the heads that stay, else 0.
at::Tensor mask_of(const Heads& kept, int64_t heads) {
  at::Tensor mask = at::zeros({heads});
  for (const int64_t head : kept) mask[head] = 1;
  return mask;
}

void mask(AttentionLayer& layer, const KeptHeads& kept) {
  HeadScales scales;
  const LayerSpec& s = layer.layer_spec();
  if (layer.has_side(HeadSide::score)) scales.score = mask_of(kept.score, s.heads);
  scales.value = mask_of(kept.value, s.value_heads);
  scales.output = mask_of(kept.output, s.output_heads);
  set_head_scales(layer, scales);
}

// A layer by itself, under a name of a model's.
struct Whole {
  nn::ParameterList parameters{at::kCPU};
  std::unique_ptr<AttentionLayer> layer;

  Whole(const AttentionOptions& options, AttentionKind kind, int64_t width) {
    const auto init = nn::Init::normal(0.5);
    layer = std::make_unique<AttentionLayer>(parameters, options,
                                             make_layer_spec(options, kind, 0, width, analysis::prefix_of(kind, 0)),
                                             AttentionLayer::Inits{init, init, init});
  }
  void shake(uint64_t seed) {
    c10::NoGradGuard no_gradient;
    parameters.initialise(seed);
    for (auto& p : parameters.all())
      if (p.traits().trainable) p.master().add_(normal(p.master().sizes().vec(), seed++), 0.3);
  }
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& m, const Mask& mask, Cache* cache = nullptr) {
    return layer->forward(x, m, mask, {}, cache);
  }
};

std::unique_ptr<Whole> cut_of(Whole& whole, const KeptHeads& kept) {
  const LayerSpec& s = whole.layer->layer_spec();
  auto left = std::make_unique<Whole>(whole.layer->options_after_pruning(kept), s.kind, s.width);
  analysis::copy_kept(whole.parameters, {{s.kind, {{0, kept}}}}, left->parameters);
  return left;
}

struct Sizes {
  int64_t width = 12, heads = 4, head_size = 5, value_size = 3, queries = 6, keys = 9, rows = 2;
  uint64_t seed = 1;
};

// `whole`, its heads masked, and `left` give the same in every place that the stages declare.
void check_same(Whole& whole, Whole& left, const Sizes& z) {
  c10::NoGradGuard no_gradient;
  const AttentionKind kind = whole.layer->layer_spec().kind;
  const Capabilities places = whole.layer->capabilities();
  const at::Tensor x = normal({z.rows, z.queries, z.width}, z.seed), m = normal({z.rows, z.keys, z.width}, z.seed + 1);
  Mask lengths;
  lengths.key_lengths = at::tensor({z.queries, z.queries - 1}, at::kLong).narrow(0, 0, z.rows);
  if (kind == AttentionKind::decoder_cross) {
    CHECK(close(left(x, m, {}), whole(x, m, {})));
    CHECK(close(left(x, m, lengths), whole(x, m, lengths)));
  } else if (kind == AttentionKind::encoder_self) {
    lengths.query_lengths = lengths.key_lengths;
    CHECK(close(left(x, x, {}), whole(x, x, {})));
    CHECK(close(left(x, x, lengths), whole(x, x, lengths)));
  } else {
    Mask mask;
    mask.causal = true;
    CHECK(close(left(x, x, mask), whole(x, x, mask)));
    mask.offset = z.keys;
    const at::Tensor behind = at::cat({m, x}, 1);
    if (places.memory) CHECK(close(left(x, behind, mask), whole(x, behind, mask)));
  }
  if (!places.incremental || kind == AttentionKind::encoder_self) return;
  Cache one, other;
  for (int64_t at = 0, size = 1; at < z.queries; at += size) {
    size = std::min<int64_t>(1 + at % 2, z.queries - at);
    const at::Tensor part = x.narrow(1, at, size);
    Mask mask;
    mask.causal = kind == AttentionKind::decoder_self;
    if (mask.causal) mask.offset = at;
    const at::Tensor& keys = mask.causal ? part : m;
    CHECK(close(left(part, keys, mask, &one), whole(part, keys, mask, &other)));
    CHECK(one.length() == other.length());
  }
}

// What is left can be trained.
void check_trains(Whole& left, const Sizes& z) {
  const at::Tensor x = normal({z.rows, z.queries, z.width}, z.seed);
  Mask mask;
  mask.causal = left.layer->layer_spec().kind == AttentionKind::decoder_self;
  ForwardContext step;
  step.training = true;
  const at::Tensor y = left.layer->forward(x, x, mask, step);
  REQUIRE(y.isfinite().all().item<bool>());
  if (y.requires_grad()) y.sum().backward();
}

struct Combination {
  std::string pairing, score, normaliser, mixer, combiner, extra;
  bool pairs() const { return mixer == "differential" || combiner == "pair-norm"; }
  std::string name() const { return str(pairing, " ", score, " ", normaliser, " ", mixer, " ", combiner, " ", extra); }
  AttentionOptions options(const Sizes& z, AttentionKind kind) const {
    return layers::options_of(str("heads = ", z.heads, "\nhead_size = ", z.head_size, "\nvalue_size = ", z.value_size,
                                  "\npairing = '", pairing, "'\nscore = '", score, "'\nnormaliser = '", normaliser,
                                  "'\nmixer = '", mixer, "'\ncombiner = '", combiner, "'\n", extra),
                              kind);
  }
};

std::vector<Combination> combinations() {
  std::vector<Combination> all;
  // Options that say something of heads, or of what happens between them.
  const std::map<std::string, std::vector<std::string>> extras = {
      {"mixhead-a", {"", "mixhead-a.on = 'logits'\n", "mixhead-a.scope = 'released'\n"}},
      {"mixhead-b", {"", "mixhead-b.on = 'logits'\n"}},
      {"talking-heads",
       {"", "talking-heads.pre = false\n", "talking-heads.post = false\n", "talking-heads.inside = 6\n"}},
      {"mae", {"", "mae.drop = 2\n", "mae.gate = 'uniform'\n"}},
      {"mixture-of-heads", {"", "mixture-of-heads.shared = 0\n"}},
      {"head-weights", {"", "head-weights.weights = [1, -0.5, 2, 0.25]\n"}},
      {"gates", {"gates.input = true\n"}},
      {"synthesizer-dense", {"", "synthesizer-dense.per_head = true\n"}}};
  auto of = [&](const std::string& name) {
    auto it = extras.find(name);
    return it == extras.end() ? std::vector<std::string>{""} : it->second;
  };
  for (const auto& pairing : pairings().names())
    for (const auto& score : scores().names())
      for (const auto& normaliser : normalisers().names())
        for (const auto& mixer : mixers().names())
          for (const auto& combiner : combiners().names())
            for (const auto& a : of(score))
              for (const auto& b : of(mixer))
                for (const auto& c : of(combiner))
                  all.push_back({pairing, score, normaliser, mixer, combiner, a + b + c});
  return all;
}

// Some of `heads`; in pairs where they go by pairs.
Heads some_of(int64_t heads, bool pairs, bool none) {
  const int64_t step = pairs ? 2 : 1, count = heads / step;
  const auto bits = none ? 0 : *rc::gen::inRange<int64_t>(1, int64_t{1} << count);
  Heads kept;
  for (int64_t i = 0; i < heads; ++i)
    if ((bits >> (i / step) & 1) != 0) kept.push_back(i);
  return kept;
}

// What the model gives with the other heads masked.
std::vector<at::Tensor> masked_run(model::LanguageModel& model, const Kept& kept, bool decodes = true) {
  for (AttentionLayer* layer : model.attention_layers())
    if (auto of_kind = kept.find(layer->layer_spec().kind); of_kind != kept.end())
      if (auto it = of_kind->second.find(layer->layer_spec().layer); it != of_kind->second.end())
        mask(*layer, it->second);
  auto all = run(model, decodes);
  for (AttentionLayer* layer : model.attention_layers()) set_head_scales(*layer, {});
  return all;
}

analysis::HeadSet heads(std::initializer_list<analysis::Head> cut) { return {{AttentionKind::decoder_self, cut}}; }

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a cut layer is the whole one with those heads masked, whatever its stages", "[cut]") {
  const std::vector<Combination> all = combinations();
  int drawn = 0, built = 0;
  CHECK(rc::check([&] {
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    for (const AttentionKind kind :
         {AttentionKind::decoder_self, AttentionKind::encoder_self, AttentionKind::decoder_cross}) {
      ++drawn;
      const Combination c = all[static_cast<size_t>(pick(0, static_cast<int64_t>(all.size()) - 1))];
      Sizes z;
      z.width = 2 * pick(2, 9);
      z.head_size = pick(1, 9);
      z.value_size = pick(1, 9);
      z.queries = pick(2, 9);
      z.keys = pick(2, 9);
      if (kind == AttentionKind::decoder_cross) z.keys = std::max(z.keys, z.queries);
      z.seed = static_cast<uint64_t>(pick(1, 1000000));
      std::unique_ptr<Whole> whole;
      try {
        whole = std::make_unique<Whole>(c.options(z, kind), kind, z.width);
      } catch (const Error&) {
        continue;  // stages that cannot act here
      }
      ++built;
      whole->shake(z.seed);
      INFO(c.name());
      const bool none = pick(0, 9) == 0;
      KeptHeads kept;
      kept.value = some_of(z.heads, c.pairs(), none);
      kept.score = whole->layer->can_prune_separately(HeadSide::score) && c.pairing != "cross-head"
                       ? some_of(z.heads, false, false)
                       : kept.value;
      kept.output = whole->layer->can_prune_separately(HeadSide::output) ? some_of(z.heads, false, false) : kept.value;
      if (kept.value.empty() && !kept.score.empty() && c.pairing == "cross-head") continue;
      const auto left = cut_of(*whole, kept);
      const LayerSpec& s = left->layer->layer_spec();
      if (none) {
        REQUIRE(s.heads == 0);
        REQUIRE(left->parameters.all().size() == 1);
      } else {
        REQUIRE(s.heads == static_cast<int64_t>(kept.score.size()));
        REQUIRE(s.value_heads == static_cast<int64_t>(kept.value.size()));
        REQUIRE(s.output_heads == static_cast<int64_t>(kept.output.size()));
        REQUIRE(s.key_size == z.head_size);
        REQUIRE(s.value_size == z.value_size);
      }
      mask(*whole->layer, kept);
      check_same(*whole, *left, z);
      if (kind != AttentionKind::decoder_cross) check_trains(*left, z);
      // Once more, of what is left.
      if (none || c.pairs() || kept.value.size() < 2 || c.pairing == "cross-head") continue;
      KeptHeads again{all_of(s.heads), all_of(s.value_heads), all_of(s.output_heads)};
      again.value.erase(again.value.begin());
      if (!left->layer->can_prune_separately(HeadSide::score)) again.score = again.value;
      if (!left->layer->can_prune_separately(HeadSide::output)) again.output = again.value;
      mask(*left->layer, again);
      check_same(*left, *cut_of(*left, again), z);
    }
  }));
  CHECK(3 * built > drawn);
}

TEST_CASE("the parts of the heads that stay are bit for bit what they were, and the rest is gone", "[cut]") {
  const int64_t d = 12, dk = 5, dv = 3;
  Whole whole(
      layers::options_of("heads = 4\nhead_size = 5\nvalue_size = 3\nmixer = 'mixhead-b'\ncombiner = 'alphas'\n"),
      AttentionKind::decoder_self, d);
  whole.shake(1);
  const auto left = cut_of(whole, {{0, 3}, {1, 2, 3}, {2}});
  auto is = [&](const std::string& part, const at::Tensor& expected) {
    INFO(part);
    CHECK(at::equal(left->parameters.find("decoder.layers.0.self" + part)->master(), expected));
  };
  auto was = [&](const std::string& part) {
    return whole.parameters.find("decoder.layers.0.self" + part)->master().detach();
  };
  const auto rows = [](const at::Tensor& x, std::initializer_list<at::indexing::TensorIndex> by) {
    return x.index(by);
  };
  using at::indexing::Slice;
  const at::Tensor q = was(".query.weight");
  is(".query.weight", at::cat({q.narrow(0, 0, dk), q.narrow(0, 3 * dk, dk)}));
  is(".key.bias", at::cat({was(".key.bias").narrow(0, 0, dk), was(".key.bias").narrow(0, 3 * dk, dk)}));
  is(".value.weight", rows(was(".value.weight"), {Slice(dv, 4 * dv)}));
  is(".output.weight", was(".output.weight").narrow(1, 2 * dv, dv));
  is(".output.bias", was(".output.bias"));
  is(".mixer.matrix",
     at::cat({was(".mixer.matrix").narrow(0, 0, 1), was(".mixer.matrix").narrow(0, 3, 1)}).narrow(1, 1, 3));
  is(".mixer.query.weight", was(".mixer.query.weight").narrow(0, 1, 3));
  is(".combiner.alpha", was(".combiner.alpha").narrow(0, 2, 1).narrow(1, 1, 3));
  CHECK(left->parameters.count() == 2 * 2 * dk * (d + 1) + 3 * dv * (d + 1) + d * dv + d + 2 * 3 + 3 * dk + 1 * 3);
}

TEST_CASE("a cut model is the whole one with those heads masked, written and read again, and cut once more", "[cut]") {
  struct Case {
    const char* backbone;
    const char* attention;
    Side side;
  };
  const Folder folder;
  const auto tokenizer =
      text::make_word_tokenizer({{"<eos>", 1}, {"<unk>", 0}, {"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}});
  for (const Case& c : std::initializer_list<Case>{
           {"decoder", "", Side::whole},
           {"decoder", "mixer = 'mixhead-a'\ncombiner = 'alphas'\n", Side::score},
           {"decoder", "mixer = 'mixhead-b'\ncombiner = 'alphas'\n", Side::output},
           {"decoder", "mixer = 'talking-heads'\ncombiner = 'mae'\n", Side::value},
           {"decoder", "combiner = 'mixture-of-heads'\n", Side::whole},
           {"decoder", "combiner = 'head-weights'\nhead-weights.weights = [1, -0.5, 2, 0.25]\n", Side::whole},
           {"transformer-xl", "", Side::whole},
           {"transformer-xl", "mixer = 'mixhead-b'\ncombiner = 'mae'\n", Side::value},
           {"transformer-xl", "mixer = 'mixhead-a'\ncombiner = 'gates'\n", Side::score},
           {"transformer-xl", "relative.shared_biases = false\ncombiner = 'alphas'\n", Side::output}}) {
    INFO(c.backbone << " " << c.attention << " " << static_cast<int>(c.side));
    Model whole(c.backbone, c.attention);
    const Kept kept = analysis::kept_without(*whole.model, heads({{0, 1}, {0, 3}, {2, 0}}), c.side, "test");
    const auto expected = masked_run(*whole.model, kept);
    const auto left = analysis::prune_heads(whole.config, *whole.model, kept);
    CHECK(left.model->parameters().count() < whole.model->parameters().count());
    check_same(run(*left.model), expected);

    const std::string path = folder.file("cut.safetensors");
    model::Views views;
    views.add(left.model->parameters());
    auto sink = open_sink(path);
    io::write_checkpoint(*sink, views.all(),
                         {{io::kFormatKey, "1"},
                          {io::kConfigKey, left.config.toml()},
                          {io::kTokenizerKey, io::base64(tokenizer->serialize())},
                          {io::kFingerprintKey, tokenizer->fingerprint()}});
    sink->close();
    const auto read = model::load_model(path, at::kCPU);
    CHECK(read.config.toml() == left.config.toml());
    check_same(run(*read.model), expected);

    // What a layer has lost all of, it gives no more.
    const Kept rest = analysis::kept_without(*read.model, heads({{0, 0}, {0, 1}, {1, 2}}),
                                             c.side == Side::whole ? Side::whole : Side::value, "test");
    const bool all_gone = c.side == Side::whole || c.side == Side::value;
    const auto again = analysis::prune_heads(read.config, *read.model, rest);
    CHECK((again.model->attention_layers()[0]->layer_spec().heads == 0) == all_gone);
    check_same(run(*again.model), masked_run(*read.model, rest));
  }
}

TEST_CASE("a model whose layers have no heads", "[cut]") {
  for (const char* backbone : {"decoder", "transformer-xl"}) {
    Model whole(backbone, "");
    std::set<analysis::Head> all;
    for (int64_t layer : {0, 1, 2})
      for (int64_t head = 0; head < 4; ++head) all.insert({layer, head});
    const Kept kept = analysis::kept_without(*whole.model, {{AttentionKind::decoder_self, all}}, Side::whole, "test");
    const auto left = analysis::prune_heads(whole.config, *whole.model, kept);
    check_same(run(*left.model), masked_run(*whole.model, kept));
    for (AttentionLayer* layer : left.model->attention_layers()) {
      CHECK(layer->describe_path(false) == "no heads are left");
      CHECK_FALSE(layer->has_side(HeadSide::value));
      layer->require_fused(true);
    }
    CHECK(analysis::heads_of(left.model->parameters()).at(AttentionKind::decoder_self) == Heads{0, 0, 0});
    // Copies of rows go on through such a layer.
    set_head_scales(*left.model->attention_layers()[1], {{}, at::ones({3, 0}), {}, {3}});
    CHECK(left.model->hidden(segments()[0], {}).size(0) == 6);
    CHECK(says(refusal([&] {
                 analysis::kept_without(*left.model, heads({{0, 0}}), Side::whole, "--heads");
               }),
               "one without heads"));
    CHECK(says(refusal([&] {
                 analysis::check_swap(left.model->parameters(), {{AttentionKind::decoder_self, {0, 0}, {1, 0}}}, {},
                                      "--pairs");
               }),
               "not layer 0"));
  }
}

TEST_CASE("exchanging heads of a cut layer changes their order alone, experts that stay included", "[cut]") {
  for (const char* attention : {"combiner = 'mae'\n", "combiner = 'mixture-of-heads'\nmixture-of-heads.shared = 0\n",
                                "mixer = 'mixhead-a'\ncombiner = 'alphas'\n"}) {
    INFO(attention);
    Model whole("decoder", attention);
    const auto left = analysis::prune_heads(
        whole.config, *whole.model, analysis::kept_without(*whole.model, heads({{0, 1}, {1, 0}}), Side::whole, "test"));
    const auto before = run(*left.model);
    analysis::swap_heads(left.model->parameters(), {{AttentionKind::decoder_self, {0, 1}, {0, 2}}}, {true, true},
                         "test");
    check_same(run(*left.model), before);
  }
}

TEST_CASE("heads of which a layer has other numbers on its sides are not exchanged", "[cut]") {
  Model whole("decoder", "mixer = 'mixhead-a'\n");
  const auto left = analysis::prune_heads(whole.config, *whole.model,
                                          analysis::kept_without(*whole.model, heads({{0, 1}}), Side::score, "test"));
  CHECK(says(
      refusal([&] {
        analysis::check_swap(left.model->parameters(), {{AttentionKind::decoder_self, {0, 0}, {1, 0}}}, {}, "--pairs");
      }),
      "of 3 heads beside 4 with values"));
}

TEST_CASE("what cannot be cut is refused", "[cut]") {
  auto kept = [](const char* attention, std::initializer_list<analysis::Head> cut, Side side) {
    return refusal([&] {
      Model whole("decoder", attention);
      analysis::prune_heads(whole.config, *whole.model,
                            analysis::kept_without(*whole.model, heads(cut), side, "--heads"));
    });
  };
  CHECK(kept("", {{0, 1}}, Side::whole).empty());
  CHECK(says(kept("", {{3, 1}}, Side::whole), "a layer from 0 to 2; found 3"));
  CHECK(says(kept("", {{0, 4}}, Side::whole), "a head from 0 to 3; found 4"));
  CHECK(says(kept("", {}, Side::whole), "heads to cut; found none"));
  CHECK(says(kept("", {{0, 1}}, Side::score), "a mixer that separates these heads"));
  CHECK(says(kept("", {{0, 1}}, Side::output), "a combiner that separates these heads"));
  CHECK(says(kept("mixer = 'differential'\n", {{0, 1}}, Side::whole), "one of heads 0 and 1"));
  CHECK(says(kept("mixer = 'differential'\n", {{0, 0}, {0, 1}}, Side::score), "a mixer that separates these heads"));
  CHECK(kept("mixer = 'differential'\n", {{0, 0}, {0, 1}}, Side::value).empty());
  CHECK(says(kept("combiner = 'pair-norm'\n", {{1, 0}, {1, 3}}, Side::whole), "one of heads 0 and 1"));
  CHECK(kept("mixer = 'mixhead-a'\ncombiner = 'pair-norm'\n", {{1, 0}}, Side::score).empty());
  CHECK(says(kept("mixer = 'mixhead-a'\nmixhead-a.scope = 'released'\n", {{0, 1}}, Side::score),
             "a mixer that separates"));
  CHECK(says(kept("mixer = 'mixhead-a'\npairing = 'cross-head'\n", {{0, 1}}, Side::score), "the same heads of keys"));
  CHECK(says(kept("mixer = 'mixhead-a'\nmixhead-a.on = 'logits'\n", {{0, 0}, {0, 1}, {0, 2}, {0, 3}}, Side::score),
             "without logits attention is uniform"));
  CHECK(kept("mixer = 'mixhead-a'\n", {{0, 0}, {0, 1}, {0, 2}, {0, 3}}, Side::score).empty());
  Model whole("decoder", "mixer = 'mixhead-a'\n");
  const auto left = analysis::prune_heads(whole.config, *whole.model,
                                          analysis::kept_without(*whole.model, heads({{0, 1}}), Side::score, "test"));
  CHECK(says(refusal([&] {
               analysis::kept_without(*left.model, heads({{0, 1}}), Side::whole, "--heads");
             }),
             "3 score heads, 4 value heads and 4 output heads"));
  CHECK(says(refusal([&] {
               analysis::kept_without(*whole.model, {{AttentionKind::decoder_cross, {{0, 1}}}}, Side::whole, "--heads");
             }),
             "a kind of attention that the model has: decoder.self; found decoder.cross"));
}

TEST_CASE("numbers of heads that stages do not take are refused", "[cut]") {
  auto built = [](const char* toml) { return refusal([&] { layers::Layer layer(toml, 12); }); };
  CHECK(built("heads = 2\nvalue_heads = 4\nhead_size = 3\nmixer = 'mixhead-a'\n").empty());
  CHECK(built("heads = 2\noutput_heads = 4\nhead_size = 3\ncombiner = 'alphas'\n").empty());
  CHECK(says(built("heads = 2\nvalue_heads = 4\n"), "needs a mixer that changes"));
  CHECK(says(built("heads = 2\nvalue_heads = 4\nmixer = 'differential'\n"), "needs a mixer that changes"));
  CHECK(says(built("heads = 2\nvalue_heads = 4\nmixer = 'mixhead-a'\nmixhead-a.scope = 'released'\n"),
             "needs a mixer that changes"));
  CHECK(says(built("heads = 2\noutput_heads = 4\n"), "needs a combiner that mixes"));
  CHECK(says(built("heads = 2\nvalue_heads = 4\nmixer = 'mixhead-a'\npairing = 'cross-head'\n"), "found 2 and 4"));
  CHECK(says(built("heads = 0\nvalue_heads = 4\n"), "0, where heads = 0"));
  CHECK(says(built("heads = 0\noutput_heads = 4\n"), "0, where heads = 0"));
  CHECK(says(built("heads = 2\ncombiner = 'mae'\nmae.kept_heads = [0, 1]\n"), "none with original_heads = 0"));
  CHECK(says(built("heads = 2\ncombiner = 'mae'\nmae.original_heads = 4\nmae.kept_heads = [0]\n"),
             "one for each of the layer's 2 heads"));
  CHECK(says(built("heads = 2\ncombiner = 'mae'\nmae.original_heads = 4\nmae.kept_heads = [0, 4]\n"),
             "heads from 0 to 3"));
  CHECK(says(built("heads = 2\ncombiner = 'mixture-of-heads'\nmixture-of-heads.original_heads = "
                   "4\nmixture-of-heads.kept_heads = [1, 1]\n"),
             "each head once"));
  // A mask for each head cannot be for what a mixer makes of them.
  layers::Layer l("heads = 2\nvalue_heads = 3\nhead_size = 4\nmixer = 'talking-heads'\ntalking-heads.inside = 3\n", 12);
  const at::Tensor x = normal({1, 4, 12}, 1);
  Mask mask;
  mask.additive = at::zeros({1, 2, 4, 4});
  CHECK(says(refusal([&] { l(x, x, mask); }), "an additive mask shared by all heads"));
}

TEST_CASE("the least important heads, of all together or of each layer", "[cut]") {
  using analysis::Head;
  using Set = std::set<Head>;
  const AttentionKind kind = AttentionKind::decoder_self;
  const std::map<AttentionKind, analysis::LayerScores> scores = {{kind, {{3, 1, 2}, {}, {1, 1, 5, 9}}}};
  auto least = [&](const analysis::Share& share, bool per_layer = false) {
    return analysis::least_important(scores, share, per_layer, "--count").at(kind);
  };
  CHECK((least({1, 0}) == Set{{0, 1}}));
  CHECK((least({3, 0}) == Set{{0, 1}, {2, 0}, {2, 1}}));
  CHECK((least({4, 0}) == Set{{0, 1}, {0, 2}, {2, 0}, {2, 1}}));
  CHECK((least({0, 0.3}) == Set{{0, 1}, {2, 0}}));  // 2.1 of 7
  CHECK(least({0, 1}).size() == 7);
  CHECK((least({2, 0}, true) == Set{{0, 1}, {0, 2}, {2, 0}, {2, 1}}));
  CHECK((least({0, 0.5}, true) == Set{{0, 1}, {2, 0}, {2, 1}}));
  CHECK(says(refusal([&] { least({8, 0}); }), "at most 7, the number of heads; found 8"));
  CHECK(says(refusal([&] { least({4, 0}, true); }), "at most 3, the number of heads of layer 0; found 4"));
  CHECK(says(refusal([&] { least({0, 0.1}); }), "at least one head"));
  CHECK(analysis::parse_fraction("12.5%", "") == 0.125);
  for (const char* text : {"12", "101%", "-1%", "%", "1e1%"})
    CHECK(says(refusal([&] { analysis::parse_fraction(text, "--fraction"); }), "0% to 100%"));
}

TEST_CASE("heads as on a command line", "[cut]") {
  const AttentionKind self = AttentionKind::decoder_self, cross = AttentionKind::decoder_cross;
  CHECK(
      (analysis::parse_heads({"0:1", "decoder.self:5:7"}, {self}, "") == analysis::HeadSet{{self, {{0, 1}, {5, 7}}}}));
  CHECK((analysis::parse_heads({"decoder.cross:0:1", "decoder.self:0:1"}, {self, cross}, "") ==
         analysis::HeadSet{{self, {{0, 1}}}, {cross, {{0, 1}}}}));
  auto refused = [&](std::vector<std::string> texts, std::vector<AttentionKind> kinds) {
    return refusal([&] { analysis::parse_heads(texts, kinds, "--heads"); });
  };
  CHECK(says(refused({"0:1"}, {self, cross}), "KIND:LAYER:HEAD"));
  CHECK(says(refused({"0.1"}, {self}), "LAYER:HEAD"));
  CHECK(says(refused({"nope:0:1"}, {self}), "one of"));
  CHECK(says(refused({"decoder.cross:0:1"}, {self}),
             "one of the kinds of attention decoder.self; found 'decoder.cross:0:1'"));
  CHECK(says(refused({"0:1", "decoder.self:0:1"}, {self}), "each head once"));
}
