// Structured pruning: for every combination of attention stages, a pruned layer or model has the outputs of the full
// layer or model with the same heads masked, and heads that cannot be pruned are refused. Selection of heads to
// prune, by importance or as LAYER:HEAD.
#include "analysis/prune.h"

#include <ATen/TensorIndexing.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "analysis/groups.h"
#include "analysis/swap.h"
#include "fixtures/combiners.h"
#include "fixtures/contains.h"
#include "fixtures/folder.h"
#include "fixtures/layers.h"
#include "fixtures/modern_options.h"
#include "fixtures/pick.h"
#include "fixtures/segments.h"
#include "fixtures/status.h"
#include "fixtures/words.h"
#include "model/load.h"
#include "text/tokenizer.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using analysis::RemainingHeadsByLayer;
using analysis::SideSelection;
using layers::normal;
using segment_fixtures::amplification;
using segment_fixtures::check_close;
using segment_fixtures::close;
using segment_fixtures::hidden_states;
using segment_fixtures::Model;
using segment_fixtures::segments;

namespace {

using Heads = std::vector<int64_t>;

Heads iota_heads(int64_t num_heads) {
  Heads all(static_cast<size_t>(num_heads));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Returns a mask of shape (num_heads), with 1 for remaining heads and 0 for pruned heads.
at::Tensor head_mask(const Heads& remaining_heads, int64_t num_heads) {
  at::Tensor mask = at::zeros({num_heads});
  for (const int64_t head : remaining_heads) mask[head] = 1;
  return mask;
}

void mask_heads(AttentionLayer& layer, const RemainingHeads& remaining_heads) {
  HeadScales scales;
  const LayerSpec& s = layer.layer_spec();
  if (layer.has_separate_heads(HeadSide::score)) scales.score = head_mask(remaining_heads.score, s.heads);
  scales.value = head_mask(remaining_heads.value, s.value_heads);
  scales.output = head_mask(remaining_heads.output, s.output_heads);
  set_head_scales(layer, scales);
}

// An attention layer outside a model. Its parameters have the names of the parameters of a model's layer 0.
struct SingleLayer {
  nn::ParameterList parameters{at::kCPU};
  std::unique_ptr<AttentionLayer> layer;

  SingleLayer(const AttentionOptions& options, AttentionKind kind, int64_t width) {
    const auto init = nn::Init::normal(0.5);
    layer = std::make_unique<AttentionLayer>(parameters, options,
                                             make_layer_spec(options, kind, 0, width, analysis::prefix_of(kind, 0)),
                                             AttentionLayer::Inits{init, init, init});
  }
  // Initialises the parameters and adds noise to the trainable parameters, so that no trainable parameter is an
  // identity matrix or zero.
  void initialise_perturbed(uint64_t seed) {
    c10::NoGradGuard no_gradient;
    parameters.initialise(seed);
    for (auto& p : parameters.all())
      if (p.traits().trainable) p.master().add_(normal(p.master().sizes().vec(), seed++), 0.3);
  }
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& m, const Mask& mask, Cache* cache = nullptr) {
    return layer->forward(x, m, mask, {}, cache);
  }
};

std::unique_ptr<SingleLayer> prune_layer(SingleLayer& full, const RemainingHeads& remaining_heads) {
  const LayerSpec& s = full.layer->layer_spec();
  auto pruned = std::make_unique<SingleLayer>(full.layer->options_after_pruning(remaining_heads), s.kind, s.width);
  analysis::copy_remaining_parameters(full.parameters, {{s.kind, {{0, remaining_heads}}}}, pruned->parameters);
  return pruned;
}

struct Sizes {
  int64_t width = 12, heads = 4, head_size = 5, value_size = 3, queries = 6, keys = 9, rows = 2;
  uint64_t seed = 1;
};

// Checks that `full`, whose pruned heads are masked, and `pruned` have the same outputs: encoder self-attention and
// cross-attention with and without padding; decoder self-attention without a memory and with one; decoder
// self-attention and cross-attention in incremental decoding. Skips memories and incremental decoding if the stages do
// not support them.
void check_pruned(SingleLayer& full, SingleLayer& pruned, const Sizes& sizes) {
  c10::NoGradGuard no_gradient;
  const AttentionKind kind = full.layer->layer_spec().kind;
  const Capabilities capabilities = full.layer->capabilities();
  const at::Tensor x = normal({sizes.rows, sizes.queries, sizes.width}, sizes.seed),
                   m = normal({sizes.rows, sizes.keys, sizes.width}, sizes.seed + 1);
  Mask padding_mask;
  padding_mask.key_lengths = at::tensor({sizes.queries, sizes.queries - 1}, at::kLong).narrow(0, 0, sizes.rows);
  if (kind == AttentionKind::decoder_cross) {
    CHECK(close(pruned(x, m, {}), full(x, m, {})));
    CHECK(close(pruned(x, m, padding_mask), full(x, m, padding_mask)));
  } else if (kind == AttentionKind::encoder_self) {
    padding_mask.query_lengths = padding_mask.key_lengths;
    CHECK(close(pruned(x, x, {}), full(x, x, {})));
    CHECK(close(pruned(x, x, padding_mask), full(x, x, padding_mask)));
  } else {
    Mask mask;
    mask.causal = true;
    CHECK(close(pruned(x, x, mask), full(x, x, mask)));
    mask.offset = sizes.keys;
    const at::Tensor memory_and_x = nn::cat({m, x}, 1);
    if (capabilities.supports_memory) CHECK(close(pruned(x, memory_and_x, mask), full(x, memory_and_x, mask)));
  }
  if (!capabilities.supports_incremental_decoding || kind == AttentionKind::encoder_self) return;
  Cache pruned_cache, full_cache;
  for (int64_t begin = 0, size = 1; begin < sizes.queries; begin += size) {
    size = std::min<int64_t>(1 + begin % 2, sizes.queries - begin);
    const at::Tensor step_input = x.narrow(1, begin, size);
    Mask mask;
    mask.causal = kind == AttentionKind::decoder_self;
    if (mask.causal) mask.offset = mask.first_position = begin;
    const at::Tensor& keys = mask.causal ? step_input : m;
    CHECK(close(pruned(step_input, keys, mask, &pruned_cache), full(step_input, keys, mask, &full_cache)));
    CHECK(pruned_cache.length() == full_cache.length());
  }
}

// Checks that the pruned layer has finite outputs in training mode and that its backward pass runs.
void check_trains(SingleLayer& pruned, const Sizes& sizes) {
  const at::Tensor x = normal({sizes.rows, sizes.queries, sizes.width}, sizes.seed);
  Mask mask;
  mask.causal = pruned.layer->layer_spec().kind == AttentionKind::decoder_self;
  ForwardContext forward_context;
  forward_context.training = true;
  const at::Tensor y = pruned.layer->forward(x, x, mask, forward_context);
  REQUIRE(y.isfinite().all().item<bool>());
  if (y.requires_grad()) y.sum().backward();
}

struct Combination {
  std::string pairing, score, normaliser, mixer, combiner, extra;
  std::string first_combiner = {};  // combiner before `combiner`; empty: none
  std::vector<std::string> combiner_names() const {
    return first_combiner.empty() ? std::vector{combiner} : std::vector{first_combiner, combiner};
  }
  bool prunes_in_pairs() const {
    return mixer == "differential" || combiner == "pair-norm" || first_combiner == "pair-norm";
  }
  std::string name() const {
    return str(pairing, " ", score, " ", normaliser, " ", mixer, " ", join(combiner_names(), "+"), " ", extra);
  }
  AttentionOptions options(const Sizes& sizes, AttentionKind kind) const {
    return layers::options_of(
        str("heads = ", sizes.heads, "\nhead_size = ", sizes.head_size, "\nvalue_size = ", sizes.value_size,
            "\npairing = '", pairing, "'\nscore = '", score, "'\nnormaliser = '", normaliser, "'\nmixer = '", mixer,
            "'\n", fixtures::combiner_line(combiner_names()), extra),
        kind);
  }
};

std::vector<Combination> combinations() {
  std::vector<Combination> all;
  // Option lines for each stage whose options depend on the number of heads or change how heads interact.
  const std::map<std::string, std::vector<std::string>> extras = {
      {"mixhead-a", {"", "mixhead-a.mixer_input = 'logits'\n", "mixhead-a.scope = 'released'\n"}},
      {"mixhead-b", {"", "mixhead-b.mixer_input = 'logits'\n"}},
      {"talking-heads",
       {"", "talking-heads.pre = false\n", "talking-heads.post = false\n", "talking-heads.inner_heads = 6\n"}},
      {"mae", {"", "mae.omitted_heads = 2\n", "mae.gate = 'uniform'\n"}},
      {"mixture-of-heads", {"", "mixture-of-heads.shared_heads = 0\n"}},
      {"head-weights", {"", "head-weights.weights = [1, -0.5, 2, 0.25]\n"}},
      {"gates", {"", "gates.input = true\n"}},
      {"synthesizer-dense", {"", "synthesizer-dense.per_head = true\n"}}};
  auto extras_of = [&](const std::string& name) {
    auto it = extras.find(name);
    return it == extras.end() ? std::vector<std::string>{""} : it->second;
  };
  // The epsilon keeps a norm of one small element from amplifying rounding errors.
  const std::vector<std::string> transform_lines{"", "transform = ['rotary']\n",
                                                 "transform = ['qk-norm']\nqk-norm.epsilon = 0.1\n"};
  // Each further combination takes the next position bias, and every second the keys of logits.
  const std::vector<std::string> biases = position_biases().names();
  size_t index = 0;
  for (const auto& pairing : pairings().names())
    for (const auto& score : scores().names())
      for (const auto& normaliser : normalisers().names())
        for (const auto& mixer : mixers().names())
          for (const auto& combiner : combiners().names())
            for (const auto& a : extras_of(score))
              for (const auto& b : extras_of(mixer))
                for (const auto& c : extras_of(combiner))
                  for (const auto& transform :
                       score == "dot-product" ? transform_lines : std::vector<std::string>{""}) {
                    const bool mixes_logits = b.find("'logits'") != std::string::npos ||
                                              (mixer == "talking-heads" && b.find("pre = false") == std::string::npos);
                    const std::string keys = mixes_logits || index % 2 == 0 ? "" : "sink = 'learned'\nsoft_cap = 2.0\n";
                    all.push_back(
                        {pairing, score, normaliser, mixer, combiner,
                         str("position_bias = '", biases[index % biases.size()], "'\n", keys, transform, a, b, c)});
                    ++index;
                  }
  return all;
}

// Draws a set of remaining heads: at least one head, or no heads if `prunes_all` is set. With `in_pairs`, heads 2i and
// 2i + 1 are both pruned or both not.
Heads draw_remaining_heads(int64_t num_heads, bool in_pairs, bool prunes_all) {
  const int64_t step = in_pairs ? 2 : 1, num_groups = num_heads / step;
  const auto bits = prunes_all ? 0 : *rc::gen::inRange<int64_t>(1, int64_t{1} << num_groups);
  Heads remaining_heads;
  for (int64_t i = 0; i < num_heads; ++i)
    if ((bits >> (i / step) & 1) != 0) remaining_heads.push_back(i);
  return remaining_heads;
}

// Returns the hidden states of the full model. In the layers of `remaining_heads`, all other heads are masked.
std::vector<at::Tensor> masked_hidden_states(model::LanguageModel& model,
                                             const RemainingHeadsByLayer& remaining_heads) {
  for (AttentionLayer* layer : model.attention_layers())
    if (auto layers_of_kind = remaining_heads.find(layer->layer_spec().kind); layers_of_kind != remaining_heads.end())
      if (auto layer_heads = layers_of_kind->second.find(layer->layer_spec().layer);
          layer_heads != layers_of_kind->second.end())
        mask_heads(*layer, layer_heads->second);
  auto states = hidden_states(model);
  for (AttentionLayer* layer : model.attention_layers()) set_head_scales(*layer, {});
  return states;
}

analysis::HeadSet self_heads(std::initializer_list<analysis::Head> heads) {
  return {{AttentionKind::decoder_self, heads}};
}

}  // namespace

