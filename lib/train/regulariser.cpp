#include "train/regulariser.h"

namespace mh::train {

namespace {

// Shows one forward pass to several observers.
class All : public attention::Observer {
 public:
  explicit All(std::vector<attention::Observer*> parts) : parts_(std::move(parts)) {}
  void probabilities(const attention::Shape& shape, const at::Tensor& p) override {
    for (auto* part : parts_) part->probabilities(shape, p);
  }
  at::Tensor head_outputs(const attention::Shape& shape, const at::Tensor& z) override {
    at::Tensor result = z;
    for (auto* part : parts_) result = part->head_outputs(shape, result);
    return result;
  }
  void gates(const attention::Shape& shape, const at::Tensor& g) override {
    for (auto* part : parts_) part->gates(shape, g);
  }

 private:
  std::vector<attention::Observer*> parts_;
};

}  // namespace

Registry<Regulariser>& regularisers() {
  static Registry<Regulariser> registry("regulariser");
  return registry;
}

void Regularisers::start(model::ParameterList& parameters) {
  std::vector<attention::Observer*> parts;
  for (const Entry& entry : entries()) {
    entry.plugin->start(parameters);
    if (auto* observer = entry.plugin->observer()) parts.push_back(observer);
  }
  if (!parts.empty()) all_ = std::make_shared<All>(parts);
}

at::Tensor Regularisers::loss(const Standing& here) const {
  at::Tensor sum;
  for (const Entry& entry : entries())
    if (at::Tensor part = entry.plugin->loss(here); part.defined()) sum = sum.defined() ? sum + part : part;
  return sum;
}

bool Regularisers::freezes(const model::Parameter& parameter, const Standing& here) const {
  for (const Entry& entry : entries())
    if (entry.plugin->freezes(parameter, here)) return true;
  return false;
}

}  // namespace mh::train
