// The constraints of the fused path and of its kernels, and the choice of a kernel for each forward pass.
#include "attention/dispatch.h"

#include <c10/core/GradMode.h>

#include <iterator>
#include <utility>

#include "attention/fused/attention_spec.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace mh::attention {

Path parse_attention_path(const std::string& name) {
  return name == "composed" ? Path::composed : name == "fused" ? Path::fused : Path::automatic;
}

MaskForm::MaskForm(const Mask& mask, int64_t num_queries, int64_t num_keys)
    : queries_are_last(mask.causal && mask.offset + num_queries == num_keys && !mask.key_lengths.defined()),
      causal_hides_no_key(!mask.causal || mask.offset + 1 >= num_keys),
      has_window(mask.window > 0),
      has_additive_mask(mask.additive.defined()) {
  is_square = !has_window && !has_additive_mask && queries_are_last && mask.offset == 0;
  // The kernels apply a two-sided window to queries and keys of equal positions only.
  const bool is_window_supported = !has_window || (!mask.causal && mask.offset == 0);
  is_supported_by_kernels = !has_additive_mask && (queries_are_last || (causal_hides_no_key && is_window_supported));
}

KernelFeatures::KernelFeatures(const AttentionOptions& options, const Stages& stages)
    : has_mixing(stages.mixer->mixer_input() != MixerInput::nothing),
      has_relative_positions(stages.score->has_relative_positions()),
      has_soft_cap(options.soft_cap > 0),
      has_position_bias(stages.position_bias->has_bias()),
      has_sinks(options.sink != Sink::none),
      normaliser_name(stages.normaliser->kernel_feature()),
      has_dropout(options.dropout > 0) {}

std::vector<std::string> KernelFeatures::names(bool training) const {
  std::vector<std::string> feature_names;
  if (has_mixing) feature_names.emplace_back("head mixing");
  if (has_relative_positions) feature_names.emplace_back("relative positions");
  if (has_soft_cap) feature_names.emplace_back("soft cap");
  if (has_position_bias) feature_names.emplace_back("position bias");
  if (has_sinks) feature_names.emplace_back("sinks");
  if (normaliser_name != nullptr) feature_names.emplace_back(normaliser_name);
  if (has_dropout && training) feature_names.emplace_back("dropout of the probabilities");
  return feature_names;
}

