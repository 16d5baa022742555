#include "train/procedures/skip_retain.h"

#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/random.h"
#include "train/procedure.h"

namespace mh::train {

double skip_probability(SkipSchedule schedule, double rate, int64_t layer, int64_t layers) {
  const bool first = layer == 0, last = layer == layers - 1;
  switch (schedule) {
    case SkipSchedule::linear:
      return last ? 0 : 0.5 * static_cast<double>(layer) / static_cast<double>(layers);
    case SkipSchedule::all:
      return rate;
    case SkipSchedule::not_first:
      return first ? 0 : rate;
    case SkipSchedule::not_last:
      return last ? 0 : rate;
    case SkipSchedule::not_ends:
      return first || last ? 0 : rate;
  }
  return 0;
}

namespace {

class SkipRetain : public Procedure {
 public:
  void describe(Fields& f) override {
    f.choice("schedule", schedule_,
             {{SkipSchedule::linear, "linear"},
              {SkipSchedule::all, "all"},
              {SkipSchedule::not_first, "not-first"},
              {SkipSchedule::not_last, "not-last"},
              {SkipSchedule::not_ends, "not-ends"}},
             "skipped layers; linear: all but the last, with a probability that rises from 0 to nearly .5");
    f.field("rate", rate_, "probability that a layer is skipped; unused by linear", between(0, 0.999));
    f.field("until", until_, "latest end of phase 1, after which training continues from the best weights; 0u: no end");
  }

  void plan(const Plan& plan) override {
    seed_ = plan.seed;
    end_ = plan.updates(until_);
    run_end_ = plan.end;
    if (until_.count == 0) return;
    if (plan.weights_move)
      throw Error(Exit::usage,
                  Problem{"train.procedures.skip-retain.until", "0u with a procedure that moves weights",
                          to_string(until_), "the best weights do not contain the positions of moved weights"});
    if (!plan.has_best && (plan.next_validation == 0 || plan.next_validation > end_))
      throw Error(Exit::usage, Problem{"train.procedures.skip-retain.until",
                                       "a validation before it, for the best weights of phase 1",
                                       plan.validates ? "none this early" : "no --valid",
                                       plan.validates ? "lower train.validation.every" : ""});
    if (end_ >= plan.end)
      log_warning(str("skip-retain: phase 1 lasts to update ", end_, ", the end of the run or later"));
  }

  void start(model::LanguageModel& model) override {
    layers_ = model.skippable_layers();
    if (layers_ == 0)
      throw Error(Exit::usage, Problem{"train.procedures.skip-retain", "a model that can skip layers",
                                       "a model that cannot", "such as model.backbone = \"transformer-xl\""});
  }

  // One random decision per layer and update serves the whole batch.
  void change(Pass& pass, const TrainProgress& progress) const override {
    if (until_.count > 0 && (stalled_ || progress.update >= end_)) return;
    const RandomStream stream(seed_, "skip");
    pass.skipped.resize(static_cast<size_t>(layers_));
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const double p = skip_probability(schedule_, rate_, layer, layers_);
      pass.skipped[static_cast<size_t>(layer)] =
          p > 0 && stream.uniform(static_cast<uint32_t>(progress.update), static_cast<uint32_t>(layer), 0) < p;
    }
  }

  // Phase 1 ends when it stops improving: the patience applies to the phase, not to the run.
  bool returns_to_best(const TrainProgress& progress, bool stalled) override {
    if (until_.count == 0 || stalled_ || progress.update > end_) return false;
    if (progress.update == end_) return true;
    stalled_ = stalled && progress.update < run_end_;
    return stalled_;
  }

  std::string state() const override { return nlohmann::json{{"stalled", stalled_}}.dump(); }
  void set_state(const std::string& text) override {
    try {
      stalled_ = nlohmann::json::parse(text).value("stalled", false);
    } catch (const nlohmann::json::exception& error) {
      throw Error(Exit::input,
                  Problem{"the saved state of skip-retain", "the state of the procedure", error.what(), ""});
    }
  }

 private:
  SkipSchedule schedule_ = SkipSchedule::linear;
  double rate_ = 0.1;
  Length until_{0, Length::Unit::updates};
  uint64_t seed_ = 0;
  int64_t end_ = 0, run_end_ = 0, layers_ = 0;
  bool stalled_ = false;  // phase 1 ended before end_; part of the saved state
};

const Registration<SkipRetain> skip_retain_entry(procedures(), "skip-retain",
                                                 "random skipping of layers, then training from the best weights");

}  // namespace
}  // namespace mh::train
