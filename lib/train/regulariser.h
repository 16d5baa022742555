// Regularisers: loss terms added to the cross-entropy, one file each in regularisers/, enabled by a section:
//
//   [train.regularisers.orthogonal-mixing]
//   weight = 1e-3
//
// Terms of one regulariser with different options, such as R_d and R_c of subspace-overlap, take a section each
// (plugins.h). A term is added to the mean loss per token. A regulariser reads a forward pass as an observer, which
// puts the layers on the composed path, and finds parameters by their names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "analysis/observers.h"
#include "attention/options.h"
#include "nn/aten.h"
#include "nn/parameter.h"
#include "train/plugins.h"
#include "train/train_progress.h"

namespace mh::train {

class Regulariser {
 public:
  virtual ~Regulariser() = default;
  virtual void describe(Fields& f) = 0;  // options, `weight` among them
  // Called once. Throws Error(usage) if the model has nothing to act on. `attention`: configuration of the layers.
  virtual void start(nn::ParameterList& parameters, const attention::AttentionConfig& attention) = 0;
  // Returns the observer of the forward pass, or null.
  virtual attention::Observer* observer() { return nullptr; }
  // Returns the term of the last forward pass, times its weight: a scalar with a gradient, or undefined if the
  // regulariser is inactive.
  virtual at::Tensor loss(const TrainProgress& progress) = 0;
  // Returns whether a parameter is frozen now ("freeze until").
  virtual bool freezes(const nn::Parameter&, const TrainProgress&) const { return false; }
  // Returns whether the term depends on the fraction of training completed.
  virtual bool follows_share() const { return false; }
};

// A term computed from tensors that the layers show: the sum of the arguments of add() during a forward pass, times the
// weight. Padded rows, such as the last of an epoch, count with their real positions only.
class ShownTerm : public Regulariser, public attention::Observer {
 public:
  void describe(Fields& f) override;  // `weight`
  void start(nn::ParameterList&, const attention::AttentionConfig&) override {}
  attention::Observer* observer() override { return this; }
  void begin(const attention::Lengths& lengths) override { lengths_ = lengths; }
  at::Tensor loss(const TrainProgress&) override;

 protected:
  explicit ShownTerm(double weight) : weight_(weight) {}
  // Returns whether gradients are enabled; passes without gradients, which are no training, add nothing.
  static bool looks();
  void add(const at::Tensor& term) { sum_ = sum_.defined() ? sum_ + term : term; }
  double weight() const { return weight_; }
  // Returns the number of real queries, or keys, of each row of like's batch, (B) fp32, on its device; `positions` if
  // begin() received no lengths.
  at::Tensor queries(attention::AttentionKind kind, const at::Tensor& like, int64_t positions) const;
  at::Tensor keys(attention::AttentionKind kind, const at::Tensor& like, int64_t positions) const;
  // Returns 1 for a real query and 0 for padding, (B, positions) fp32.
  at::Tensor real(attention::AttentionKind kind, const at::Tensor& like, int64_t positions) const;
  // Returns the mean of x (B, n, …) over the real queries of all n, (…); 0 if there are none.
  at::Tensor mean_of_positions(attention::AttentionKind kind, const at::Tensor& x) const;
  // Returns the mean of x (B) over rows with a real position; 0 if there are none.
  at::Tensor mean_of_rows(const at::Tensor& x, const at::Tensor& lengths) const;

 private:
  double weight_;
  at::Tensor sum_;
  attention::Lengths lengths_;
};

Registry<Regulariser>& regularisers();

// All enabled regularisers as one.
class Regularisers : public Plugins<Regulariser> {
 public:
  void start(nn::ParameterList& parameters, const attention::AttentionConfig& attention);
  attention::Observer* observer() const { return all_->empty() ? nullptr : all_.get(); }  // null if none observes
  at::Tensor loss(const TrainProgress& progress) const;                                   // undefined if none is active
  bool freezes(const nn::Parameter& parameter, const TrainProgress& progress) const;
  bool follow_share() const;  // whether some term depends on the fraction of training

 private:
  std::shared_ptr<analysis::Observers> all_ = std::make_shared<analysis::Observers>();
};

}  // namespace mh::train
