// Parameters, their bf16 copies and gradients, and their initialisation.
#include "nn/parameter.h"

#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "base/text.h"

namespace mh::nn {

namespace {

// Releases the memory of the mapped pages of a contiguous tensor; does nothing if the tensor is no part of a mapped
// file.
void release_pages(const at::Tensor& x) {
  if (x.is_cpu() && x.numel() > 0) release_mapped_pages(x.const_data_ptr(), x.nbytes());
}

}  // namespace

Parameter::Parameter(std::string name, at::Tensor value, ParameterTraits traits)
    : name_(std::move(name)), master_(std::move(value)), traits_(std::move(traits)) {
  master_.set_requires_grad(traits_.trainable);
}

void Parameter::throw_without_master() const {
  throw std::logic_error(
      name_ + ": expected the whole fp32 master; found " +
      (is_evaluation_only_ ? "a parameter that was loaded for evaluation in bf16 without a master; read value() or "
                             "lookup_table(), or load the model with masters"
                           : "a master that several processes divide (train.shard); read value() or master_shard()"));
}

void Parameter::release_master(at::Device device) {
  const bool requires_grad = master_.requires_grad();
  // A tensor of one element, repeated, has the shape, type and device of the master, which GradientBuckets read.
  master_ = at::full({1}, std::numeric_limits<float>::quiet_NaN(), at::TensorOptions().dtype(at::kFloat).device(device))
                .expand(master_.sizes());
  master_.set_requires_grad(requires_grad);
}

void Parameter::use_bf16_copy(bool enabled) {
  require_whole_master();
  if (!enabled || !traits_.is_product_operand) {
    bf16_copy_ = at::Tensor();
    return;
  }
  c10::NoGradGuard no_gradient;
  bf16_copy_ = master_.to(at::kBFloat16);
  bf16_copy_.set_requires_grad(master_.requires_grad());
}

void Parameter::set_trained(bool enabled) {
  enabled = enabled && traits_.trainable;
  if (enabled && is_evaluation_only_) throw_without_master();
  if (master_.requires_grad() != enabled) master_.set_requires_grad(enabled);
  if (bf16_copy_.defined() && bf16_copy_.requires_grad() != enabled) bf16_copy_.set_requires_grad(enabled);
}

void Parameter::refresh_bf16_copy() {
  c10::NoGradGuard no_gradient;
  if (bf16_copy_.defined()) bf16_copy_.copy_(master());
}

void Parameter::divide_master(int64_t begin, int64_t size) {
  c10::NoGradGuard no_gradient;
  if (!bf16_copy_.defined() || traits_.is_lookup_table)
    throw std::logic_error(name_ + ": expected a parameter of which the forward pass reads only the bf16 copy; found " +
                           "one whose fp32 master it reads; keep the whole master");
  master_shard_ = master().detach().view(-1).narrow(0, begin, size).clone();
  master_shard_begin_ = begin;
  release_master(master_shard_.device());
}

void Parameter::refresh_bf16_shard() {
  c10::NoGradGuard no_gradient;
  bf16_copy_.view(-1).narrow(0, master_shard_begin_, master_shard_.numel()).copy_(master_shard_);
}

void Parameter::set_values(const at::Tensor& values) {
  c10::NoGradGuard no_gradient;
  if (is_evaluation_only_) throw_without_master();
  if (has_whole_master()) {
    master_.copy_(values);
    refresh_bf16_copy();
  } else {
    master_shard_.copy_(values.reshape(-1).narrow(0, master_shard_begin_, master_shard_.numel()));
    bf16_copy_.copy_(values);
  }
}

void Parameter::set_evaluation_values(const at::Tensor& stored_values, at::Device device) {
  c10::NoGradGuard no_gradient;
  if (stored_values.sizes() != master_.sizes())
    throw std::logic_error(name_ + ": expected values of the shape " + shape_text(master_.sizes()) +
                           "; found the shape " + shape_text(stored_values.sizes()));
  master_.set_requires_grad(false);
  master_shard_ = bf16_copy_ = lookup_table_ = at::Tensor();
  is_evaluation_only_ = traits_.is_product_operand || traits_.is_lookup_table;
  if (!is_evaluation_only_) {
    master_ = stored_values.to(device, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    release_pages(stored_values);
    return;
  }
  release_master(device);
  if (traits_.is_lookup_table) lookup_table_ = stored_values.to(device);
  if (traits_.is_product_operand)
    bf16_copy_ = (lookup_table_.defined() ? lookup_table_ : stored_values).to(device, at::kBFloat16);
  if (!bf16_copy_.defined() || !bf16_copy_.is_alias_of(stored_values)) release_pages(stored_values);
}

void Parameter::release_value_pages() const { release_pages(value()); }

void Parameter::collect_gradient() {
  if (!bf16_copy_.defined() || !bf16_copy_.grad().defined()) return;
  c10::NoGradGuard no_gradient;
  if (master_.grad().defined()) master_.mutable_grad().add_(bf16_copy_.grad());
  else master_.mutable_grad() = bf16_copy_.grad().to(at::kFloat);
  bf16_copy_.mutable_grad() = at::Tensor();
}

Parameter& ParameterList::add(const std::string& name, std::vector<int64_t> shape, ParameterTraits traits) {
  if (find(name) != nullptr)
    throw Error(Exit::failed,
                "expected distinct parameter names; found two parameters named " + name + "; rename one parameter");
  for (const HeadAxis& head_axis : traits.head_axes) {
    const auto axis = static_cast<size_t>(head_axis.axis);
    const auto num_head_blocks = static_cast<int64_t>(head_axis.head_blocks.size());
    if (axis >= shape.size() || head_axis.heads < 1 || head_axis.block_count() < head_axis.heads ||
        shape[axis] % head_axis.block_count() != 0 || (num_head_blocks > 0 && num_head_blocks != head_axis.heads) ||
        (head_axis.block_count() > head_axis.heads && num_head_blocks == 0))
      throw Error(Exit::failed, Problem{name, "a head axis that consists of equal blocks, at least one per head",
                                        str("axis ", axis, " of the shape ", shape_text(shape), ", with ",
                                            head_axis.heads, " heads and ", head_axis.block_count(), " blocks"),
                                        "correct the traits of the parameter"});
  }
  if (traits.role == HeadRole::none) traits.role = role_;
  const at::Device device = placement_.allocates ? placement_.device : at::Device(at::kMeta);
  parameters_.emplace_back(name, at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(device)),
                           std::move(traits));
  return parameters_.back();
}

Parameter& ParameterList::share(const std::string& name, std::vector<int64_t> shape, ParameterTraits traits) {
  Parameter* existing_parameter = find(name);
  if (existing_parameter == nullptr) return add(name, std::move(shape), std::move(traits));
  if (existing_parameter->sizes() != at::IntArrayRef(shape))
    throw Error(Exit::failed, Problem{name,
                                      str("the shape ", shape_text(existing_parameter->sizes()),
                                          ", as in the other layers that share the parameter"),
                                      "the shape " + shape_text(shape), "give these layers equal sizes"});
  return *existing_parameter;
}

void ParameterList::set_evaluation_values(const std::function<at::Tensor(const Parameter&)>& stored_values) {
  for (Parameter& p : parameters_) p.set_evaluation_values(stored_values(p), device());
}

namespace {

// Divides each column of the row-major matrix `out` by the column's sum.
void normalise_columns(at::IntArrayRef shape, float* out) {
  const int64_t rows = shape[0], columns = shape[1];
  for (int64_t c = 0; c < columns; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += static_cast<double>(out[r * columns + c]);
    for (int64_t r = 0; r < rows; ++r)
      out[r * columns + c] = static_cast<float>(static_cast<double>(out[r * columns + c]) / sum);
  }
}

void fill(const Init& init, at::IntArrayRef shape, RandomSequence& random, float* out, int64_t count) {
  auto uniform = [&](double half_width) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>((2 * random.uniform() - 1) * half_width);
  };
  switch (init.kind) {
    case Init::Kind::constant:
      std::fill(out, out + count, static_cast<float>(init.scale));
      return;
    case Init::Kind::normal:
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(init.mean + init.scale * random.normal());
      return;
    case Init::Kind::truncated_normal:
      for (int64_t i = 0; i < count; ++i) {
        double x = random.normal();
        while (std::abs(x) > 2) x = random.normal();
        out[i] = static_cast<float>(init.scale * x);
      }
      return;
    case Init::Kind::uniform:
      uniform(init.scale);
      return;
    case Init::Kind::xavier_uniform: {
      double fan_sum = static_cast<double>(shape[shape.size() - 1] + shape[shape.size() - 2]);
      uniform(init.scale * std::sqrt(6 / fan_sum));
      return;
    }
    case Init::Kind::identity: {
      const int64_t columns = shape[shape.size() - 1], rows = shape[shape.size() - 2];
      for (int64_t i = 0; i < count; ++i) out[i] = i / columns % rows == i % columns ? 1.0F : 0.0F;
      return;
    }
    case Init::Kind::normal_columns:
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(random.normal());
      return normalise_columns(shape, out);
    case Init::Kind::uniform_columns:
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(random.uniform());
      return normalise_columns(shape, out);
  }
}

}  // namespace