TEST_CASE("a pruned layer has the outputs of the full layer with the same heads masked, for any combination of stages",
          "[prune]") {
  const std::vector<Combination> all = combinations();
  const std::vector<std::vector<std::string>> pairs = fixtures::combiner_pairs();
  int num_drawn = 0, num_built = 0;
  CHECK(rc::check([&] {
    for (const AttentionKind kind :
         {AttentionKind::decoder_self, AttentionKind::encoder_self, AttentionKind::decoder_cross}) {
      ++num_drawn;
      Combination c = all[static_cast<size_t>(pick(0, static_cast<int64_t>(all.size()) - 1))];
      if (pick(0, 2) == 0)
        for (const std::vector<std::string>& names : pairs)
          if (names[1] == c.combiner && (c.first_combiner.empty() || pick(0, 3) == 0)) c.first_combiner = names[0];
      Sizes sizes;
      sizes.width = 2 * pick(2, 9);
      sizes.head_size = pick(1, 9);
      sizes.value_size = pick(1, 9);
      sizes.queries = pick(2, 9);
      sizes.keys = pick(2, 9);
      if (kind == AttentionKind::decoder_cross) sizes.keys = std::max(sizes.keys, sizes.queries);
      sizes.seed = static_cast<uint64_t>(pick(1, 1000000));
      std::unique_ptr<SingleLayer> full;
      try {
        full = std::make_unique<SingleLayer>(c.options(sizes, kind), kind, sizes.width);
      } catch (const Error&) {
        continue;  // these stages do not support this kind of attention
      }
      ++num_built;
      full->initialise_perturbed(sizes.seed);
      INFO(c.name());
      const bool prunes_all = pick(0, 9) == 0;
      RemainingHeads remaining_heads;
      remaining_heads.value = draw_remaining_heads(sizes.heads, c.prunes_in_pairs(), prunes_all);
      remaining_heads.score = full->layer->can_prune_separately(HeadSide::score) && c.pairing != "cross-head"
                                  ? draw_remaining_heads(sizes.heads, false, false)
                                  : remaining_heads.value;
      remaining_heads.output = full->layer->can_prune_separately(HeadSide::output)
                                   ? draw_remaining_heads(sizes.heads, false, false)
                                   : remaining_heads.value;
      if (remaining_heads.value.empty() && !remaining_heads.score.empty() && c.pairing == "cross-head") continue;
      const auto pruned = prune_layer(*full, remaining_heads);
      const LayerSpec& s = pruned->layer->layer_spec();
      if (prunes_all) {
        REQUIRE(s.heads == 0);
        REQUIRE(pruned->parameters.all().size() == 1);
      } else {
        REQUIRE(s.heads == static_cast<int64_t>(remaining_heads.score.size()));
        REQUIRE(s.value_heads == static_cast<int64_t>(remaining_heads.value.size()));
        REQUIRE(s.output_heads == static_cast<int64_t>(remaining_heads.output.size()));
        REQUIRE(s.key_size == sizes.head_size);
        REQUIRE(s.value_size == sizes.value_size);
      }
      mask_heads(*full->layer, remaining_heads);
      check_pruned(*full, *pruned, sizes);
      if (kind != AttentionKind::decoder_cross) check_trains(*pruned, sizes);
      // Pruning a second time removes the first value head of the pruned layer.
      if (prunes_all || c.prunes_in_pairs() || remaining_heads.value.size() < 2 || c.pairing == "cross-head") continue;
      RemainingHeads second_remaining_heads{iota_heads(s.heads), iota_heads(s.value_heads), iota_heads(s.output_heads)};
      second_remaining_heads.value.erase(second_remaining_heads.value.begin());
      if (!pruned->layer->can_prune_separately(HeadSide::score))
        second_remaining_heads.score = second_remaining_heads.value;
      if (!pruned->layer->can_prune_separately(HeadSide::output))
        second_remaining_heads.output = second_remaining_heads.value;
      mask_heads(*pruned->layer, second_remaining_heads);
      check_pruned(*pruned, *prune_layer(*pruned, second_remaining_heads), sizes);
    }
  }));
  CHECK(3 * num_built > num_drawn);
}

