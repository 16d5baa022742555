// The regulariser "hard-concrete-penalty" (Voita et al. 2019): the expected number of nonzero hard-concrete gates g of
// the heads, summed over layers. The penalty drives the gates to 0:
//
//   Σ P(g ≠ 0) = Σ σ(log a - t log(-l / r))
//
// log a: gate parameter of a head; temperature t and stretch interval (l, r): options of the layer's combiner.
#include "analysis/heads.h"
#include "attention/methods/hard_concrete/hard_concrete.h"
#include "train/parameter_groups.h"
#include "train/regulariser.h"

namespace mh::train {
namespace {

class HardConcretePenalty : public Regulariser {
 public:
  void describe(Fields& f) override {
    f.field("weight", weight_, "weight, in the mean loss per token, of the L0 penalty on hard-concrete gates",
            at_least(0));
  }
  void start(nn::ParameterList& parameters, const attention::AttentionConfig& attention) override {
    for (nn::Parameter* p :
         find_parameters(parameters, str("*", attention::kLogAName),
                         {"train.regularisers.hard-concrete-penalty", "attention.combiner = \"hard-concrete\"",
                          attention.combiners_text(), "set attention.combiner, or remove the regulariser"})) {
      const auto layer = analysis::layer_of(p->name());
      if (!layer)
        throw Error(Exit::failed, Problem{p->name(), "a parameter name with a kind of attention and a layer",
                                          "neither in the name", "report a defect of multihead"});
      const auto& stages = attention.layer(layer->kind, layer->layer).stages;
      const auto options = stages.find(attention::kHardConcreteName);
      gates_.push_back({p, options == stages.end()
                               ? attention::HardConcreteDistribution{}
                               : static_cast<const attention::HardConcreteOptions&>(*options->second).distribution});
    }
  }
  at::Tensor loss(const TrainProgress&) override {
    at::Tensor sum;
    for (const auto& [p, hard_concrete] : gates_) {
      const at::Tensor term = attention::hard_concrete_penalty(hard_concrete, p->value());
      sum = sum.defined() ? sum + term : term;
    }
    return sum * weight_;
  }

 private:
  struct Gate {
    const nn::Parameter* log_a;
    attention::HardConcreteDistribution hard_concrete;
  };
  double weight_ = 0.01;
  std::vector<Gate> gates_;
};

const Registration<HardConcretePenalty> hard_concrete_penalty_entry(
    regularisers(), "hard-concrete-penalty", "L0 penalty: expected number of open hard-concrete gates");

}  // namespace
}  // namespace mh::train
