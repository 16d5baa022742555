// Loss terms beside the cross-entropy, one file each in regularisers/, turned on by a section of their own:
//
//   [train.regularisers.orthogonal-mixing]
//   weight = 1e-3
//
// Terms of one regulariser with different options, such as R_d and R_c of subspace-overlap, take a section each
// (plugins.h).
// A term is added to the mean loss per token. What it needs of a forward pass it takes as an observer (which puts the
// layers on the composed path); what it needs of the parameters it finds by their names.
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
  virtual void describe(Fields& f) = 0;  // its options, `weight` among them
  // Called once. Error(usage) where there is nothing to act on. `attention` says how the layers were configured.
  virtual void start(nn::ParameterList& parameters, const attention::AttentionConfig& attention) = 0;
  // To be shown the forward pass, or null.
  virtual attention::Observer* observer() { return nullptr; }
  // The term, weight included, of the forward pass just seen: a scalar of the graph, or undefined where it rests.
  virtual at::Tensor loss(const TrainProgress& here) = 0;
  // Whether it keeps a parameter frozen now ("freeze until").
  virtual bool freezes(const nn::Parameter&, const TrainProgress&) const { return false; }
  // Whether what it does follows from the share of training that has passed.
  virtual bool follows_share() const { return false; }
};

// A term of what the layers show: the sum of what is given to add() during a forward pass, times the weight. Rows that
// are filled up behind their end, as the last of an epoch are, count with their real positions only.
class ShownTerm : public Regulariser, public attention::Observer {
 public:
  void describe(Fields& f) override;  // `weight`
  void start(nn::ParameterList&, const attention::AttentionConfig&) override {}
  attention::Observer* observer() override { return this; }
  void begin(const attention::Lengths& lengths) override { lengths_ = lengths; }
  at::Tensor loss(const TrainProgress&) override;

 protected:
  explicit ShownTerm(double weight) : weight_(weight) {}
  // A pass without gradients is no training, and adds nothing: a term need not be made then.
  static bool looks();
  void add(const at::Tensor& term) { sum_ = sum_.defined() ? sum_ + term : term; }
  double weight() const { return weight_; }
  // Real queries, or keys, of each row of like's batch: (B) fp32, on its device; `positions` where begin() has not been
  // told.
  at::Tensor queries(attention::AttentionKind kind, const at::Tensor& like, int64_t positions) const;
  at::Tensor keys(attention::AttentionKind kind, const at::Tensor& like, int64_t positions) const;
  // 1 for a real query and 0 for another: (B, positions) fp32.
  at::Tensor real(attention::AttentionKind kind, const at::Tensor& like, int64_t positions) const;
  // x (B, n, …) -> (…): a mean over the real ones of all n queries, 0 where there are none.
  at::Tensor mean_of_positions(attention::AttentionKind kind, const at::Tensor& x) const;
  // x (B), of which rows without a real position are left out: the mean of the others, 0 where there are none.
  at::Tensor mean_of_rows(const at::Tensor& x, const at::Tensor& lengths) const;

 private:
  double weight_;
  at::Tensor sum_;
  attention::Lengths lengths_;
};

Registry<Regulariser>& regularisers();

// All that are on, as one.
class Regularisers : public Plugins<Regulariser> {
 public:
  void start(nn::ParameterList& parameters, const attention::AttentionConfig& attention);
  attention::Observer* observer() const { return all_->empty() ? nullptr : all_.get(); }  // null where none looks
  at::Tensor loss(const TrainProgress& here) const;                                       // undefined where none acts
  bool freezes(const nn::Parameter& parameter, const TrainProgress& here) const;
  bool follow_share() const;  // some does

 private:
  std::shared_ptr<analysis::Observers> all_ = std::make_shared<analysis::Observers>();
};

}  // namespace mh::train
