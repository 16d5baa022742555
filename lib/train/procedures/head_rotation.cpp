// The procedure "head-rotation" (Azov & Landau): between epochs, attention heads of one layer are swapped with heads of
// another layer of the same kind of attention (analysis/swap.h), and later swapped back. The option `mode` selects the
// pairs of heads:
//
//   manual              Pairs in the option `pairs`. Before the 1st, 3rd, … epoch in the option `epochs`, the pairs are
//                       swapped; before the 2nd, 4th, … epoch, the pairs are swapped back.
//   hard, soft,         Pairs selected by importance or at random (analysis/rotation.h), swapped before epoch `start`
//   in-layer, random    and swapped back `frequency` epochs later. After `rest` epochs without swapped heads, new pairs
//                       are selected, and so on. Before epoch `end` + 1 all pairs are swapped back for good.
//
// Epochs are counted from 1. All modes except manual and random measure the importance of heads in the validation at
// the end of the epoch before a swap.
#include <algorithm>

#include "analysis/importance.h"
#include "analysis/rotation.h"
#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "model/load.h"
#include "train/procedure.h"
#include "train/procedures/procedure_states.h"

namespace mh::train {
namespace {

using analysis::HeadPair;
using analysis::PairSelection;
using analysis::RotationSchedule;

constexpr const char* kSection = "train.procedures.head-rotation";

enum class Mode { manual, hard, soft, in_layer, random };
enum class SoftVariant { paper, released };

class HeadRotation : public Procedure {
 public:
  void describe(Fields& f) override {
    f.choice(
        "mode", mode_,
        {{Mode::manual, "manual"},
         {Mode::hard, "hard"},
         {Mode::soft, "soft"},
         {Mode::in_layer, "in-layer"},
         {Mode::random, "random"}},
        "selection of swapped heads; manual: the pairs in train.procedures.head-rotation.pairs; hard: by importance "
        "over all layers; soft: by importance in two opposite layers, such as the first and the last; in-layer: by "
        "importance within each layer; random: random heads");
    f.field("start", schedule_.start_epoch,
            "epoch before which heads are swapped for the first time; epochs are counted from 1", at_least(1));
    f.field("frequency", schedule_.num_swapped_epochs, "number of epochs after which swapped heads are swapped back",
            at_least(1));
    f.field("rest", schedule_.num_rest_epochs, "number of epochs without swapped heads before the next swap",
            at_least(1));
    f.field("end", schedule_.end_epoch,
            "last epoch that can run with swapped heads, counted from 1; heads that are still swapped then are swapped "
            "back before the next epoch",
            at_least(1));
    f.field("k", k_,
            "modes hard and random: number of pairs of heads to swap in each kind of attention; mode soft: number of "
            "pairs of heads to swap in each pair of layers; mode in-layer: number of pairs of heads to swap in each "
            "layer; mode soft with train.procedures.head-rotation.soft = "
            "released: number of pairs of layers, each of which swaps 4 pairs of heads",
            at_least(1));
    f.field("t_max", t_max_,
            "mode soft: number of pairs of layers that swap heads; the first pair is the first and last layer, the "
            "second pair the second and second to last layer, and so on; 0: all pairs",
            at_least(0));
    f.field("kind", kind_names_,
            "kinds of attention in which heads are swapped, such as decoder.self; empty: all kinds in the model");
    f.field("measure", measure_name_,
            "importance measure of heads in modes hard, soft and in-layer; training supports only " +
                join(analysis::observer_measure_names(), ", ") + ", and mh-swap supports all measures",
            analysis::importance_measures().names());
    f.choice("soft", soft_variant_, {{SoftVariant::paper, "paper"}, {SoftVariant::released, "released"}},
             "variant of mode soft; paper: least important heads of each of two layers; released: 4 least important "
             "heads of one layer, and the heads with the same numbers in the other layer");
    f.field("pairs", pair_texts_,
            "mode manual: pairs of heads to swap, such as decoder.self:1.0-5.3 for head 0 of layer 1 and head 3 of "
            "layer 5; layers and heads are counted from 0");
    f.field("epochs", manual_epochs_,
            "mode manual: epochs in ascending order, counted from 1; the head pairs of "
            "train.procedures.head-rotation.pairs are swapped before the 1st, 3rd, … listed epoch, and swapped back "
            "before the 2nd, 4th, … listed epoch",
            at_least(1));
    f.field("swap_output", swap_options_.moves_output,
            "move a swapped head's columns of the output projection with the head");
    f.field("swap_stages", swap_options_.moves_stages,
            "move a swapped head's parameters in attention stages, such as its gate, with the head");
    f.field("swap_optimizer_state", swap_optimizer_state_,
            "move the optimiser's moments of a swapped head's parameters with the head");
  }

