#include "attention/layer.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "attention/causal_product.h"
#include "attention/fused/cached_attention.h"
#include "attention/fused/fused_cpu.h"
#include "attention/fused/fused_gpu.h"
#include "attention/fused/mixed_cpu.h"
#include "base/log.h"
#include "base/text.h"
#include "nn/device.h"
#include "nn/ops.h"

namespace mh::attention {

Stages make_stages(const AttentionOptions& options, const Shape& shape) {
  const auto make = [&](auto& registry, const char* key, const std::string& name) {
    const auto chosen = options.stages.find(name);
    return registry.make(name, key)->make(chosen != options.stages.end() ? chosen->second.get() : nullptr, shape);
  };
  Stages made;
  made.pairing = make(pairings(), "attention.pairing", options.pairing);
  made.score = make(scores(), "attention.score", options.score);
  made.normaliser = make(normalisers(), "attention.normaliser", options.normaliser);
  made.mixer = make(mixers(), "attention.mixer", options.mixer);
  made.combiner = make(combiners(), "attention.combiner", options.combiner);
  return made;
}

AttentionLayer::AttentionLayer(nn::ParameterList& parameters, const AttentionOptions& options, const Shape& shape,
                               const Inits& inits)
    : shape_(shape), options_(options) {
  using nn::HeadRole;
  auto weight = [&](const char* part, int64_t out, int64_t in, const nn::Init& init, HeadRole role, HeadSide side) {
    nn::Traits traits{init, true, true, {{role == HeadRole::output ? 1 : 0, shape.heads_of(side), side}}};
    traits.role = role;
    return &parameters.add(shape.name + part, {out, in}, traits);
  };
  auto output_bias = [&] {
    if (!options.bias) return;
    nn::Traits traits{nn::Init::constant(0), false};
    traits.role = HeadRole::output;
    output_bias_ = &parameters.add(shape.name + ".output.bias", {shape.width}, traits);
  };
  if (shape.heads == 0) {
    output_bias();
    return;
  }
  stages_ = make_stages(options_, shape_);
  check_heads();
  auto projection = [&](const std::string& part, int64_t size, HeadSide side, nn::Parameter*& of_bias) {
    size *= shape.heads_of(side);
    nn::Parameter* made =
        weight((part + ".weight").c_str(), size, shape.width, inits.query_key_value, HeadRole::projection, side);
    if (!options.bias) return made;
    nn::Traits traits{inits.query_key_value_bias, false, false, {{0, shape.heads_of(side), side}}};
    traits.role = HeadRole::projection;
    of_bias = &parameters.add(shape.name + part + ".bias", {size}, traits);
    return made;
  };
  query_ = projection(".query", shape.key_size, HeadSide::score, query_bias_);
  if (stages_.score->uses_keys()) key_ = projection(".key", shape.key_size, HeadSide::score, key_bias_);
  value_ = projection(".value", shape.value_size, HeadSide::value, value_bias_);
  stages_.each(options_, [&](Stage& stage, const char* what, const std::string& name) {
    const Places p = stage.places();
    const bool cross = shape.kind == Kind::decoder_cross, causal = shape.kind == Kind::decoder_self;
    const char* missing = cross && !p.cross     ? "cross-attention"
                          : causal && !p.causal ? "a causal model"
                          : !cross && !p.self   ? "self-attention"
                                                : nullptr;
    if (missing != nullptr)
      throw Error(Exit::usage,
                  Problem{str(shape.name, ", ", what, " '", name, "'"), str("a stage that can act in ", missing),
                          "one that cannot", str("choose another for attention.", name_of(shape.kind))});
    parameters.set_role(role_of(stage));
    stage.add_parameters(parameters, shape_);
    parameters.set_role(HeadRole::none);
  });
  output_ = weight(".output.weight", shape.width, shape.output_heads * shape.value_size, inits.output, HeadRole::output,
                   HeadSide::output);
  output_bias();
  dispatcher_ = Dispatcher(view());
}

// Where nothing maps between two sides, their heads are one thing.
void AttentionLayer::check_heads() const {
  auto refuse = [&](const char* key, const std::string& between, int64_t expected, int64_t found) {
    throw Error(Exit::usage, Problem{str(shape_.name, ", attention.", key), str(expected, ", the heads of the layer"),
                                     str(found), "for another number take a " + between});
  };
  if (shape_.value_heads != shape_.heads && !stages_.mixer->maps())
    refuse("value_heads", "mixer that maps from heads to heads", shape_.heads, shape_.value_heads);
  if (shape_.output_heads != shape_.value_heads && !stages_.combiner->mixes())
    refuse("output_heads", "combiner that mixes them", shape_.value_heads, shape_.output_heads);
}

nn::HeadRole AttentionLayer::role_of(const Stage& stage) const {
  using nn::HeadRole;
  if (&stage == stages_.mixer.get())
    return stages_.mixer->mixes() == Mixes::nothing ? HeadRole::stage : HeadRole::mixing;
  if (&stage != stages_.combiner.get()) return HeadRole::stage;
  return stages_.combiner->mixes() ? HeadRole::mixing : stages_.combiner->weighs() ? HeadRole::gate : HeadRole::stage;
}

at::Tensor AttentionLayer::folded() const {
  return stages_.combiner != nullptr ? stages_.combiner->folded() : at::Tensor();
}

AttentionOptions AttentionLayer::without_combiner() const {
  AttentionOptions left = options_;
  left.combiner = AttentionOptions().combiner;
  left.output_heads = 0;
  return left;
}

bool AttentionLayer::can_part(HeadSide side) const {
  if (shape_.heads == 0) return false;
  return side == HeadSide::value || (side == HeadSide::score ? stages_.mixer->maps() : stages_.combiner->mixes());
}

AttentionOptions AttentionLayer::keep(const KeptHeads& kept) const {
  auto refuse = [&](const std::string& expected, const std::string& found, const std::string& next) {
    throw Error(Exit::usage, Problem{shape_.name, expected, found, next});
  };
  if (kept.score != kept.value && !can_part(HeadSide::score))
    refuse("score heads that are cut together with their value heads", str("others, with mixer '", options_.mixer, "'"),
           "cut whole heads");
  if (kept.output != kept.value && !can_part(HeadSide::output))
    refuse("output heads that are cut together with their value heads",
           str("others, with combiner '", options_.combiner, "'"), "cut whole heads");
  AttentionOptions left = options_;
  if (kept.value.empty() || kept.output.empty() ||
      (kept.score.empty() && stages_.mixer->mixes() == Mixes::probabilities)) {
    left.heads = left.value_heads = left.output_heads = 0;
    return left;
  }
  if (kept.score.empty())
    refuse("a score head that stays, since without logits to mix attention is even", "none", "cut whole heads");
  left.heads = static_cast<int64_t>(kept.score.size());
  const auto values = static_cast<int64_t>(kept.value.size()), outputs = static_cast<int64_t>(kept.output.size());
  left.value_heads = values == left.heads ? 0 : values;
  left.output_heads = outputs == values ? 0 : outputs;
  left.head_size = shape_.key_size;
  left.value_size = shape_.value_size == shape_.key_size ? 0 : shape_.value_size;
  stages_.each(options_, [&](const Stage& stage, const char*, const std::string& name) {
    if (auto changed = stage.keep(kept, shape_)) left.stages[name] = std::move(changed);
  });
  return left;
}

bool AttentionLayer::by_query() const {
  bool all = true;
  stages_.each(options_, [&](const Stage& stage, const char*, const std::string&) { all = all && stage.by_query(); });
  return all;
}

Places AttentionLayer::places() const {
  Places all;
  stages_.each(options_, [&](const Stage& stage, const char*, const std::string&) {
    const Places p = stage.places();
    all = {all.self && p.self, all.causal && p.causal, all.cross && p.cross, all.memory && p.memory,
           all.incremental && p.incremental};
  });
  return all;
}

std::string AttentionLayer::draws() const {
  std::string found;
  stages_.each(options_, [&](const Stage& stage, const char* what, const std::string& name) {
    if (stage.draws()) found = str(what, " '", name, "'");
  });
  return found;
}

std::pair<int64_t, std::string> AttentionLayer::longest() const {
  std::pair<int64_t, std::string> least;
  stages_.each(options_, [&](const Stage& stage, const char*, const std::string& name) {
    if (const int64_t length = stage.longest(); length > 0 && (least.first == 0 || length < least.first))
      least = {length, str("attention.", name, ".length")};
  });
  return least;
}

namespace {

// (B, T, h*size) -> (B, h, T, size)
at::Tensor split_heads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

}  // namespace

AttentionLayer::Projected AttentionLayer::project(const at::Tensor& query_input, const at::Tensor& key_input,
                                                  Cache* cache) {
  const int64_t h = shape_.heads, hv = shape_.value_heads;
  const int64_t queries = h * shape_.key_size, values = hv * shape_.value_size;
  const int64_t keys = key_ != nullptr ? queries : 0;  // a score that reads no keys leaves them (B, h, Tk, 0)
  Projected p;
  if (shape_.kind == Kind::decoder_cross || !query_input.is_same(key_input)) {
    p.q = split_heads(nn::linear(query_input, {query_}, {query_bias_}), h);
    const bool made = cache != nullptr && shape_.kind == Kind::decoder_cross && cache->length() > 0;
    if (made) {
      std::tie(p.k, p.v) = cache->all();
      p.cached = true;
      return p;
    }
    at::Tensor kv = nn::linear(key_input, {key_, value_}, {key_bias_, value_bias_});
    p.k = split_heads(kv.narrow(-1, 0, keys), h);
    p.v = split_heads(kv.narrow(-1, keys, values), hv);
  } else {
    // One product for all three: the weights are small beside the activations, so joining them costs little.
    at::Tensor qkv = nn::linear(query_input, {query_, key_, value_}, {query_bias_, key_bias_, value_bias_});
    if (key_ != nullptr) {
      auto parts = split_projection(qkv, h, shape_.key_size, hv, shape_.value_size);
      p = {parts[0], parts[1], parts[2], false};
    } else {
      p.q = split_heads(qkv.narrow(-1, 0, queries), h);
      p.v = split_heads(qkv.narrow(-1, queries, values), hv);
      p.k = p.v.narrow(-1, 0, 0);
    }
  }
  return p;
}

// A step of decoding, whose key and value are written behind those of the cache and read where all of them are, as no
// stage asks for their tensors. Undefined, and nothing is written, where one does.
at::Tensor AttentionLayer::read_in_place(const Context& c, Cache& cache) {
  const Mask& mask = c.mask;
  const bool sees_all = mask.causal && mask.offset == cache.length() && mask.window == 0 &&
                        !mask.key_lengths.defined() && !mask.additive.defined();
  if (shape_.kind != Kind::decoder_self || !sees_all || c.q.size(2) != 1 || c.k.size(2) != 1 || c.step.training ||
      c10::GradMode::is_enabled() || c.observer != nullptr || !c.pairs.empty() || stages_.score->has_positions() ||
      !takes_fused(false))
    return {};
  if (const at::Tensor matrix = stages_.mixer->matrix(c); matrix.defined()) {
    FusedPolicy policy;
    policy.normaliser = stages_.normaliser->fused();
    return has_mixed_cpu(c.q, c.k, c.v) ? mixed_in_place(c.q, c.k, c.v, matrix, policy, cache) : at::Tensor();
  }
  return stages_.normaliser->fused() == kernels::Normaliser::softmax && has_fused_cpu(c.q, c.k, c.v)
             ? cached_attention(c.q, c.k, c.v, cache)
             : at::Tensor();
}

LayerView AttentionLayer::view() const {
  const bool has_heads = output_ != nullptr;
  return {shape_,
          options_,
          stages_,
          has_heads ? output_->value().scalar_type() : at::kFloat,
          has_heads && output_->value().is_cuda(),
          scales_.score.defined()};
}

std::string AttentionLayer::probabilities_stream() const {
  return std::string(name_of(shape_.kind)) + ".probabilities";
}

at::Tensor AttentionLayer::fused(Context& c, const Choice& choice) {
  const int64_t queries = c.q.size(2), keys = c.k.size(2);
  const Mask& mask = c.mask;
  const MaskForm& form = choice.mask;
  if (choice.kernel == Kernel::library) return by_library(c, form.square);
  FusedPolicy policy{form.queries_are_last && (!form.hides_nothing || mask.window > 0),
                     form.queries_are_last ? mask.window : 0, mask.key_lengths, stages_.normaliser->fused()};
  stages_.score->positions(c, policy.relative);
  // By the kernel, where the combiner's weight is one number for each head of a row.
  c.weighed = c.weights.defined() && c.weights.dim() < 3;
  if (c.weighed) policy.head_scales = c.weights;
  policy.key_heads = c.pairs;
  const bool mixes = choice.matrix.defined();
  policy.dropped_before_mixing = mixes && stages_.mixer->dropout_before();
  if (drops(c.step.training)) {
    const int64_t heads = mixes && !policy.dropped_before_mixing ? shape_.value_heads : shape_.heads;
    policy.drops = nn::dropout_from(heads * queries * keys, options_.dropout, c.step, probabilities_stream(),
                                    static_cast<uint32_t>(shape_.layer));
  }
  switch (choice.kernel) {
    case Kernel::mixed_gpu:
      return mixed_gpu(choice.gpu, c.q, c.k, c.v, choice.matrix, policy);
    case Kernel::mixed_cpu:
      return mixed_cpu(c.q, c.k, c.v, choice.matrix, policy);
    case Kernel::fused_gpu:
      return fused_gpu(choice.gpu, c.q, c.k, c.v, policy);
    default:
      return fused_cpu(c.q, c.k, c.v, policy);
  }
}

at::Tensor AttentionLayer::by_library(Context& c, bool square) const {
  take_pairs(c);
  std::optional<at::Tensor> given;
  if (!square) {
    const int64_t queries = c.q.size(2), keys = c.k.size(2);
    at::Tensor ok = allowed(c.mask, queries, keys, c.q.device());
    at::Tensor bias = c.mask.additive;
    if (ok.defined()) {
      at::Tensor hidden = at::zeros(ok.sizes(), c.q.options()).masked_fill(~ok, -INFINITY);
      bias = bias.defined() ? bias + hidden : hidden;
    }
    if (bias.defined()) given = bias.to(c.q.scalar_type()).expand({c.q.size(0), shape_.heads, queries, keys});
  }
  return at::scaled_dot_product_attention(c.q, c.k, c.v, given, 0.0, square);
}

bool AttentionLayer::has_side(HeadSide side) const {
  if (shape_.heads == 0) return false;
  return side == HeadSide::value ||
         (side == HeadSide::score ? stages_.mixer->mixes() != Mixes::nothing : stages_.combiner->mixes());
}

void AttentionLayer::set_head_scales(const HeadScales& scales) {
  if (scales.score.defined() && shape_.heads > 0 && !has_side(HeadSide::score))
    throw Error(Exit::usage, Problem{shape_.name, "a mixer, for score heads that are not value heads",
                                     str("mixer '", options_.mixer, "'"), "take both sides of a head together"});
  scales_ = scales;
}

namespace {

// x (B, h, …) by a scale of HeadScales.
at::Tensor scaled(const at::Tensor& x, const at::Tensor& scale, int64_t copies) {
  at::Tensor s = scale.to(x.scalar_type());
  if (copies > 0) s = s.repeat_interleave(x.size(0) / copies, 0);
  if (s.dim() == 1) s = s.unsqueeze(0);
  while (s.dim() < x.dim()) s = s.unsqueeze(-1);
  return x * s;
}

}  // namespace

at::Tensor AttentionLayer::copied(const at::Tensor& x) const {
  if (!x.defined() || scales_.copies == 0) return x;
  const auto& from = scales_.from;
  const int64_t given = from.empty() ? 1 : *std::max_element(from.begin(), from.end()) + 1;
  if (given == scales_.copies) return x;
  const at::Tensor blocks = x.unflatten(0, {given, x.size(0) / given});
  std::vector<at::Tensor> parts{x};
  for (int64_t f = given; f < scales_.copies; ++f)
    parts.push_back(blocks[from.empty() ? 0 : from[static_cast<size_t>(f)]]);
  return at::cat(parts);
}

void AttentionLayer::copy_weights(Context& c) const {
  if (c.weights.defined() && c.weights.dim() > 1) c.weights = copied(c.weights);
}

at::Tensor AttentionLayer::to_mixer(Context& c, const at::Tensor& x) {
  at::Tensor y = c.observer != nullptr ? c.observer->mixer_inputs(shape_, x) : x;
  if (!scales_.score.defined()) return y;
  if (at::Tensor& a = c.mask.additive; a.defined() && a.dim() == 4 && a.size(0) == y.size(0)) a = copied(a);
  for (at::Tensor* t : {&y, &c.q, &c.k, &c.v, &c.query_input, &c.key_input, &c.mask.key_lengths, &c.mask.query_lengths})
    *t = copied(*t);
  copy_weights(c);
  return scaled(y, scales_.score, scales_.copies);
}

// Keys and values as the pairing says.
void AttentionLayer::take_pairs(Context& c) {
  if (c.pairs.empty()) return;
  const at::Tensor heads = nn::constant_on(c.v.device(), c.pairs);
  for (at::Tensor* t : {&c.k, &c.v}) *t = t->index_select(1, heads);
}

at::Tensor AttentionLayer::composed(Context& c) {
  take_pairs(c);
  auto for_all_rows = [&](const at::Tensor& x) {  // (1 or B, h, Tq, Tk) -> (B, h, Tq, Tk)
    const int64_t rows = c.v.size(0);
    return x.size(0) == rows ? x : x.expand({rows, x.size(1), x.size(2), x.size(3)});
  };
  if (c.observer != nullptr && c.observer->wants_scores()) {
    const bool causal = std::exchange(c.mask.causal, false);  // so that nothing is left out
    stages_.score->score(c);
    c.mask.causal = causal;
    c.observer->scores(shape_, for_all_rows(c.logits));
  } else {
    stages_.score->score(c);
  }
  // What all rows share is made once, unless something tells them apart.
  if (stages_.mixer->mixes() != Mixes::nothing || c.mask.key_lengths.defined()) c.logits = for_all_rows(c.logits);
  if (stages_.mixer->mixes() == Mixes::logits) c.logits = to_mixer(c, c.logits);
  c.logits = stages_.mixer->mix_logits(c, c.logits);
  // Probabilities are taken in fp32 whatever the products' type.
  at::Tensor logits = std::exchange(c.logits, {});  // as large as the probabilities, and of no more use after them
  if (logits.scalar_type() == at::kBFloat16) logits = logits.to(at::kFloat);
  if (const at::Tensor& a = c.mask.additive; a.defined()) {
    if (a.dim() > 2 && a.size(-3) > 1 && a.size(-3) != logits.size(1))
      throw Error(Exit::usage,
                  Problem{shape_.name, "an additive mask that is the same for all heads, which a mixer makes others of",
                          str("one for ", a.size(-3), " heads"), ""});
    logits = logits + a;
  }
  at::Tensor p = stages_.normaliser->normalise(logits, allowed(c.mask, c.q.size(2), c.k.size(2), c.q.device()));
  logits.reset();
  auto drop = [&](const at::Tensor& x) {
    return nn::dropout(x, options_.dropout, c.step, probabilities_stream(), static_cast<uint32_t>(shape_.layer));
  };
  const bool dropping = drops(c.step.training);
  if (dropping || c.observer != nullptr) p = for_all_rows(p);
  if (stages_.mixer->mixes() == Mixes::probabilities) p = to_mixer(c, p);
  if (stages_.mixer->dropout_before()) p = drop(p);
  if ((stages_.mixer->dropout_before() || !dropping) && c.observer == nullptr)
    if (at::Tensor z = stages_.mixer->mix_values(c, p); z.defined()) return z;
  c.probabilities = stages_.mixer->mix(c, p);
  if (c.observer != nullptr) c.observer->probabilities(shape_, c.probabilities);
  p = stages_.mixer->dropout_before() ? c.probabilities : drop(c.probabilities);
  return product_with_values(p.to(c.v.scalar_type()), c.v, c.mask.causal_offset());
}

at::Tensor AttentionLayer::without_heads(const at::Tensor& query_input, const at::Tensor& key_input,
                                         Cache* cache) const {
  if (cache != nullptr && shape_.kind != Kind::decoder_cross) cache->pass(query_input.size(1));
  else if (cache != nullptr && cache->length() == 0) cache->pass(key_input.size(1));
  auto sizes = query_input.sizes().vec();
  sizes[0] *= std::max<int64_t>(1, scales_.copies);
  const at::Tensor none = at::zeros(sizes, query_input.options());
  return output_bias_ != nullptr ? none + output_bias_->value() : none;
}

at::Tensor AttentionLayer::forward(const at::Tensor& query_input, const at::Tensor& key_input, const Mask& mask,
                                   const nn::ForwardContext& step, Cache* cache, Observer* observer) {
  if (shape_.heads == 0) return without_heads(query_input, key_input, cache);
  const Projected p = project(query_input, key_input, cache);
  Context c{shape_, step, mask, query_input, key_input, p.q, p.k, p.v};
  if (cache != nullptr) c.state = &cache->state();
  c.observer = observer;
  c.keys = c.v.size(2) + (cache != nullptr && !p.cached ? cache->length() : 0);
  stages_.pairing->pair(c);
  c.weights = stages_.combiner->weights(c);
  if (cache != nullptr && !p.cached) {
    c.head_outputs = read_in_place(c, *cache);
    if (!c.head_outputs.defined()) std::tie(c.k, c.v) = cache->append(c.k, c.v);
  }
  if (!c.head_outputs.defined()) {
    const Choice choice = dispatcher_.choose(view(), c);
    if (choice.kernel == Kernel::composed) dispatcher_.report_composed(view(), c, choice);
    c.head_outputs = choice.kernel == Kernel::composed ? composed(c) : fused(c, choice);
  }
  if (observer != nullptr) c.head_outputs = observer->head_outputs(shape_, c.head_outputs);
  const int64_t rows = query_input.size(0);  // unless copies of them were made on the way
  if (scales_.value.defined()) {
    if (c.head_outputs.size(0) == rows) {
      c.head_outputs = copied(c.head_outputs);
      copy_weights(c);
    }
    c.head_outputs = scaled(c.head_outputs, scales_.value, scales_.copies);
  }
  at::Tensor joined = stages_.combiner->combine(c, c.head_outputs);
  if (observer != nullptr || scales_.output.defined()) {
    at::Tensor blocks = joined.view({joined.size(0), joined.size(1), -1, shape_.value_size});
    if (observer != nullptr) blocks = observer->combined(shape_, blocks);
    if (scales_.output.defined()) {
      if (blocks.size(0) == rows) blocks = copied(blocks);
      blocks = scaled(blocks.transpose(1, 2), scales_.output, scales_.copies).transpose(1, 2);
    }
    joined = blocks.flatten(2);
  }
  return nn::linear(joined, {output_}, {output_bias_});
}

}  // namespace mh::attention
