#include "train/procedures/skip_retain.h"

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "model/skip_layers.h"
#include "train/procedure.h"
#include "train/procedures/procedure_states.h"

namespace mh::train {

double skip_probability(SkipSchedule schedule, double rate, int64_t layer, int64_t num_layers) {
  const bool is_first = layer == 0, is_last = layer == num_layers - 1;
  switch (schedule) {
    case SkipSchedule::linear:
      return is_last ? 0 : 0.5 * static_cast<double>(layer) / static_cast<double>(num_layers);
    case SkipSchedule::all:
      return rate;
    case SkipSchedule::not_first:
      return is_first ? 0 : rate;
    case SkipSchedule::not_last:
      return is_last ? 0 : rate;
    case SkipSchedule::not_ends:
      return is_first || is_last ? 0 : rate;
  }
  return 0;
}

double expected_context(const std::vector<double>& skip_probabilities, int64_t memory_length) {
  return 2 * static_cast<double>(memory_length) *
         std::accumulate(skip_probabilities.begin(), skip_probabilities.end(), 0.0);
}

double mean_memory_age(double skip_probability) { return 1 / (1 - skip_probability); }

namespace {

double rounded_to_hundredths(double value) { return std::round(100 * value) / 100; }

class SkipRetain : public Procedure {
 public:
  void describe(Fields& f) override {
    f.choice("schedule", schedule_,
             {{SkipSchedule::linear, "linear"},
              {SkipSchedule::all, "all"},
              {SkipSchedule::not_first, "not-first"},
              {SkipSchedule::not_last, "not-last"},
              {SkipSchedule::not_ends, "not-ends"}},
             "layers that an update may skip; linear: layer i of n, counted from 0, with probability 0.5 i / n, except "
             "the last layer, which is never skipped; not-ends: neither the first nor the last layer");
    f.field("rate", skip_rate_, "probability that an update skips a layer; without effect for schedule = linear",
            between(0, 0.999));
    f.field(
        "until", max_phase_length_,
        "latest end of the phase in which layers are skipped, such as 100u for 100 updates; after this phase, training "
        "continues with all layers from the best weights; 0u: layers are skipped throughout training");
  }

  void set_run_properties(const RunProperties& properties) override {
    seed_ = properties.seed;
    phase_end_ = properties.to_updates(max_phase_length_);
    run_end_ = properties.num_updates;
    if (max_phase_length_.count == 0) return;
    if (const std::string& procedure = properties.weight_moving_procedure; !procedure.empty())
      refuse_usage(
          "train.procedures.skip-retain.until",
          str("0u together with train.procedures.", procedure,
              ", since skip-retain restores the best weights, which lack later swaps of heads"),
          to_string(max_phase_length_),
          str("remove train.procedures.skip-retain or train.procedures.", procedure, ", or set until = \"0u\""));
    if (!properties.has_best_weights &&
        (properties.next_validation_update == 0 || properties.next_validation_update > phase_end_))
      refuse_usage("train.procedures.skip-retain.until",
                   "a validation, which determines the best weights, before the end of layer skipping",
                   properties.has_validation_set ? str("no validation up to update ", phase_end_) : "no --valid",
                   properties.has_validation_set ? "lower train.validation.every" : "pass --valid");
    if (phase_end_ >= properties.num_updates)
      log_warning(str("skip-retain: layers are skipped until update ", phase_end_, ", but the run ends at update ",
                      properties.num_updates,
                      ", before training with all layers; lower train.procedures.skip-retain.until, or raise "
                      "train.length"));
  }

  void start(model::LanguageModel& model) override {
    num_layers_ = model.num_skippable_layers();
    if (num_layers_ == 0)
      refuse_usage("train.procedures.skip-retain", "a model that can skip layers", "a backbone that cannot",
                   "use another backbone, for example model.backbone = \"transformer-xl\"");
    memory_length_ = model.memory_length();
  }

  // Returns the expected context and the mean age of each layer's memory in the phase that skips layers; null for a
  // model without a memory.
  nlohmann::ordered_json expected_values() const override {
    if (memory_length_ == 0) return nullptr;
    std::vector<double> probabilities, memory_ages;
    for (int64_t layer = 0; layer < num_layers_; ++layer) {
      probabilities.push_back(skip_probability(schedule_, skip_rate_, layer, num_layers_));
      memory_ages.push_back(rounded_to_hundredths(mean_memory_age(probabilities.back())));
    }
    return {{"expected_context", rounded_to_hundredths(expected_context(probabilities, memory_length_))},
            {"memory_ages", memory_ages}};
  }

  // Draws for each layer whether the update skips it. All rows of the batch skip the same layers.
  void modify_pass(TrainingPass& pass, const TrainProgress& progress) const override {
    if (max_phase_length_.count > 0 && (has_stalled_ || progress.update >= phase_end_)) return;
    const RandomStream stream(seed_, "skip");
    std::vector<bool> is_skipped(static_cast<size_t>(num_layers_));
    for (int64_t layer = 0; layer < num_layers_; ++layer) {
      const double p = skip_probability(schedule_, skip_rate_, layer, num_layers_);
      is_skipped[static_cast<size_t>(layer)] =
          p > 0 && stream.uniform(static_cast<uint32_t>(progress.update), static_cast<uint32_t>(layer), 0) < p;
    }
    pass.requests.add(std::make_shared<model::SkipLayersRequest>(std::move(is_skipped)));
  }

  // Returns true at the end of phase 1 (skip_retain.h): at update phase_end_, or earlier if train.validation.patience
  // is exhausted. During phase 1 an exhausted patience thus ends the phase, not the run.
  bool returns_to_best(const TrainProgress& progress, bool is_stalled) override {
    if (max_phase_length_.count == 0 || has_stalled_ || progress.update > phase_end_) return false;
    if (progress.update == phase_end_) return true;
    has_stalled_ = is_stalled && progress.update < run_end_;
    return has_stalled_;
  }

  std::string state() const override { return to_json(SkipRetainState{has_stalled_}); }
  void set_state(const std::string& text) override { has_stalled_ = parse_skip_retain_state(text).has_stalled; }

 private:
  SkipSchedule schedule_ = SkipSchedule::linear;
  double skip_rate_ = 0.1;
  Length max_phase_length_{0, Length::Unit::updates};
  uint64_t seed_ = 0;
  int64_t phase_end_ = 0, run_end_ = 0, num_layers_ = 0, memory_length_ = 0;
  bool has_stalled_ = false;  // whether the patience ended phase 1 before update phase_end_; part of the saved state
};

const Registration<SkipRetain> skip_retain_entry(procedures(), "skip-retain",
                                                 "random skipping of layers, then training from the best weights");

}  // namespace
}  // namespace mh::train
