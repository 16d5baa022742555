// The procedure "block-coordinate": block coordinate descent for a mixture of attentive experts (MAE, Peng et al.
// 2020), which trains the gates and all other parameters in different passes. From epoch `first_gate_epoch` on, in one
// epoch out of `every`, each update takes two passes over its batch, a G pass and an F pass:
//
//   G pass  runs the whole mixture of experts and trains the gates
//   F pass  runs one sampled expert and trains all parameters except the gates
//
// In all other epochs, each update takes an F pass only. In the paper the gates are trained by plain SGD with learning
// rate 1; a parameter group sets this rule and learning rate.
#include <memory>

#include "attention/methods/mae/mae_gate.h"
#include "attention/methods/mae/sample_experts.h"
#include "train/parameter_groups.h"
#include "train/procedure.h"

namespace mh::train {
namespace {

bool is_gate(const nn::Parameter& p) { return matches_pattern(attention::kExpertGatePattern, p.name()); }
bool is_not_gate(const nn::Parameter& p) { return !is_gate(p); }

class BlockCoordinate : public Procedure {
 public:
  void describe(Fields& f) override {
    f.field("every", gate_epoch_interval_,
            "number of epochs from one epoch that trains the gates to the next; 1: every epoch trains the gates",
            at_least(1));
    f.field("first_gate_epoch", first_gate_epoch_,
            "first epoch in which the gates are trained; epochs are counted from 0", at_least(0));
  }
  bool is_inherited_by_finetuning() const override { return true; }
  void start(model::LanguageModel& model) override {
    find_parameters(model.parameters(), attention::kExpertGatePattern,
                    {"train.procedures.block-coordinate", "a model with learned gates", "no parameters of gates",
                     "set attention.combiner = \"mae\" and attention.mae.gate = \"learned\", or remove the procedure"});
  }
  std::vector<TrainingPass> passes(const TrainProgress& progress) const override {
    TrainingPass gate_pass, expert_pass;
    gate_pass.trains_parameter = is_gate, expert_pass.trains_parameter = is_not_gate;
    expert_pass.requests.add(std::make_shared<attention::SampleExpertsRequest>());
    const bool has_gate_pass =
        progress.epoch >= first_gate_epoch_ && (progress.epoch - first_gate_epoch_) % gate_epoch_interval_ == 0;
    return has_gate_pass ? std::vector<TrainingPass>{gate_pass, expert_pass} : std::vector<TrainingPass>{expert_pass};
  }

  std::vector<int64_t> first_epochs_of_passes() const override { return {0, first_gate_epoch_}; }

 private:
  int64_t gate_epoch_interval_ = 5, first_gate_epoch_ = 0;
};

const Registration<BlockCoordinate> block_coordinate_entry(
    procedures(), "block-coordinate",
    "separate training passes for the gates and for all other parameters of a mixture of attentive experts");

}  // namespace
}  // namespace mh::train