namespace {

// Sets `why`, if it is not null, to the concatenation of `reason_parts`, the reason why a constraint is not met.
// Returns false.
template <class... ReasonParts>
bool report_unmet(std::string* why, const ReasonParts&... reason_parts) {
  if (why != nullptr) *why = str(reason_parts...);
  return false;
}

std::string feature_names(const ConstraintInput& c) { return join(c.features.names(c.training), ", "); }

bool uses_features(const ConstraintInput& c) { return c.features.has_any(c.training); }

bool has_fused_form(const Stage& stage, const char* stage_type, const std::string& name, std::string* why) {
  const std::string reason = stage.why_not_fused();
  return reason.empty() || report_unmet(why, stage_type, " '", name, "': ", reason);
}

bool pairing_has_fused_form(const ConstraintInput& c, std::string* why) {
  return has_fused_form(*c.layer.stages.pairing, "pairing", c.layer.options.pairing, why);
}

bool score_has_fused_form(const ConstraintInput& c, std::string* why) {
  return has_fused_form(*c.layer.stages.score, "score", c.layer.options.score, why);
}

bool position_bias_has_fused_form(const ConstraintInput& c, std::string* why) {
  return has_fused_form(*c.layer.stages.position_bias, "position bias", c.layer.options.position_bias, why);
}

bool normaliser_has_fused_form(const ConstraintInput& c, std::string* why) {
  return has_fused_form(*c.layer.stages.normaliser, "normaliser", c.layer.options.normaliser, why);
}

bool mixer_has_fused_form(const ConstraintInput& c, std::string* why) {
  return has_fused_form(*c.layer.stages.mixer, "mixer", c.layer.options.mixer, why);
}

bool combiner_has_fused_form(const ConstraintInput& c, std::string* why) {
  const auto& combiners = c.layer.stages.combiners;
  for (size_t i = 0; i < combiners.size(); ++i)
    if (!has_fused_form(*combiners[i], "combiner", c.layer.options.combiner[i], why)) return false;
  return true;
}

bool value_size_is_head_size(const ConstraintInput& c, std::string* why) {
  const LayerSpec& s = c.layer.layer_spec;
  return c.features.has_mixing || s.value_size == s.key_size ||
         report_unmet(why, "value_size ", s.value_size, " differs from head_size ", s.key_size);
}

// Returns why the interceptor needs the composed path; null if it works on every path or if there is no interceptor.
const char* why_composed(const Interceptor* interceptor) {
  return interceptor != nullptr ? interceptor->why_composed() : nullptr;
}

bool interceptor_suits_fused(const ConstraintInput& c, std::string* why) {
  const char* reason = why_composed(c.layer.interceptor);
  return reason == nullptr || report_unmet(why, reason);
}

// Returns whether the layer needs the GPU kernels. SDPA computes a layer on a GPU if the layer uses no KernelFeatures.
bool needs_gpu_kernels(const ConstraintInput& c) { return c.layer.is_on_gpu && uses_features(c); }

// Returns whether `reason`, the result of a constraint of the GPU kernels, is empty.
bool has_no_gpu_reason(const ConstraintInput& c, std::string* why, const std::string& reason) {
  return reason.empty() || report_unmet(why, feature_names(c), ": ", reason);
}

bool gpu_supports_type(const ConstraintInput& c, std::string* why) {
  return !needs_gpu_kernels(c) || has_no_gpu_reason(c, why, why_no_gpu_type(c.layer.type));
}

bool build_has_gpu_kernels(const ConstraintInput& c, std::string* why) {
  return !needs_gpu_kernels(c) || has_no_gpu_reason(c, why, why_no_gpu_kernels(c.layer.type, c.layer.layer_spec));
}

bool gpu_adds_relative_positions(const ConstraintInput& c, std::string* why) {
  return !needs_gpu_kernels(c) || !c.features.has_relative_positions || c.features.has_mixing ||
         has_no_gpu_reason(c, why, why_no_gpu_relative_positions(c.layer.type, c.layer.layer_spec));
}

bool gpu_has_logit_terms(const ConstraintInput& c, std::string* why) {
  return !needs_gpu_kernels(c) || !c.features.has_logit_terms() ||
         has_no_gpu_reason(c, why,
                           why_no_gpu_logit_terms(c.layer.type, c.layer.layer_spec, c.features.has_mixing,
                                                  c.features.has_relative_positions));
}

bool gpu_mixes_heads(const ConstraintInput& c, std::string* why) {
  return !needs_gpu_kernels(c) || !c.features.has_mixing ||
         has_no_gpu_reason(c, why,
                           why_no_gpu_head_mixing(c.layer.type, c.layer.layer_spec, c.features.has_relative_positions));
}

// Returns whether the CPU kernels without head mixing support the head size of the layer.
bool is_cpu_head_size(const ConstraintInput& c) { return c.layer.layer_spec.key_size % 16 == 0; }

bool head_size_suits_cpu(const ConstraintInput& c, std::string* why) {
  if (c.layer.is_on_gpu || c.features.has_mixing || is_cpu_head_size(c) || !uses_features(c)) return true;
  if (why == nullptr) return false;
  std::vector<std::string> reasons;
  for (const std::string& feature : c.features.names(c.training))
    reasons.push_back(str(feature, " with head_size ", c.layer.layer_spec.key_size, ", which is not a multiple of 16"));
  return report_unmet(why, join(reasons, "; "));
}

bool observer_suits_fused(const ConstraintInput& c, std::string* why) {
  const char* reason = why_composed(c.pass->observer);
  return reason == nullptr || report_unmet(why, reason);
}

// Returns whether queries and keys have elements, since no kernel supports empty tensors. Models never pass empty
// tensors: a batch has at least one row, a row has at least one token, and a search stops when no hypothesis is left.
bool has_nonempty_tensors(const ConstraintInput& c, std::string* why) {
  return (c.pass->q.numel() > 0 && c.pass->k.numel() > 0) ||
         report_unmet(why, "queries of shape ", shape_text(c.pass->q.sizes()), " and keys of shape ",
                      shape_text(c.pass->k.sizes()), ", of which one is empty");
}

// Returns whether the fused path is at least as fast as the composed path, or is required by Path::fused.
bool fused_is_faster(const ConstraintInput& c, std::string* why) {
  return c.path == Path::fused || !c.layer.stages.score->prefers_composed(*c.pass, why);
}

bool sdpa_has_features(const ConstraintInput& c, std::string* why) {
  return !uses_features(c) || report_unmet(why, "SDPA has no ", feature_names(c));
}

bool mask_suits_kernels(const ConstraintInput& c, std::string* why) {
  return c.choice.mask.is_supported_by_kernels ||
         report_unmet(why, uses_features(c) ? feature_names(c) + " with " : "",
                      "a mask that the fused kernels do not support, such as an additive mask");
}

bool value_size_suits_kernels_without_mixing(const ConstraintInput& c, std::string* why) {
  const LayerSpec& s = c.layer.layer_spec;
  return s.value_size == s.key_size ||
         report_unmet(why, "value_size ", s.value_size, " differs from head_size ", s.key_size,
                      " in a forward pass where mixer '", c.layer.options.mixer, "' mixes no heads");
}

bool head_size_suits_cpu_without_mixing(const ConstraintInput& c, std::string* why) {
  return is_cpu_head_size(c) ||
         report_unmet(why, uses_features(c) ? feature_names(c) + " with " : "", "head_size ",
                      c.layer.layer_spec.key_size, ", which is not a multiple of 16",
                      ", in a forward pass where mixer '", c.layer.options.mixer, "' mixes no heads");
}

bool kernel_supports_types(const ConstraintInput& c, std::string* why) {
  const Context& p = *c.pass;
  return (p.q.is_cuda() ? c.choice.gpu.kernels != nullptr : are_cpu_kernel_types(p.q, p.k, p.v)) ||
         report_unmet(why, "no kernel for queries, keys and values of the types ", c10::toString(p.q.scalar_type()),
                      ", ", c10::toString(p.k.scalar_type()), ", ", c10::toString(p.v.scalar_type()));
}

// Returns whether the GPU kernels can apply the window: a two-sided window is one of their logit terms. Requires that
// "types" is met.
bool gpu_has_two_sided_window(const ConstraintInput& c, std::string* why) {
  if (!c.choice.mask.has_window || c.pass->mask.causal) return true;
  const std::string reason = why_no_gpu_logit_terms(c.layer.type, c.layer.layer_spec, c.choice.matrix.defined(),
                                                    c.features.has_relative_positions);
  return reason.empty() || report_unmet(why, "a two-sided window: ", reason);
}

// Returns whether the project's GPU kernel is at least as fast as SDPA. SDPA is faster in forward passes that need
// neither a mask tensor nor a feature that SDPA lacks.
bool sdpa_is_slower(const ConstraintInput& c, std::string* why) {
  const MaskForm& mask = c.choice.mask;
  const Mask& m = c.pass->mask;
  const bool needs_no_mask_tensor =
      mask.is_square || (!mask.has_window && !mask.has_additive_mask && !m.causal && !m.key_lengths.defined());
  return !needs_no_mask_tensor || uses_features(c) ||
         report_unmet(why, "SDPA is faster, since it needs no mask tensor");
}

bool has_cache(const ConstraintInput& c, std::string* why) {
  return c.pass->stage_states != nullptr || report_unmet(why, "no key/value cache");
}

bool is_decoder_self(const ConstraintInput& c, std::string* why) {
  const AttentionKind kind = c.layer.layer_spec.kind;
  return kind == AttentionKind::decoder_self || report_unmet(why, "attention of the kind ", name_of(kind));
}

bool has_one_query(const ConstraintInput& c, std::string* why) {
  const int64_t num_queries = c.pass->q.size(2), num_new_keys = c.pass->k.size(2);
  return (num_queries == 1 && num_new_keys == 1) ||
         report_unmet(why, count_of(num_queries, "query"), " and ", count_of(num_new_keys, "new key"),
                      ", not one of each");
}

bool has_in_place_mask(const ConstraintInput& c, std::string* why) {
  const MaskForm& mask = c.choice.mask;
  return (mask.queries_are_last && mask.causal_hides_no_key && !mask.has_additive_mask) ||
         report_unmet(why, "a mask that is not causal, has key lengths, or is additive");
}

bool is_inference(const ConstraintInput& c, std::string* why) {
  return (!c.training && !c10::GradMode::is_enabled()) || report_unmet(why, "training, or gradients are enabled");
}

bool has_no_observer(const ConstraintInput& c, std::string* why) {
  return c.pass->observer == nullptr || report_unmet(why, "an observer");
}

bool has_in_place_positions(const ConstraintInput& c, std::string* why) {
  if (c.features.has_relative_positions) return report_unmet(why, "relative positions");
  return !c.features.has_position_bias || !c.pass->mask.key_positions.defined() ||
         report_unmet(why, "a position bias with positions of a memory");
}

bool normalises_by_softmax(const ConstraintInput& c, std::string* why) {
  return c.layer.stages.normaliser->kernel_normaliser() == kernels::Normaliser::softmax ||
         report_unmet(why, "normaliser '", c.layer.options.normaliser, "'");
}

// The fused kernels of this project, that is, all but SDPA.
constexpr KernelSet kOwnKernels{Kernel::head_mixing_in_place, Kernel::head_mixing_cpu, Kernel::head_mixing_gpu,
                                Kernel::fused_in_place,       Kernel::fused_cpu,       Kernel::fused_gpu};
constexpr KernelSet kKernelsWithoutMixing{Kernel::fused_in_place, Kernel::fused_cpu, Kernel::fused_gpu, Kernel::sdpa};

constexpr Constraint kConstraints[] = {
    {"pairing", Scope::construction, pairing_has_fused_form},
    {"score", Scope::construction, score_has_fused_form},
    {"position-bias", Scope::construction, position_bias_has_fused_form},
    {"normaliser", Scope::construction, normaliser_has_fused_form},
    {"mixer", Scope::construction, mixer_has_fused_form},
    {"combiner", Scope::construction, combiner_has_fused_form},
    {"value-size", Scope::construction, value_size_is_head_size},
    {"interceptor", Scope::layer, interceptor_suits_fused},
    {"gpu-type", Scope::device, gpu_supports_type},
    {"gpu-kernels", Scope::device, build_has_gpu_kernels},
    {"gpu-relative-positions", Scope::device, gpu_adds_relative_positions},
    {"gpu-logit-terms", Scope::device, gpu_has_logit_terms},
    {"gpu-head-mixing", Scope::device, gpu_mixes_heads},
    {"head-size", Scope::device, head_size_suits_cpu},
    {"observer", Scope::pass, observer_suits_fused},
    {"tensors", Scope::pass, has_nonempty_tensors},
    {"faster", Scope::pass, fused_is_faster},
    {"sdpa-features", Scope::kernel, sdpa_has_features, KernelSet{Kernel::sdpa}},
    {"mask", Scope::kernel, mask_suits_kernels, kOwnKernels},
    {"value-size-without-mixing", Scope::kernel, value_size_suits_kernels_without_mixing, kKernelsWithoutMixing},
    {"head-size-without-mixing", Scope::kernel, head_size_suits_cpu_without_mixing,
     KernelSet{Kernel::fused_in_place, Kernel::fused_cpu}},
    {"types", Scope::kernel, kernel_supports_types, kOwnKernels},
    {"gpu-window", Scope::kernel, gpu_has_two_sided_window, KernelSet{Kernel::head_mixing_gpu, Kernel::fused_gpu}},
    {"sdpa-slower", Scope::kernel, sdpa_is_slower, KernelSet{Kernel::fused_gpu}},
    {"in-place-cache", Scope::kernel, has_cache, kInPlaceKernels},
    {"in-place-kind", Scope::kernel, is_decoder_self, kInPlaceKernels},
    {"in-place-queries", Scope::kernel, has_one_query, kInPlaceKernels},
    {"in-place-mask", Scope::kernel, has_in_place_mask, kInPlaceKernels},
    {"in-place-inference", Scope::kernel, is_inference, kInPlaceKernels},
    {"in-place-observer", Scope::kernel, has_no_observer, kInPlaceKernels},
    {"in-place-positions", Scope::kernel, has_in_place_positions, kInPlaceKernels},
    {"in-place-normaliser", Scope::kernel, normalises_by_softmax, KernelSet{Kernel::fused_in_place}},
};
static_assert(2 * std::size(kConstraints) <= 64, "Dispatcher::logged_fallbacks_ has two bits for each constraint");

// Returns the kernels for a device, with or without head mixing, in the order in which the dispatcher tries them.
std::span<const Kernel> candidate_kernels(bool is_on_gpu, bool mixes_heads) {
  static constexpr Kernel kMixingCpu[] = {Kernel::head_mixing_in_place, Kernel::head_mixing_cpu},
                          kMixingGpu[] = {Kernel::head_mixing_gpu},
                          kCpu[] = {Kernel::fused_in_place, Kernel::fused_cpu, Kernel::sdpa},
                          kGpu[] = {Kernel::fused_gpu, Kernel::sdpa};
  if (mixes_heads) return is_on_gpu ? std::span<const Kernel>(kMixingGpu) : kMixingCpu;
  return is_on_gpu ? std::span<const Kernel>(kGpu) : kCpu;
}

[[noreturn]] void refuse_path(const LayerSpec& layer_spec, const char* expected, const std::string& reasons) {
  refuse_usage(layer_spec.name, expected, "unmet constraints: " + reasons,
               "use --attention auto, which allows the composed path");
}

}  // namespace

