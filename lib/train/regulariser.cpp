#include "train/regulariser.h"

#include <c10/core/GradMode.h>

#include "base/error.h"

namespace mh::train {

Registry<Regulariser>& regularisers() {
  static Registry<Regulariser> registry("regulariser");
  return registry;
}

void ObservedTerm::describe(Fields& f) {
  f.field("weight", weight_, str("weight, in the mean loss per token, of the ", term_name_), at_least(0));
}

bool ObservedTerm::is_training_pass() { return c10::GradMode::is_enabled(); }

at::Tensor ObservedTerm::loss(const TrainProgress&) {
  const at::Tensor sum = std::move(sum_);
  sum_ = at::Tensor();
  return sum.defined() ? sum * weight_ : sum;
}

namespace {

at::Tensor lengths_or_constant(const at::Tensor& lengths, const at::Tensor& like, int64_t num_positions) {
  const auto options = like.options().dtype(at::kFloat);
  return lengths.defined() ? lengths.to(options)
                           : at::full({like.size(0)}, static_cast<double>(num_positions), options);
}

}  // namespace

at::Tensor ObservedTerm::query_lengths(attention::AttentionKind kind, const at::Tensor& like,
                                       int64_t num_positions) const {
  return lengths_or_constant(lengths_.queries(kind), like, num_positions);
}

at::Tensor ObservedTerm::key_lengths(attention::AttentionKind kind, const at::Tensor& like,
                                     int64_t num_positions) const {
  return lengths_or_constant(lengths_.keys(kind), like, num_positions);
}

at::Tensor ObservedTerm::query_mask(attention::AttentionKind kind, const at::Tensor& like,
                                    int64_t num_positions) const {
  const at::Tensor row_lengths = query_lengths(kind, like, num_positions);
  return (at::arange(num_positions, row_lengths.options()) < row_lengths.unsqueeze(1)).to(at::kFloat);
}

at::Tensor ObservedTerm::mean_over_queries(attention::AttentionKind kind, const at::Tensor& x) const {
  at::Tensor mask = query_mask(kind, x, x.size(1));
  const at::Tensor count = mask.sum().clamp_min(1);
  while (mask.dim() < x.dim()) mask = mask.unsqueeze(-1);
  return (x * mask).flatten(0, 1).sum(0) / count;
}

at::Tensor ObservedTerm::mean_over_nonempty_rows(const at::Tensor& x, const at::Tensor& lengths) const {
  const at::Tensor mask = (lengths > 0).to(at::kFloat);
  return (x * mask).sum() / mask.sum().clamp_min(1);
}

void Regularisers::start(nn::ParameterList& parameters, const attention::AttentionConfig& attention) {
  std::vector<attention::Observer*> observers;
  for (const Entry& entry : entries()) {
    entry.plugin->start(parameters, attention);
    if (auto* observer = entry.plugin->observer()) observers.push_back(observer);
  }
  observers_ = std::make_shared<analysis::Observers>(observers);
}

at::Tensor Regularisers::loss(const TrainProgress& progress) const {
  at::Tensor sum;
  for (const Entry& entry : entries())
    if (at::Tensor term = entry.plugin->loss(progress); term.defined()) sum = sum.defined() ? sum + term : term;
  return sum;
}

bool Regularisers::freezes(const nn::Parameter& parameter, const TrainProgress& progress) const {
  for (const Entry& entry : entries())
    if (entry.plugin->freezes(parameter, progress)) return true;
  return false;
}

bool Regularisers::any_depends_on_fraction() const {
  for (const Entry& entry : entries())
    if (entry.plugin->depends_on_fraction()) return true;
  return false;
}

}  // namespace mh::train
