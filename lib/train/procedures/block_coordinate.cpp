// Block coordinate descent of a mixture of attentive experts (Peng et al. 2020) alternates between the gates and all
// other parameters. In one epoch of `every`, each update takes two passes over its batch:
//
//   G pass  the whole mixture, trains the gates       F pass  one sampled expert, trains all other parameters
//
// In the other epochs each update takes an F pass only. The published gates use plain SGD with rate 1, which a
// parameter group configures.
#include <memory>

#include "attention/methods/mae/sample_experts.h"
#include "train/groups.h"
#include "train/procedure.h"

namespace mh::train {
namespace {

constexpr const char* kGates = "*.gate.*";
bool is_gate(const nn::Parameter& p) { return matches(kGates, p.name()); }
bool is_no_gate(const nn::Parameter& p) { return !is_gate(p); }

class BlockCoordinate : public Procedure {
 public:
  void describe(Fields& f) override {
    f.field("every", every_, "period in epochs; the gates are trained in one epoch of each period", at_least(1));
    f.field("first", first_, "first epoch in which the gates are trained, from 0", at_least(0));
  }
  bool inherited_by_finetuning() const override { return true; }
  void start(model::LanguageModel& model) override {
    find_matching(
        model.parameters(), kGates,
        {"train.procedures.block-coordinate", "a model with gates", "none", "such as attention.combiner = \"mae\""});
  }
  std::vector<Pass> passes(const TrainProgress& progress) const override {
    Pass gates, others;
    gates.acts = is_gate, others.acts = is_no_gate;
    others.requests.add(std::make_shared<attention::SampleExperts>());
    const bool both = progress.epoch >= first_ && (progress.epoch - first_) % every_ == 0;
    return both ? std::vector<Pass>{gates, others} : std::vector<Pass>{others};
  }

  std::vector<int64_t> first_epochs() const override { return {0, first_}; }

 private:
  int64_t every_ = 5, first_ = 0;
};

const Registration<BlockCoordinate> block_coordinate_entry(procedures(), "block-coordinate",
                                                           "alternating training of gates and all other parameters");

}  // namespace
}  // namespace mh::train