std::span<const Constraint> constraints() { return kConstraints; }

const Constraint* first_unmet_constraint(const ConstraintInput& c, Kernel kernel) {
  for (const Constraint& constraint : kConstraints)
    if (constraint.scope == Scope::kernel && constraint.kernels.contains(kernel) && !constraint.is_met(c, nullptr))
      return &constraint;
  return nullptr;
}

Dispatcher::Dispatcher(const LayerView& layer) : features_(layer.options, layer.stages) {
  const ConstraintInput c{layer, features_};
  for (const Constraint& constraint : kConstraints) {
    std::string why;
    if (constraint.scope != Scope::construction || constraint.is_met(c, &why)) continue;
    fallback_reasons_at_construction_.push_back(std::move(why));
    if (first_unmet_at_construction_ == nullptr) first_unmet_at_construction_ = &constraint;
  }
}

void Dispatcher::set_path(Path path, std::shared_ptr<FallbackLog> fallback_log) {
  path_ = path;
  fallback_log_ = std::move(fallback_log);
  logged_fallbacks_->store(0);
}

std::vector<std::string> Dispatcher::reasons_not_fused(const LayerView& layer, bool training) const {
  std::vector<std::string> reasons = fallback_reasons_at_construction_;
  const ConstraintInput c{layer, features_, path_, training};
  for (const Constraint& constraint : kConstraints) {
    std::string why;
    // The constraints of the GPU kernels require that the constraints before them are met.
    const bool is_checked = constraint.scope == Scope::layer || (constraint.scope == Scope::device && reasons.empty());
    if (is_checked && !constraint.is_met(c, &why)) reasons.push_back(std::move(why));
  }
  return reasons;
}

