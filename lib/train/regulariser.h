// The interface of regularisers: terms that are added to the mean training loss per token. Each regulariser is a file
// in regularisers/, and a configuration section enables it:
//
//   [train.regularisers.orthogonal-mixing]
//   weight = 1e-3
//
// A regulariser that is used several times with different options, such as subspace-overlap for rows and for columns,
// has one section for each use (plugins.h). A regulariser finds parameters by their names. A regulariser that reads the
// tensors of a forward pass is an attention::Observer, which forces the composed path in all layers.
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
  virtual void describe(Fields& f) = 0;  // must have the field `weight`
  // Prepares the regulariser for a model. Called once, before training. `attention`: configuration of the attention
  // layers. Throws Error(usage) if the model lacks the parameters that the term requires.
  virtual void start(nn::ParameterList& parameters, const attention::AttentionConfig& attention) = 0;
  // Returns the observer of training's forward passes, or null if the term does not require one.
  virtual attention::Observer* observer() { return nullptr; }
  // Returns `weight` times the term for the last forward pass, a scalar with a gradient; undefined if the term is
  // inactive.
  virtual at::Tensor loss(const TrainProgress& progress) = 0;
  // Returns whether the regulariser freezes a parameter at this progress of training.
  virtual bool freezes(const nn::Parameter&, const TrainProgress&) const { return false; }
  // Returns whether the term depends on TrainProgress::fraction(), and thus on the length of training.
  virtual bool depends_on_fraction() const { return false; }
};

// Base class of regularisers whose term is computed from tensors that attention layers pass to observers. The term is
// the sum of all arguments of add() since the last call of loss(). Padding is excluded from all means.
class ObservedTerm : public Regulariser, public attention::Observer {
 public:
  void describe(Fields& f) override;  // visits the field `weight`, whose help names the term
  void start(nn::ParameterList&, const attention::AttentionConfig&) override {}
  attention::Observer* observer() override { return this; }
  void begin_batch(const attention::Lengths& lengths) override { lengths_ = lengths; }
  at::Tensor loss(const TrainProgress&) override;

 protected:
  // `term_name`: name of the term in the help of `weight`.
  ObservedTerm(double weight, const char* term_name) : weight_(weight), term_name_(term_name) {}
  // Returns whether gradients are enabled. Without gradients the pass is not a training pass, and subclasses must not
  // call add().
  static bool is_training_pass();
  // Adds a scalar to the term of the current forward pass.
  void add(const at::Tensor& term) { sum_ = sum_.defined() ? sum_ + term : term; }
  double weight() const { return weight_; }
  // Returns the number of queries in each row, padding excluded, (B) fp32; `num_positions` for each row if
  // begin_batch() received no lengths. `like`: tensor whose first axis has size B, on the device of the result.
  at::Tensor query_lengths(attention::AttentionKind kind, const at::Tensor& like, int64_t num_positions) const;
  // Returns the number of keys in each row. Has the arguments and the result of query_lengths().
  at::Tensor key_lengths(attention::AttentionKind kind, const at::Tensor& like, int64_t num_positions) const;
  // Returns the query mask (B, num_positions) fp32: 1 for a query and 0 for padding.
  at::Tensor query_mask(attention::AttentionKind kind, const at::Tensor& like, int64_t num_positions) const;
  // Returns the mean of x (B, Tq, …) over all queries of the batch that are not padding, (…); 0 if all queries are
  // padding.
  at::Tensor mean_over_queries(attention::AttentionKind kind, const at::Tensor& x) const;
  // Returns the mean of x (B) over the rows whose length is above 0; 0 if all lengths are 0. `lengths`: (B).
  at::Tensor mean_over_nonempty_rows(const at::Tensor& x, const at::Tensor& lengths) const;

 private:
  double weight_;
  const char* term_name_;
  at::Tensor sum_;
  attention::Lengths lengths_;
};

Registry<Regulariser>& regularisers();

// The list of all enabled regularisers.
class Regularisers : public Plugins<Regulariser> {
 public:
  // Calls Regulariser::start() of all regularisers and combines their observers.
  void start(nn::ParameterList& parameters, const attention::AttentionConfig& attention);
  // Returns the combined observer of all regularisers; null if no regulariser observes.
  attention::Observer* observer() const { return observers_->empty() ? nullptr : observers_.get(); }
  // Returns why the observed forward passes take the composed path; null if they may take any path.
  const char* why_composed() const { return observers_->why_composed(); }
  // Returns the sum of the weighted terms, a scalar; undefined if no term is active.
  at::Tensor loss(const TrainProgress& progress) const;
  // Returns whether any regulariser freezes a parameter at this progress of training.
  bool freezes(const nn::Parameter& parameter, const TrainProgress& progress) const;
  // Returns whether any term depends on TrainProgress::fraction(), and thus on the length of training.
  bool any_depends_on_fraction() const;

 private:
  std::shared_ptr<analysis::Observers> observers_ = std::make_shared<analysis::Observers>();
};

}  // namespace mh::train
