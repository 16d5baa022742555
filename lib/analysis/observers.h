// Shows one forward pass to several observers.
#pragma once

#include <utility>
#include <vector>

#include "attention/stage.h"

namespace mh::analysis {

// They must outlive this. What an observer may replace goes through them in order, each given what
// the one before returned.
class Observers : public attention::Observer {
 public:
  explicit Observers(std::vector<attention::Observer*> parts = {}) : parts_(std::move(parts)) {}
  bool empty() const { return parts_.empty(); }
  void begin(const attention::Lengths& lengths) override;
  bool wants_scores() const override;
  void scores(const attention::Shape& shape, const at::Tensor& x) override;
  at::Tensor mixer_inputs(const attention::Shape& shape, const at::Tensor& x) override;
  void probabilities(const attention::Shape& shape, const at::Tensor& p) override;
  at::Tensor head_outputs(const attention::Shape& shape, const at::Tensor& z) override;
  at::Tensor combined(const attention::Shape& shape, const at::Tensor& z) override;
  void mixing(const attention::Shape& shape, const at::Tensor& m) override;
  at::Tensor gates(const attention::Shape& shape, const at::Tensor& g) override;
  void weights(const attention::Shape& shape, const at::Tensor& w) override;
  void routing(const attention::Shape& shape, const at::Tensor& probabilities, const at::Tensor& chosen) override;

 private:
  std::vector<attention::Observer*> parts_;
};

}  // namespace mh::analysis