bool Dispatcher::takes_fused_path(const LayerView& layer, bool training) const {
  if (path_ == Path::composed || first_unmet_at_construction_ != nullptr) return false;
  const ConstraintInput c{layer, features_, path_, training};
  for (const Constraint& constraint : kConstraints)
    if (constraint.scope != Scope::construction && !constraint.needs_pass() && !constraint.is_met(c, nullptr))
      return false;
  return true;
}

std::string Dispatcher::describe(const LayerView& layer, bool training) const {
  if (layer.layer_spec.heads == 0) return "no attention, since the layer has no heads";
  if (path_ == Path::composed) return "composed, as requested";
  const auto reasons = reasons_not_fused(layer, training);
  return reasons.empty() ? "fused" : "composed: " + join(reasons, "; ");
}

void Dispatcher::require_fused(const LayerView& layer, bool training) const {
  if (const auto reasons = reasons_not_fused(layer, training); !reasons.empty())
    refuse_path(layer.layer_spec, "a layer that meets the constraints of the fused path", join(reasons, "; "));
}

KernelChoice Dispatcher::choose_kernel(const LayerView& layer, const Context& pass) const {
  if (path_ == Path::composed) return {};
  ConstraintInput c{layer, features_, path_, pass.forward_context.training, &pass};
  KernelChoice& choice = c.choice;
  choice.unmet_constraint = first_unmet_at_construction_;
  if (first_unmet_at_construction_ != nullptr) return std::move(choice);
  for (const Constraint& constraint : kConstraints) {
    if (constraint.scope == Scope::construction || constraint.scope == Scope::kernel) continue;
    if (constraint.is_met(c, nullptr)) continue;
    choice.unmet_constraint = &constraint;
    return std::move(choice);
  }
  choice.mask = MaskForm(pass.mask, pass.q.size(2), pass.num_keys);
  choice.gpu = gpu_kernels(pass.q, pass.k, pass.v);
  choice.matrix = layer.stages.mixer->matrix(pass);
  for (const Kernel kernel : candidate_kernels(pass.q.is_cuda(), choice.matrix.defined())) {
    const Constraint* unmet_constraint = first_unmet_constraint(c, kernel);
    if (unmet_constraint == nullptr) {
      choice.kernel = kernel;
      choice.unmet_constraint = nullptr;
      break;
    }
    if (choice.unmet_constraint == nullptr || choice.unmet_constraint < unmet_constraint)
      choice.unmet_constraint = unmet_constraint;
  }
  return std::move(choice);
}

