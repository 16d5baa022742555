// Observers whose results are sums over the observed forward passes, so that several processes can share the passes:
// the process that runs a pass records its contributions, and every process adds them in the order of the passes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention_kind.h"
#include "attention/observer.h"
#include "distributed/ordered_work.h"

namespace mh::analysis {

// The label of a contribution to a layer.
struct LayerLabel {
  attention::AttentionKind kind;
  int64_t layer;
  std::string text() const;
  static LayerLabel parse(const std::string& text);
};

class AdditiveObserver : public attention::Observer {
 public:
  using Tensors = std::vector<at::Tensor>;

  // From now on, forward passes record their contributions instead of adding them.
  void begin_recording() { is_recording_ = true; }
  void end_recording() { is_recording_ = false; }
  // Returns the contributions since the previous call, tensors on the CPU, for add_recorded() of an observer of the
  // same type and with the same options in any process.
  distributed::OrderedWork::Results take_recorded() { return std::exchange(recorded_, {}); }
  // Adds the contributions of a forward pass. Gives the same bits as the pass without recording.
  void add_recorded(const distributed::OrderedWork::Results& recorded_results);

 protected:
  // Records a contribution, or adds it at once. `label`: name of the result to which the tensors contribute, such as a
  // layer.
  void contribute(const std::string& label, const Tensors& tensors);
  // Adds a contribution to the results of the observer.
  virtual void add_contribution(const std::string& label, const Tensors& tensors) = 0;

 private:
  bool is_recording_ = false;
  distributed::OrderedWork::Results recorded_;  // for each contribution: label, number of tensors, tensors
};

}  // namespace mh::analysis