TEST_CASE("pruning copies the parameters of remaining heads bit for bit and removes the other parameters", "[prune]") {
  const int64_t d = 12, dk = 5, dv = 3;
  SingleLayer full(
      layers::options_of("heads = 4\nhead_size = 5\nvalue_size = 3\nmixer = 'mixhead-b'\ncombiner = 'alphas'\n"),
      AttentionKind::decoder_self, d);
  full.initialise_perturbed(1);
  const auto pruned = prune_layer(full, {{0, 3}, {1, 2, 3}, {2}});
  auto check_pruned_parameter = [&](const std::string& suffix, const at::Tensor& expected) {
    INFO(suffix);
    CHECK(at::equal(pruned->parameters.find("decoder.layers.0.self" + suffix)->master(), expected));
  };
  auto full_parameter = [&](const std::string& suffix) {
    return full.parameters.find("decoder.layers.0.self" + suffix)->master().detach();
  };
  const auto select = [](const at::Tensor& x, std::initializer_list<at::indexing::TensorIndex> indices) {
    return x.index(indices);
  };
  using at::indexing::Slice;
  const at::Tensor q = full_parameter(".query.weight");
  check_pruned_parameter(".query.weight", nn::cat({q.narrow(0, 0, dk), q.narrow(0, 3 * dk, dk)}));
  check_pruned_parameter(".key.bias", nn::cat({full_parameter(".key.bias").narrow(0, 0, dk),
                                               full_parameter(".key.bias").narrow(0, 3 * dk, dk)}));
  check_pruned_parameter(".value.weight", select(full_parameter(".value.weight"), {Slice(dv, 4 * dv)}));
  check_pruned_parameter(".output.weight", full_parameter(".output.weight").narrow(1, 2 * dv, dv));
  check_pruned_parameter(".output.bias", full_parameter(".output.bias"));
  check_pruned_parameter(".mixer.matrix", nn::cat({full_parameter(".mixer.matrix").narrow(0, 0, 1),
                                                   full_parameter(".mixer.matrix").narrow(0, 3, 1)})
                                              .narrow(1, 1, 3));
  check_pruned_parameter(".mixer.query.weight", full_parameter(".mixer.query.weight").narrow(0, 1, 3));
  check_pruned_parameter(".combiner.alpha", full_parameter(".combiner.alpha").narrow(0, 2, 1).narrow(1, 1, 3));
  CHECK(pruned->parameters.num_trainable_elements() ==
        2 * 2 * dk * (d + 1) + 3 * dv * (d + 1) + d * dv + d + 2 * 3 + 3 * dk + 1 * 3);
}