void Dispatcher::report_fallback(const LayerView& layer, const Context& pass, const KernelChoice& choice) const {
  if (choice.unmet_constraint == nullptr) return;
  const bool training = pass.forward_context.training;
  const bool is_layer_reason = !choice.unmet_constraint->needs_pass();
  // Reasons that depend only on the layer are part of describe(), which was logged when the model was built. An
  // interceptor is set later, so its reason is logged here.
  if (is_layer_reason && why_composed(layer.interceptor) == nullptr) {
    if (path_ == Path::fused) require_fused(layer, training);
    return;
  }
  const uint64_t bit = uint64_t{1} << (2 * (choice.unmet_constraint - kConstraints) + (training ? 1 : 0));
  if (!is_layer_reason && path_ != Path::fused &&
      ((logged_fallbacks_->load(std::memory_order_relaxed) & bit) != 0 ||
       (logged_fallbacks_->fetch_or(bit) & bit) != 0))
    return;
  std::string why;
  if (is_layer_reason) why = join(reasons_not_fused(layer, training), "; ");
  else choice.unmet_constraint->is_met({layer, features_, path_, training, &pass, choice}, &why);
  if (path_ == Path::fused)
    refuse_path(layer.layer_spec, "a forward pass that meets the constraints of the fused path", why);
  if (fallback_log_->insert(layer.layer_spec.kind, why))
    log_info(str(fallback_log_->line_prefix(), "attention: ", name_of(layer.layer_spec.kind), ": composed: ", why));
}

}  // namespace mh::attention