  void set_run_properties(const RunProperties& properties) override {
    seed_ = properties.seed;
    update_rule_of_ = properties.update_rule_of;
    if (!uses_importance()) return;
    if (make_measure_observer() == nullptr)
      refuse_usage(key("measure"),
                   "a measure that a validation can compute: " + join(analysis::observer_measure_names(), ", "),
                   measure_name_, "use another measure, or swap heads with mh-swap, which supports all measures");
    const std::string mode_text =
        str("head-rotation with ", mode_ == Mode::soft ? "the default, " : "", mode_assignment());
    if (!properties.has_validation_set)
      refuse_usage("--valid", "a shard to rank heads on, for " + mode_text, "no --valid",
                   "pass --valid, or set mode = \"random\"");
    if (!properties.validates_each_epoch)
      refuse_usage("train.validation.every", "a validation at the end of each epoch, for " + mode_text,
                   "epochs that end without a validation", "set train.validation.every = \"1e\"");
    if (schedule_.start_epoch < 2)
      refuse_usage(key("start"), "at least 2, since no validation precedes epoch 1", str(schedule_.start_epoch),
                   "raise train.procedures.head-rotation.start");
  }

  void start(model::LanguageModel& model) override {
    check_options();
    nn::ParameterList& parameters = model.parameters();
    check_moments(parameters);
    if (mode_ == Mode::manual) {
      for (const std::string& text : pair_texts_) manual_pairs_.push_back(analysis::parse_pair(text, key("pairs")));
      analysis::check_swap(parameters, manual_pairs_, swap_options_, key("pairs"));
      return;
    }
    num_heads_ =
        analysis::head_counts_for_pairing(parameters, selection(), k_, t_max_, kind_names_, swap_options_, key);
    analysis::Kinds swapped_kinds;
    for (const auto& [kind, num_heads] : num_heads_) swapped_kinds.insert(kind);
    if (uses_importance())
      analysis::check_importance(measure_name_, key("measure"), model, analysis::SideSelection::whole, swapped_kinds);
  }

  bool observes() const override { return uses_importance(); }
  attention::Observer* observer(const TrainProgress& progress) override {
    if (!uses_importance() || next_action(progress) != RotationSchedule::Action::swap) return nullptr;
    measure_observer_ = make_measure_observer();
    return measure_observer_.get();
  }

  void after_epoch(model::LanguageModel&, const TrainProgress& progress) override {
    if (measure_observer_ == nullptr || next_action(progress) != RotationSchedule::Action::swap) return;
    const auto scores = measure_observer_->mean_scores();
    measure_observer_.reset();
    state_.next_pairs.clear();
    for (const auto& [kind, num_heads] : num_heads_) {
      const auto pairs = analysis::pair_ranked(selection(), kind, scores.at(kind), k_, t_max_);
      state_.next_pairs.insert(state_.next_pairs.end(), pairs.begin(), pairs.end());
    }
  }