TEST_CASE("a pruned model has the outputs of the full model with the same heads masked, also reloaded or pruned twice",
          "[prune]") {
  struct Case {
    const char* backbone;
    const char* attention;
    SideSelection side;
  };
  const Folder folder;
  const auto tokenizer = words::word_tokenizer({"a", "b", "c", "d"});
  for (const Case& c : std::initializer_list<Case>{
           {"decoder", "", SideSelection::whole},
           {"decoder", "mixer = 'mixhead-a'\ncombiner = 'alphas'\n", SideSelection::score},
           {"decoder", "mixer = 'mixhead-b'\ncombiner = 'alphas'\n", SideSelection::output},
           {"decoder", "mixer = 'talking-heads'\ncombiner = 'mae'\n", SideSelection::value},
           {"decoder", "combiner = 'mixture-of-heads'\n", SideSelection::whole},
           {"decoder", "combiner = 'head-weights'\nhead-weights.weights = [1, -0.5, 2, 0.25]\n", SideSelection::whole},
           {"transformer-xl", "", SideSelection::whole},
           {"transformer-xl", "mixer = 'mixhead-b'\ncombiner = 'mae'\n", SideSelection::value},
           {"transformer-xl", "mixer = 'mixhead-a'\ncombiner = 'gates'\n", SideSelection::score},
           {"transformer-xl", "relative.shared_biases = false\ncombiner = 'alphas'\n", SideSelection::output}}) {
    INFO(c.backbone << " " << c.attention << " " << static_cast<int>(c.side));
    Model full(c.backbone, c.attention);
    const RemainingHeadsByLayer remaining_heads =
        analysis::heads_after_pruning(*full.model, self_heads({{0, 1}, {0, 3}, {2, 0}}), c.side, "test");
    const auto expected = masked_hidden_states(*full.model, remaining_heads);
    const auto pruned = analysis::prune_heads(full.config, *full.model, remaining_heads);
    CHECK(pruned.model->parameters().num_trainable_elements() < full.model->parameters().num_trainable_elements());
    check_close(hidden_states(*pruned.model), expected);

    const std::string path = folder.file("cut.safetensors");
    model::CheckpointTensors tensors;
    tensors.add(pruned.model->parameters());
    auto sink = open_sink(path);
    io::write_checkpoint(*sink, tensors.views(),
                         {{io::kFormatKey, "1"},
                          {io::kConfigKey, pruned.config.toml()},
                          {io::kTokenizerKey, io::to_base64(tokenizer->serialize())},
                          {io::kFingerprintKey, tokenizer->fingerprint()}});
    sink->close();
    const auto reloaded = model::load_model(path, at::kCPU);
    CHECK(reloaded.config.toml() == pruned.config.toml());
    check_close(hidden_states(*reloaded.model), expected);

    // The second pruning removes all remaining heads of layer 0 if the first pruning removed value heads of the layer.
    // If the first pruning removed only score or output heads, layer 0 keeps some heads.
    const RemainingHeadsByLayer heads_after_second_pruning = analysis::heads_after_pruning(
        *reloaded.model, self_heads({{0, 0}, {0, 1}, {1, 2}}),
        c.side == SideSelection::whole ? SideSelection::whole : SideSelection::value, "test");
    const bool loses_all_heads = c.side == SideSelection::whole || c.side == SideSelection::value;
    const auto twice_pruned = analysis::prune_heads(reloaded.config, *reloaded.model, heads_after_second_pruning);
    CHECK((twice_pruned.model->attention_layers()[0]->layer_spec().heads == 0) == loses_all_heads);
    check_close(hidden_states(*twice_pruned.model), masked_hidden_states(*reloaded.model, heads_after_second_pruning));
  }
}

