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

Path path_named(const std::string& name) {
  return name == "composed" ? Path::composed : name == "fused" ? Path::fused : Path::automatic;
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
  auto chosen = [&](const std::string& name) {
    auto it = options_.stages.find(name);
    return it == options_.stages.end() ? nullptr : it->second.get();
  };
  auto make = [&](auto& registry, const char* key, const std::string& name) {
    return registry.make(name, key)->make(chosen(name), shape_);
  };
  pairing_ = make(pairings(), "attention.pairing", options.pairing);
  score_ = make(scores(), "attention.score", options.score);
  normaliser_ = make(normalisers(), "attention.normaliser", options.normaliser);
  mixer_ = make(mixers(), "attention.mixer", options.mixer);
  combiner_ = make(combiners(), "attention.combiner", options.combiner);

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
  if (score_->uses_keys()) key_ = projection(".key", shape.key_size, HeadSide::score, key_bias_);
  value_ = projection(".value", shape.value_size, HeadSide::value, value_bias_);
  each_stage([&](Stage& stage, const char* what, const std::string& name) {
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
  each_stage([&](const Stage& stage, const char* what, const std::string& name) {
    std::string reason = stage.unfused_because();
    if (!reason.empty()) unfused_reasons_.push_back(str(what, " '", name, "': ", reason));
  });
  if (mixer_->mixes() == Mixes::nothing && shape_.value_size != shape_.key_size)
    unfused_reasons_.push_back(str("value_size ", shape_.value_size, " differs from head_size ", shape_.key_size));
}

// Where nothing maps between two sides, their heads are one thing.
void AttentionLayer::check_heads() const {
  auto refuse = [&](const char* key, const std::string& between, int64_t expected, int64_t found) {
    throw Error(Exit::usage, Problem{str(shape_.name, ", attention.", key), str(expected, ", the heads of the layer"),
                                     str(found), "for another number take a " + between});
  };
  if (shape_.value_heads != shape_.heads && !mixer_->maps())
    refuse("value_heads", "mixer that maps from heads to heads", shape_.heads, shape_.value_heads);
  if (shape_.output_heads != shape_.value_heads && !combiner_->mixes())
    refuse("output_heads", "combiner that mixes them", shape_.value_heads, shape_.output_heads);
}

nn::HeadRole AttentionLayer::role_of(const Stage& stage) const {
  using nn::HeadRole;
  if (&stage == mixer_.get()) return mixer_->mixes() == Mixes::nothing ? HeadRole::stage : HeadRole::mixing;
  if (&stage != combiner_.get()) return HeadRole::stage;
  return combiner_->mixes() ? HeadRole::mixing : combiner_->weighs() ? HeadRole::gate : HeadRole::stage;
}

at::Tensor AttentionLayer::folded() const { return combiner_ != nullptr ? combiner_->folded() : at::Tensor(); }

AttentionOptions AttentionLayer::without_combiner() const {
  AttentionOptions left = options_;
  left.combiner = AttentionOptions().combiner;
  left.output_heads = 0;
  return left;
}

bool AttentionLayer::can_part(HeadSide side) const {
  if (shape_.heads == 0) return false;
  return side == HeadSide::value || (side == HeadSide::score ? mixer_->maps() : combiner_->mixes());
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
  if (kept.value.empty() || kept.output.empty() || (kept.score.empty() && mixer_->mixes() == Mixes::probabilities)) {
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
  each_stage([&](const Stage& stage, const char*, const std::string& name) {
    if (auto changed = stage.keep(kept, shape_)) left.stages[name] = std::move(changed);
  });
  return left;
}

template <class Visit>
void AttentionLayer::each_stage(const Visit& visit) const {
  if (pairing_ == nullptr) return;  // no heads
  visit(*pairing_, "pairing", options_.pairing);
  visit(*score_, "score", options_.score);
  visit(*normaliser_, "normaliser", options_.normaliser);
  visit(*mixer_, "mixer", options_.mixer);
  visit(*combiner_, "combiner", options_.combiner);
}

bool AttentionLayer::by_query() const {
  bool all = true;
  each_stage([&](const Stage& stage, const char*, const std::string&) { all = all && stage.by_query(); });
  return all;
}

Places AttentionLayer::places() const {
  Places all;
  each_stage([&](const Stage& stage, const char*, const std::string&) {
    const Places p = stage.places();
    all = {all.self && p.self, all.causal && p.causal, all.cross && p.cross, all.memory && p.memory,
           all.incremental && p.incremental};
  });
  return all;
}

std::string AttentionLayer::draws() const {
  std::string found;
  each_stage([&](const Stage& stage, const char* what, const std::string& name) {
    if (stage.draws()) found = str(what, " '", name, "'");
  });
  return found;
}

std::pair<int64_t, std::string> AttentionLayer::longest() const {
  std::pair<int64_t, std::string> least;
  each_stage([&](const Stage& stage, const char*, const std::string& name) {
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
      c10::GradMode::is_enabled() || c.observer != nullptr || !c.pairs.empty() || score_->has_positions() ||
      !takes_fused(false))
    return {};
  if (const at::Tensor matrix = mixer_->matrix(c); matrix.defined()) {
    FusedPolicy policy;
    policy.normaliser = normaliser_->fused();
    return has_mixed_cpu(c.q, c.k, c.v) ? mixed_in_place(c.q, c.k, c.v, matrix, policy, cache) : at::Tensor();
  }
  return normaliser_->fused() == kernels::Normaliser::softmax && has_fused_cpu(c.q, c.k, c.v)
             ? cached_attention(c.q, c.k, c.v, cache)
             : at::Tensor();
}

std::vector<std::string> AttentionLayer::unfused_reasons(bool training) const {
  std::vector<std::string> reasons = unfused_reasons_;
  if (scales_.score.defined()) reasons.emplace_back("score heads are scaled before they are mixed");
  if (shape_.heads == 0 || !reasons.empty()) return reasons;
  const bool mixes = mixer_->mixes() != Mixes::nothing;
  const auto alone = left_to_the_kernel(training);
  if (output_->value().is_cuda()) {
    if (alone.empty()) return reasons;
    const std::string lacks = unfused_on_gpu(output_->value().scalar_type(), shape_, mixes, score_->has_positions());
    if (!lacks.empty()) reasons.push_back(str(join(alone, ", "), ": ", lacks));
    return reasons;
  }
  for (const std::string& what : alone)
    if (!mixes && shape_.key_size % 16 != 0)
      reasons.push_back(str(what, ", with head_size ", shape_.key_size, ", no multiple of 16"));
  return reasons;
}

std::vector<std::string> AttentionLayer::left_to_the_kernel(bool training) const {
  std::vector<std::string> what;
  if (mixer_->mixes() != Mixes::nothing) what.emplace_back("mixed heads");
  if (score_->has_positions()) what.emplace_back("relative positions");
  if (normaliser_->fused() != kernels::Normaliser::softmax) what.emplace_back("Sigsoftmax");
  if (drops(training)) what.emplace_back("dropout of the probabilities");
  return what;
}

bool AttentionLayer::takes_fused(bool training) const {
  return path_ != Path::composed && unfused_reasons(training).empty();
}

std::string AttentionLayer::describe_path(bool training) const {
  if (shape_.heads == 0) return "no heads are left";
  if (path_ == Path::composed) return "composed, as asked";
  const auto reasons = unfused_reasons(training);
  return reasons.empty() ? "fused" : "composed: " + join(reasons, "; ");
}

void AttentionLayer::refuse_path(const char* expected, const std::vector<std::string>& reasons) const {
  throw Error(Exit::usage,
              Problem{shape_.name, expected, join(reasons, "; "), "use --attention auto, or change these"});
}

void AttentionLayer::require_fused(bool training) const {
  if (const auto reasons = unfused_reasons(training); !reasons.empty())
    refuse_path("a layer that the fused path can take", reasons);
}

std::string AttentionLayer::probabilities_stream() const {
  return std::string(name_of(shape_.kind)) + ".probabilities";
}

namespace {

// What a mask hides, as kernels read it. Keys before the queries, windows and numbers of real keys are part of a
// kernel's policy; any other mask is a tensor. A query after the keys of a cache may see all of them.
struct MaskForm {
  bool square;            // query t sees keys 0 … t of as many keys as queries, and nothing else is hidden
  bool queries_are_last;  // causal, the queries are the last of the keys, and all keys are real
  bool hides_nothing;     // no query is hidden from a key by causality
  bool is_plain;          // neither a window nor an additive mask
  bool has_policy;        // a kernel's policy describes it

  MaskForm(const Mask& mask, int64_t queries, int64_t keys)
      : square(false),
        queries_are_last(mask.causal && mask.offset + queries == keys && !mask.key_lengths.defined()),
        hides_nothing(!mask.causal || mask.offset + 1 >= keys),
        is_plain(mask.window == 0 && !mask.additive.defined()),
        has_policy(!mask.additive.defined() && (queries_are_last || (hides_nothing && mask.window == 0))) {
    square = is_plain && queries_are_last && mask.offset == 0;
  }
};

}  // namespace

// Without a reason, the composed path is the configured one or has nothing to compute.
struct AttentionLayer::Choice {
  enum class By { composed, mixed_cpu, mixed_gpu, fused_cpu, fused_gpu, library };
  By by = By::composed;
  std::vector<std::string> of_layer = {};  // reasons for the composed path that describe_path() names
  std::string of_pass = {};                // a reason that this pass alone has
  at::Tensor matrix = {};                  // the mixer's, where it mixes
  GpuKernels gpu = {};
};

AttentionLayer::Choice AttentionLayer::choose(const Context& c) const {
  using By = Choice::By;
  if (path_ == Path::composed) return {};
  const auto composed_because = [](const std::string& reason) { return Choice{By::composed, {}, reason}; };
  if (auto reasons = unfused_reasons(c.step.training); !reasons.empty())
    return scales_.score.defined() ? composed_because(join(reasons, "; "))  // set after describe_path() is logged
                                   : Choice{By::composed, std::move(reasons)};
  if (c.observer != nullptr)
    return composed_because("an observer reads the probabilities, which the fused path never forms");
  if (c.q.numel() == 0 || c.k.numel() == 0) return {};  // nothing to compute on either path
  if (path_ != Path::fused)                             // the fused form computes such a pass too, only slower
    if (const std::string reason = score_->unfused_pass(c); !reason.empty()) return composed_because(reason);
  const MaskForm mask(c.mask, c.q.size(2), c.k.size(2));
  const auto alone = left_to_the_kernel(c.step.training);
  if (!mask.has_policy && !alone.empty())
    return composed_because(join(alone, ", ") + " with an additive mask or with a part of the keys");
  const auto no_kernel = [&] {
    return composed_because(str("no kernel for queries, keys and values of types ", c10::toString(c.q.scalar_type()),
                                ", ", c10::toString(c.k.scalar_type()), ", ", c10::toString(c.v.scalar_type())));
  };
  Choice choice;
  choice.gpu = gpu_kernels(c.q, c.k, c.v);
  choice.matrix = mixer_->matrix(c);
  if (choice.matrix.defined()) {
    if (choice.gpu.kernels != nullptr) choice.by = By::mixed_gpu;
    else if (has_mixed_cpu(c.q, c.k, c.v)) choice.by = By::mixed_cpu;
    else return no_kernel();
    return choice;
  }
  if (shape_.value_size != shape_.key_size)
    return composed_because(str("value_size ", shape_.value_size, " differs from head_size ", shape_.key_size,
                                " where mixer '", options_.mixer, "' mixes nothing"));
  // What the tensor library does without a mask of the size of all logits is left to it: on a GPU nobody is faster.
  const bool whole = mask.square || (mask.is_plain && !c.mask.causal && !c.mask.key_lengths.defined());
  if (mask.has_policy && has_fused_cpu(c.q, c.k, c.v)) choice.by = By::fused_cpu;
  else if (mask.has_policy && choice.gpu.kernels != nullptr && !(whole && alone.empty())) choice.by = By::fused_gpu;
  else if (alone.empty()) choice.by = By::library;
  else if (c.q.is_cpu() && shape_.key_size % 16 != 0)
    return composed_because(str(join(alone, ", "), ", with head_size ", shape_.key_size,
                                ", no multiple of 16, where mixer '", options_.mixer, "' mixes nothing"));
  else return no_kernel();
  return choice;
}

void AttentionLayer::report_composed(const Choice& choice) const {
  if (path_ == Path::fused && !choice.of_layer.empty())
    refuse_path("a layer that the fused path can take", choice.of_layer);
  if (path_ == Path::fused && !choice.of_pass.empty())
    refuse_path("a forward pass that the fused path can take", {choice.of_pass});
  // Whoever builds the model logs describe_path(), which names the layer's own reasons.
  if (!choice.of_pass.empty() && path_log_->first(shape_.kind, choice.of_pass))
    log_info(str("attention: ", name_of(shape_.kind), ": composed: ", choice.of_pass));
}

at::Tensor AttentionLayer::fused(Context& c, const Choice& choice) {
  using By = Choice::By;
  const int64_t queries = c.q.size(2), keys = c.k.size(2);
  const Mask& mask = c.mask;
  const MaskForm form(mask, queries, keys);
  if (choice.by == By::library) return by_library(c, form.square);
  FusedPolicy policy{form.queries_are_last && (!form.hides_nothing || mask.window > 0),
                     form.queries_are_last ? mask.window : 0, mask.key_lengths, normaliser_->fused()};
  score_->positions(c, policy.relative);
  // By the kernel, where the combiner's weight is one number for each head of a row.
  c.weighed = c.weights.defined() && c.weights.dim() < 3;
  if (c.weighed) policy.head_scales = c.weights;
  policy.key_heads = c.pairs;
  const bool mixes = choice.matrix.defined();
  policy.dropped_before_mixing = mixes && mixer_->dropout_before();
  if (drops(c.step.training)) {
    const int64_t heads = mixes && !policy.dropped_before_mixing ? shape_.value_heads : shape_.heads;
    policy.drops = nn::dropout_from(heads * queries * keys, options_.dropout, c.step, probabilities_stream(),
                                    static_cast<uint32_t>(shape_.layer));
  }
  switch (choice.by) {
    case By::mixed_gpu:
      return mixed_gpu(choice.gpu, c.q, c.k, c.v, choice.matrix, policy);
    case By::mixed_cpu:
      return mixed_cpu(c.q, c.k, c.v, choice.matrix, policy);
    case By::fused_gpu:
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
  return side == HeadSide::value || (side == HeadSide::score ? mixer_->mixes() != Mixes::nothing : combiner_->mixes());
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
    score_->score(c);
    c.mask.causal = causal;
    c.observer->scores(shape_, for_all_rows(c.logits));
  } else {
    score_->score(c);
  }
  // What all rows share is made once, unless something tells them apart.
  if (mixer_->mixes() != Mixes::nothing || c.mask.key_lengths.defined()) c.logits = for_all_rows(c.logits);
  if (mixer_->mixes() == Mixes::logits) c.logits = to_mixer(c, c.logits);
  c.logits = mixer_->mix_logits(c, c.logits);
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
  at::Tensor p = normaliser_->normalise(logits, allowed(c.mask, c.q.size(2), c.k.size(2), c.q.device()));
  logits.reset();
  auto drop = [&](const at::Tensor& x) {
    return nn::dropout(x, options_.dropout, c.step, probabilities_stream(), static_cast<uint32_t>(shape_.layer));
  };
  const bool dropping = drops(c.step.training);
  if (dropping || c.observer != nullptr) p = for_all_rows(p);
  if (mixer_->mixes() == Mixes::probabilities) p = to_mixer(c, p);
  if (mixer_->dropout_before()) p = drop(p);
  if ((mixer_->dropout_before() || !dropping) && c.observer == nullptr)
    if (at::Tensor z = mixer_->mix_values(c, p); z.defined()) return z;
  c.probabilities = mixer_->mix(c, p);
  if (c.observer != nullptr) c.observer->probabilities(shape_, c.probabilities);
  p = mixer_->dropout_before() ? c.probabilities : drop(c.probabilities);
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
  pairing_->pair(c);
  c.weights = combiner_->weights(c);
  if (cache != nullptr && !p.cached) {
    c.head_outputs = read_in_place(c, *cache);
    if (!c.head_outputs.defined()) std::tie(c.k, c.v) = cache->append(c.k, c.v);
  }
  if (!c.head_outputs.defined()) {
    const Choice choice = choose(c);
    if (choice.by == Choice::By::composed) report_composed(choice);
    c.head_outputs = choice.by == Choice::By::composed ? composed(c) : fused(c, choice);
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
  at::Tensor joined = combiner_->combine(c, c.head_outputs);
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