  bool moves_weights() const override { return true; }
  std::string before_epoch(const ModelAndOptimizer& objects, const TrainProgress& progress) override {
    const int64_t epoch = progress.epoch + 1;
    if (epoch <= state_.last_begun_epoch) return "";  // this epoch began, with its swaps, before the run was resumed
    const auto action = next_action(progress);
    state_.last_begun_epoch = epoch;
    if (action == RotationSchedule::Action::none) return "";
    const bool is_undo = action == RotationSchedule::Action::undo;
    if (!is_undo) {
      state_.swapped_pairs = mode_ == Mode::manual   ? manual_pairs_
                             : mode_ == Mode::random ? sampled_pairs(epoch)
                                                     : state_.next_pairs;
      state_.swap_epoch = epoch;
      state_.next_pairs.clear();
    }
    const analysis::ExtraTensors moments = [&](const nn::Parameter& p) {
      std::vector<at::Tensor> parameter_moments;
      const std::string prefix = model::kOptimizerPrefix + p.name() + ".";
      for (const auto& [name, tensor] : objects.optimizer.moments())
        if (name.rfind(prefix, 0) == 0) parameter_moments.push_back(tensor);
      return parameter_moments;
    };
    analysis::swap_heads(objects.model.parameters(), state_.swapped_pairs, swap_options_, kSection,
                         swap_optimizer_state_ ? moments : analysis::ExtraTensors{});
    const auto texts = analysis::to_strings(state_.swapped_pairs);
    if (is_undo) state_.swapped_pairs.clear();
    log_info(str("epoch ", epoch, ": heads ", is_undo ? "swapped back: " : "swapped: ", join(texts, " ")));
    return nlohmann::json{{"epoch", epoch}, {is_undo ? "undone" : "swapped", texts}}.dump();
  }

  std::string state() const override { return to_json(state_); }
  void set_state(const std::string& text) override { state_ = parse_head_rotation_state(text); }

 private:
  static std::string key(const char* name) { return str(kSection, ".", name); }
  bool uses_importance() const { return mode_ != Mode::manual && mode_ != Mode::random; }
  // Returns the mode for messages, such as `mode = "hard"`.
  const char* mode_assignment() const {
    switch (mode_) {
      case Mode::manual:
        return "mode = \"manual\"";
      case Mode::hard:
        return "mode = \"hard\"";
      case Mode::soft:
        return "mode = \"soft\"";
      case Mode::in_layer:
        return "mode = \"in-layer\"";
      case Mode::random:
        return "mode = \"random\"";
    }
    return "";
  }
  PairSelection selection() const {
    return mode_ == Mode::in_layer                  ? PairSelection::in_layer
           : mode_ == Mode::hard                    ? PairSelection::hard
           : mode_ == Mode::random                  ? PairSelection::random
           : soft_variant_ == SoftVariant::released ? PairSelection::released
                                                    : PairSelection::soft;
  }

  // Returns an observer that computes the measure, or null if a validation cannot compute this measure.
  std::unique_ptr<analysis::MeasureObserver> make_measure_observer() const {
    return analysis::importance_measures()
        .make(measure_name_, key("measure"))
        ->make_observer(analysis::SideSelection::whole);
  }

  // Throws Error(usage) for options that contradict the mode or each other, and for missing options of mode manual.
  void check_options() const {
    auto refuse = [](const char* name, const std::string& expected, const std::string& found, const char* advice = "") {
      refuse_usage(key(name), expected, found, advice);
    };
    if (mode_ != Mode::manual) {
      if (!pair_texts_.empty())
        refuse("pairs", "mode = \"manual\", or no pairs", count_of(pair_texts_.size(), "pair"),
               "set mode = \"manual\", or leave pairs out");
      if (!manual_epochs_.empty())
        refuse("epochs", "mode = \"manual\", or no epochs", count_of(manual_epochs_.size(), "epoch"),
               "set mode = \"manual\", or leave epochs out");
      if (schedule_.end_epoch < schedule_.start_epoch)
        refuse("end", str("at least ", schedule_.start_epoch, ", the value of 'start'"),
               found_value(schedule_.end_epoch, RotationSchedule{}.end_epoch), "raise 'end', or lower 'start'");
      if (soft_variant_ != SoftVariant::paper && mode_ != Mode::soft)
        refuse("soft", "mode = \"soft\"", mode_assignment(), "leave the key soft out");
      if (mode_ == Mode::in_layer && swap_options_.moves_output)
        refuse("swap_output",
               "false with mode = \"in-layer\", since moving the columns of the output projection with the heads of a "
               "layer only reorders these heads",
               "true", "leave swap_output out");
      return;
    }
    if (t_max_ > 0) refuse("t_max", "0, or mode = \"soft\"", str(t_max_), "leave t_max out");
    if (pair_texts_.empty())
      refuse("pairs", "pairs of heads, for mode = \"manual\"", "no pairs",
             "write pairs such as [\"decoder.self:1.0-5.3\"]");
    if (manual_epochs_.empty())
      refuse("epochs", "epochs before which the pairs are swapped, for mode = \"manual\"", "no epochs",
             "for example [2, 4], to swap the pairs before epoch 2 and back before epoch 4");
    if (!kind_names_.empty())
      refuse("kind", "an empty list with mode = \"manual\", whose pairs contain the kind", join(kind_names_, ", "),
             "leave kind out");
    for (size_t i = 1; i < manual_epochs_.size(); ++i)
      if (manual_epochs_[i] <= manual_epochs_[i - 1])
        refuse("epochs", "each epoch once, in ascending order", str(manual_epochs_[i - 1], ", ", manual_epochs_[i]),
               "for example [2, 4]");
  }