TEST_CASE("with any option of modern decoders, a model without some heads or groups equals the model with them masked",
          "[prune]") {
  for (const modern_options::Configuration& c : modern_options::all()) {
    INFO(c.name);
    Model full("decoder", "", c.toml);
    const auto check_cut = [&](const analysis::HeadSet& heads) {
      const RemainingHeadsByLayer remaining_heads =
          analysis::heads_after_pruning(*full.model, heads, SideSelection::whole, "test");
      const auto expected = masked_hidden_states(*full.model, remaining_heads);
      const auto pruned = analysis::prune_heads(full.config, *full.model, remaining_heads);
      CHECK(pruned.model->parameters().num_trainable_elements() < full.model->parameters().num_trainable_elements());
      check_close(hidden_states(*pruned.model), expected, amplification(*pruned.model));
    };
    const analysis::HeadSet heads = self_heads({{0, 1}, {0, 3}, {2, 0}});
    if (c.has_joint_heads) {
      CHECK(contains(refusal([&] { check_cut(heads); }), "one norm ties all heads together"));
      continue;
    }
    check_cut(heads);
    check_cut(analysis::heads_of_groups(*full.model, self_heads({{0, 0}, {2, 0}}), "test"));
  }
}

TEST_CASE("a model without heads still runs, and pruning or swapping its heads is refused", "[prune]") {
  for (const char* backbone : {"decoder", "transformer-xl"}) {
    Model full(backbone, "");
    std::set<analysis::Head> all;
    for (int64_t layer : {0, 1, 2})
      for (int64_t head = 0; head < 4; ++head) all.insert({layer, head});
    const RemainingHeadsByLayer remaining_heads =
        analysis::heads_after_pruning(*full.model, {{AttentionKind::decoder_self, all}}, SideSelection::whole, "test");
    const auto pruned = analysis::prune_heads(full.config, *full.model, remaining_heads);
    check_close(hidden_states(*pruned.model), masked_hidden_states(*full.model, remaining_heads));
    for (AttentionLayer* layer : pruned.model->attention_layers()) {
      CHECK(layer->describe_path(false) == "no attention, since the layer has no heads");
      CHECK_FALSE(layer->has_separate_heads(HeadSide::value));
      layer->require_fused(true);
    }
    CHECK(analysis::head_counts_of(pruned.model->parameters()).at(AttentionKind::decoder_self) == Heads{0, 0, 0});
    // A layer without heads still repeats the batch rows for each ablated model (attention::Variants).
    set_head_scales(*pruned.model->attention_layers()[1], {{}, at::ones({3, 0}), {}, {3}});
    CHECK(pruned.model->hidden(model::Input{segments()[0]}, {}).size(0) == 6);
    CHECK(
        contains(refusal([&] {
                   analysis::heads_after_pruning(*pruned.model, self_heads({{0, 0}}), SideSelection::whole, "--heads");
                 }),
                 "a layer without heads"));
    CHECK(contains(refusal([&] {
                     analysis::check_swap(pruned.model->parameters(), {{AttentionKind::decoder_self, {0, 0}, {1, 0}}},
                                          {}, "--pairs");
                   }),
                   "another layer, since all heads are pruned in layer 0"));
  }
}