void ParameterList::initialise(uint64_t seed) {
  c10::NoGradGuard no_gradient;
  for (Parameter& p : parameters_) {
    RandomSequence random(RandomStream(seed, "init/" + p.name()));
    at::Tensor values = at::empty(p.master().sizes(), at::kFloat);
    fill(p.traits().init, values.sizes(), random, values.mutable_data_ptr<float>(), values.numel());
    p.master().copy_(values);
  }
  refresh_bf16_copies();
}

int64_t ParameterList::num_trainable_elements() const {
  int64_t sum = 0;
  for (const Parameter& p : parameters_)
    if (p.traits().trainable) sum += p.gradient_leaf().numel();
  return sum;
}

Parameter* ParameterList::find(const std::string& name) {
  for (Parameter& p : parameters_)
    if (p.name() == name) return &p;
  return nullptr;
}

void ParameterList::use_bf16_copies(bool enabled) {
  for (Parameter& p : parameters_) p.use_bf16_copy(enabled);
}

void ParameterList::refresh_bf16_copies() {
  for (Parameter& p : parameters_) p.refresh_bf16_copy();
}

void ParameterList::collect_gradients() {
  for (Parameter& p : parameters_) p.collect_gradient();
}

void ParameterList::zero_gradients() {
  for (Parameter& p : parameters_) p.gradient_leaf().mutable_grad() = at::Tensor();
}

}  // namespace mh::nn