  // Throws Error(usage) if swap_optimizer_state is set and layers of one kind have different update rules, between
  // which moments cannot be swapped.
  void check_moments(const nn::ParameterList& parameters) const {
    if (!swap_optimizer_state_ || !update_rule_of_) return;
    // Update rules by kind of attention and name of the parameter within the layer.
    std::map<std::string, std::string> rules;
    for (const nn::Parameter& p : parameters.all()) {
      const auto layer = analysis::layer_of(p.name());
      if (!layer || p.traits().head_axes.empty()) continue;
      const std::string suffix = p.name().substr(analysis::prefix_of(layer->kind, layer->layer).size());
      const std::string rule = update_rule_of_(p.name());
      const auto [entry, is_new] = rules.emplace(name_of(layer->kind) + suffix, rule);
      if (entry->second != rule)
        refuse_usage(key("swap_optimizer_state"), "layers with the same update rule",
                     str(rule, " for ", p.name(), ", but ", entry->second, " in an earlier layer"),
                     "set one rule for these parameters in train.groups");
    }
  }

  // Returns the action that is due before epoch progress.epoch + 1 (counted from 1).
  RotationSchedule::Action next_action(const TrainProgress& progress) const {
    const int64_t epoch = progress.epoch + 1;
    if (mode_ != Mode::manual) return schedule_.action_before(epoch, state_.swap_epoch, !state_.swapped_pairs.empty());
    if (std::find(manual_epochs_.begin(), manual_epochs_.end(), epoch) == manual_epochs_.end())
      return RotationSchedule::Action::none;
    return state_.swapped_pairs.empty() ? RotationSchedule::Action::swap : RotationSchedule::Action::undo;
  }

  std::vector<HeadPair> sampled_pairs(int64_t epoch) const {
    std::vector<HeadPair> all_pairs;
    for (const auto& [kind, num_heads] : num_heads_) {
      RandomSequence random(RandomStream(seed_, str(name_of(kind), ".rotation")), static_cast<uint32_t>(epoch));
      const auto pairs = analysis::pair_random(kind, num_heads, k_, random);
      all_pairs.insert(all_pairs.end(), pairs.begin(), pairs.end());
    }
    return all_pairs;
  }

  Mode mode_ = Mode::soft;
  RotationSchedule schedule_;
  int64_t k_ = analysis::kDefaultK, t_max_ = 0;
  std::vector<std::string> kind_names_, pair_texts_;
  std::string measure_name_ = "avg-l2";
  SoftVariant soft_variant_ = SoftVariant::paper;
  std::vector<int64_t> manual_epochs_;
  analysis::SwapOptions swap_options_;
  bool swap_optimizer_state_ = false;

  uint64_t seed_ = 0;
  std::function<std::string(const std::string&)> update_rule_of_;
  // By kind of attention: number of heads of each layer.
  std::map<attention::AttentionKind, std::vector<int64_t>> num_heads_;
  std::vector<HeadPair> manual_pairs_;                           // pairs of mode manual
  std::unique_ptr<analysis::MeasureObserver> measure_observer_;  // observer of the current validation; null: none
  HeadRotationState state_;                                      // the state that a resume restores
};

const Registration<HeadRotation> head_rotation_entry(procedures(), "head-rotation",
                                                     "temporary swaps of heads between layers");

}  // namespace
}  // namespace mh::train