TEST_CASE("swapping two heads of a pruned layer, together with their stage parameters, does not change its outputs",
          "[prune]") {
  for (const char* attention :
       {"combiner = 'mae'\n", "combiner = 'mixture-of-heads'\nmixture-of-heads.shared_heads = 0\n",
        "mixer = 'mixhead-a'\ncombiner = 'alphas'\n"}) {
    INFO(attention);
    Model full("decoder", attention);
    const auto pruned = analysis::prune_heads(
        full.config, *full.model,
        analysis::heads_after_pruning(*full.model, self_heads({{0, 1}, {1, 0}}), SideSelection::whole, "test"));
    const auto expected = hidden_states(*pruned.model);
    analysis::swap_heads(pruned.model->parameters(), {{AttentionKind::decoder_self, {0, 1}, {0, 2}}}, {true, true},
                         "test");
    check_close(hidden_states(*pruned.model), expected);
  }
}

TEST_CASE("swapping heads is refused in a layer whose score and value head counts differ", "[prune]") {
  Model full("decoder", "mixer = 'mixhead-a'\n");
  const auto pruned = analysis::prune_heads(
      full.config, *full.model,
      analysis::heads_after_pruning(*full.model, self_heads({{0, 1}}), SideSelection::score, "test"));
  CHECK(contains(refusal([&] {
                   analysis::check_swap(pruned.model->parameters(), {{AttentionKind::decoder_self, {0, 0}, {1, 0}}}, {},
                                        "--pairs");
                 }),
                 "of 3 heads, in a layer with 4 value heads"));
}

TEST_CASE("pruning refuses missing heads, score or output heads that are not separate, and half of a head pair",
          "[prune]") {
  auto prune_error = [](const char* attention, std::initializer_list<analysis::Head> pruned_heads, SideSelection side) {
    return refusal([&] {
      Model full("decoder", attention);
      analysis::prune_heads(full.config, *full.model,
                            analysis::heads_after_pruning(*full.model, self_heads(pruned_heads), side, "--heads"));
    });
  };
  CHECK(prune_error("", {{0, 1}}, SideSelection::whole).empty());
  CHECK(contains(prune_error("", {{3, 1}}, SideSelection::whole), "a layer from 0 to 2; found 3"));
  CHECK(contains(prune_error("", {{0, 4}}, SideSelection::whole), "a head from 0 to 3; found 4"));
  CHECK(contains(prune_error("", {}, SideSelection::whole), "heads to prune; found none"));
  CHECK(contains(prune_error("", {{0, 1}}, SideSelection::score), "no mixer that changes the number of heads"));
  CHECK(contains(prune_error("", {{0, 1}}, SideSelection::output), "no combiner that mixes heads"));
  CHECK(contains(prune_error("mixer = 'differential'\n", {{0, 1}}, SideSelection::whole), "one of heads 0 and 1"));
  CHECK(contains(prune_error("mixer = 'differential'\n", {{0, 0}, {0, 1}}, SideSelection::score),
                 "no mixer that changes the number of heads"));
  CHECK(prune_error("mixer = 'differential'\n", {{0, 0}, {0, 1}}, SideSelection::value).empty());
  CHECK(contains(prune_error("combiner = 'pair-norm'\n", {{1, 0}, {1, 3}}, SideSelection::whole),
                 "one of heads 0 and 1"));
  CHECK(prune_error("mixer = 'mixhead-a'\ncombiner = 'pair-norm'\n", {{1, 0}}, SideSelection::score).empty());
  CHECK(contains(prune_error("mixer = 'mixhead-a'\nmixhead-a.scope = 'released'\n", {{0, 1}}, SideSelection::score),
                 "no mixer that changes"));
  CHECK(contains(prune_error("mixer = 'mixhead-a'\npairing = 'cross-head'\n", {{0, 1}}, SideSelection::score),
                 "the same heads for keys"));
  CHECK(contains(prune_error("mixer = 'mixhead-a'\nmixhead-a.mixer_input = 'logits'\n",
                             {{0, 0}, {0, 1}, {0, 2}, {0, 3}}, SideSelection::score),
                 "since mixer 'mixhead-a' mixes logits"));
  CHECK(prune_error("mixer = 'mixhead-a'\n", {{0, 0}, {0, 1}, {0, 2}, {0, 3}}, SideSelection::score).empty());
  Model full("decoder", "mixer = 'mixhead-a'\n");
  const auto pruned = analysis::prune_heads(
      full.config, *full.model,
      analysis::heads_after_pruning(*full.model, self_heads({{0, 1}}), SideSelection::score, "test"));
  CHECK(contains(refusal([&] {
                   analysis::heads_after_pruning(*pruned.model, self_heads({{0, 1}}), SideSelection::whole, "--heads");
                 }),
                 "3 score heads, 4 value heads and 4 output heads"));
  CHECK(contains(refusal([&] {
                   analysis::heads_after_pruning(*full.model, {{AttentionKind::decoder_cross, {{0, 1}}}},
                                                 SideSelection::whole, "--heads");
                 }),
                 "a kind of attention that the model has: decoder.self; found decoder.cross"));
}

TEST_CASE("a layer refuses head counts that its stages do not support", "[prune]") {
  auto build_error = [](const char* toml) { return refusal([&] { layers::Layer layer(toml, 12); }); };
  CHECK(build_error("heads = 2\nvalue_heads = 4\nhead_size = 3\nmixer = 'mixhead-a'\n").empty());
  CHECK(build_error("heads = 2\noutput_heads = 4\nhead_size = 3\ncombiner = 'alphas'\n").empty());
  CHECK(contains(build_error("heads = 2\nvalue_heads = 4\n"), "choose a mixer that changes"));
  CHECK(contains(build_error("heads = 2\nvalue_heads = 4\nmixer = 'differential'\n"), "choose a mixer that changes"));
  CHECK(contains(build_error("heads = 2\nvalue_heads = 4\nmixer = 'mixhead-a'\nmixhead-a.scope = 'released'\n"),
                 "choose a mixer that changes"));
  CHECK(contains(build_error("heads = 2\noutput_heads = 4\n"), "choose a combiner that mixes"));
  CHECK(contains(build_error("heads = 2\nvalue_heads = 4\nmixer = 'mixhead-a'\npairing = 'cross-head'\n"),
                 "found 2 score heads and 4 value heads"));
  CHECK(contains(build_error("heads = 0\nvalue_heads = 4\n"), "0, since attention.heads is 0"));
  CHECK(contains(build_error("heads = 0\noutput_heads = 4\n"), "0, since attention.heads is 0"));
  CHECK(contains(build_error("heads = 2\ncombiner = 'mae'\nmae.kept_heads = [0, 1]\n"),
                 "no indices, since attention.mae.original_heads is 0"));
  CHECK(contains(build_error("heads = 2\ncombiner = 'mae'\nmae.original_heads = 4\nmae.kept_heads = [0]\n"),
                 "one index for each of the layer's 2 heads"));
  CHECK(contains(build_error("heads = 2\ncombiner = 'mae'\nmae.original_heads = 4\nmae.kept_heads = [0, 4]\n"),
                 "head indices from 0 to 3"));
  CHECK(contains(build_error("heads = 2\ncombiner = 'mixture-of-heads'\nmixture-of-heads.original_heads = "
                             "4\nmixture-of-heads.kept_heads = [1, 1]\n"),
                 "each head once"));
  // With a mixer that changes the number of heads, an additive mask must be shared by all heads.
  layers::Layer layer(
      "heads = 2\nvalue_heads = 3\nhead_size = 4\nmixer = 'talking-heads'\ntalking-heads.inner_heads = 3\n", 12);
  const at::Tensor x = normal({1, 4, 12}, 1);
  Mask mask;
  mask.additive = at::zeros({1, 2, 4, 4});
  CHECK(contains(refusal([&] { layer(x, x, mask); }), "an additive mask that all heads share"));
}

TEST_CASE("least_important_heads() selects the heads with the lowest scores in the model or in each layer", "[prune]") {
  using analysis::Head;
  using Set = std::set<Head>;
  const AttentionKind kind = AttentionKind::decoder_self;
  const std::map<AttentionKind, analysis::LayerScores> scores = {{kind, {{3, 1, 2}, {}, {1, 1, 5, 9}}}};
  auto least_heads = [&](const analysis::PruneAmount& amount, bool per_layer = false) {
    return analysis::least_important_heads(scores, amount, per_layer, "--count").at(kind);
  };
  CHECK((least_heads({1, 0}) == Set{{0, 1}}));
  CHECK((least_heads({3, 0}) == Set{{0, 1}, {2, 0}, {2, 1}}));
  CHECK((least_heads({4, 0}) == Set{{0, 1}, {0, 2}, {2, 0}, {2, 1}}));
  CHECK((least_heads({0, 0.3}) == Set{{0, 1}, {2, 0}}));  // 30% of 7 heads is 2.1
  CHECK(least_heads({0, 1}).size() == 7);
  CHECK((least_heads({2, 0}, true) == Set{{0, 1}, {0, 2}, {2, 0}, {2, 1}}));
  CHECK((least_heads({0, 0.5}, true) == Set{{0, 1}, {2, 0}, {2, 1}}));
  CHECK(contains(refusal([&] { least_heads({8, 0}); }), "at most 7, the number of heads; found 8"));
  CHECK(contains(refusal([&] { least_heads({4, 0}, true); }), "at most 3, the number of heads of layer 0; found 4"));
  CHECK(contains(refusal([&] { least_heads({0, 0.1}); }), "at least one head"));
  CHECK(analysis::parse_fraction("12.5%", "") == 0.125);
  for (const char* text : {"12", "101%", "-1%", "%", "1e1%"})
    CHECK(contains(refusal([&] { analysis::parse_fraction(text, "--fraction"); }), "0% to 100%"));
}

TEST_CASE("parse_heads() reads LAYER:HEAD and KIND:LAYER:HEAD and refuses unknown kinds and repeated heads",
          "[prune]") {
  const AttentionKind self = AttentionKind::decoder_self, cross = AttentionKind::decoder_cross;
  CHECK(
      (analysis::parse_heads({"0:1", "decoder.self:5:7"}, {self}, "") == analysis::HeadSet{{self, {{0, 1}, {5, 7}}}}));
  CHECK((analysis::parse_heads({"decoder.cross:0:1", "decoder.self:0:1"}, {self, cross}, "") ==
         analysis::HeadSet{{self, {{0, 1}}}, {cross, {{0, 1}}}}));
  auto parse_error = [&](std::vector<std::string> texts, std::vector<AttentionKind> kinds) {
    return refusal([&] { analysis::parse_heads(texts, kinds, "--heads"); });
  };
  CHECK(contains(parse_error({"0:1"}, {self, cross}), "KIND:LAYER:HEAD"));
  CHECK(contains(parse_error({"0.1"}, {self}), "LAYER:HEAD"));
  CHECK(contains(parse_error({"nope:0:1"}, {self}), "one of"));
  CHECK(contains(parse_error({"decoder.cross:0:1"}, {self}),
                 "a kind of attention that the model has: decoder.self; found 'decoder.cross:0:1'"));
  CHECK(contains(parse_error({"0:1", "decoder.self:0:1"}, {self}), "each head once"));
}
