#include "model/ensemble.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "model/output.h"
#include "nn/aten.h"

namespace mh::model {

namespace {

// Returns the logarithm of the mean of the probabilities whose logarithms (…) are the elements of `log_p`. Subtracts
// the largest logarithm first, so that equal distributions have this mean bit for bit.
at::Tensor log_mean_exp(const std::vector<at::Tensor>& log_p) {
  const at::Tensor all_log_p = at::stack(log_p), max_log_p = all_log_p.amax(0);
  // 0 in place of minus infinity, where all probabilities are 0: the difference of two infinities would be NaN.
  const at::Tensor offset = max_log_p.masked_fill(max_log_p.isneginf(), 0);
  return offset + (all_log_p - offset).exp().mean(0).log();
}

class EnsembleOutput : public OutputLayer {
 public:
  explicit EnsembleOutput(const std::vector<EnsembleMember>& members) : members_(members) {}

  at::Tensor logits(const at::Tensor& hidden) const override {
    return mean_over_members(hidden, [](const LanguageModel& model, const at::Tensor& member_hidden) {
      return at::log_softmax(model.logits(member_hidden), -1);
    });
  }

  nn::SlicedLoss loss(const at::Tensor&, const Targets&, double, const nn::ForwardContext&) const override {
    throw std::logic_error("EnsembleOutput::loss: expected a model that can be trained; found an ensemble");
  }

  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const override {
    const at::Tensor log_p =
        mean_over_members(hidden, [&](const LanguageModel& model, const at::Tensor& member_hidden) {
          return model.target_log_probabilities(member_hidden, targets);
        });
    return log_p.masked_fill(targets.lt(0).to(log_p.device()), 0);
  }

 private:
  // Returns log_mean_exp() of the results of `log_p` for each member and its part of `hidden` (B, T, Σ d_n).
  template <class Function>
  at::Tensor mean_over_members(const at::Tensor& hidden, const Function& log_p) const {
    std::vector<at::Tensor> member_log_p;
    int64_t first = 0;
    for (const EnsembleMember& member : members_) {
      member_log_p.push_back(log_p(*member.model, hidden.narrow(-1, first, member.width).contiguous()));
      first += member.width;
    }
    return log_mean_exp(member_log_p);
  }

  const std::vector<EnsembleMember>& members_;
};

// The decoding states of all members, with the same rows.
class EnsembleState : public DecodingState {
 public:
  explicit EnsembleState(std::vector<std::unique_ptr<DecodingState>> member_states)
      : states(std::move(member_states)) {}
  int64_t length() const override { return states.front()->length(); }
  void reorder(const at::Tensor& old_rows) override {
    for (const auto& state : states) state->reorder(old_rows);
  }
  void reorder_within_sources(const at::Tensor& old_rows) override {
    for (const auto& state : states) state->reorder_within_sources(old_rows);
  }
  std::vector<std::unique_ptr<DecodingState>> states;  // in the order of the members
};

class Ensemble : public LanguageModel {
 public:
  explicit Ensemble(std::vector<EnsembleMember> members) : members_(std::move(members)), output_(members_) {}

  nn::ParameterList& parameters() override { return members_.front().model->parameters(); }
  VocabularySizes vocabulary_sizes() const override { return members_.front().model->vocabulary_sizes(); }
  bool has_encoder() const override { return true; }
  int32_t start_token() const override { return members_.front().model->start_token(); }
  int64_t max_positions() const override {
    int64_t minimum = 0;
    for (const EnsembleMember& member : members_)
      if (const int64_t limit = member.model->max_positions(); limit > 0 && (minimum == 0 || limit < minimum))
        minimum = limit;
    return minimum;
  }

  at::Tensor hidden(const Input& input, const nn::ForwardContext& forward_context, DecodingState* state,
                    attention::Observer* observer) override {
    if (observer != nullptr)
      throw std::logic_error("Ensemble::hidden: expected a single model for an observer; found an ensemble");
    auto* ensemble_state = static_cast<EnsembleState*>(state);
    std::vector<at::Tensor> member_hidden;
    for (size_t n = 0; n < members_.size(); ++n)
      member_hidden.push_back(members_[n].model->hidden(
          input, forward_context, ensemble_state != nullptr ? ensemble_state->states[n].get() : nullptr));
    return nn::cat(member_hidden, -1);
  }

  std::unique_ptr<DecodingState> new_state() override {
    std::vector<std::unique_ptr<DecodingState>> states;
    for (const EnsembleMember& member : members_) states.push_back(member.model->new_state());
    return std::make_unique<EnsembleState>(std::move(states));
  }

  std::vector<attention::AttentionLayer*> attention_layers() override {
    std::vector<attention::AttentionLayer*> layers;
    for (const EnsembleMember& member : members_) {
      const auto member_layers = member.model->attention_layers();
      layers.insert(layers.end(), member_layers.begin(), member_layers.end());
    }
    return layers;
  }

 protected:
  const OutputLayer& output_layer() const override { return output_; }

 private:
  std::vector<EnsembleMember> members_;
  EnsembleOutput output_;
};

// Returns the sizes of both vocabularies for messages, such as "8000 source and 10000 target entries".
std::string describe_sizes(const VocabularySizes& sizes) {
  return sizes.source > 0 ? str(sizes.source, " source and ", sizes.target, " target entries")
                          : count_of(sizes.target, "entry");
}

constexpr const char* kSameVocabularyAdvice = "make an ensemble of models that were trained with the same vocabularies";

// Throws Error(usage) unless a member is a translation model.
void require_translation_model(const std::string& name, const LanguageModel& model) {
  if (!model.has_encoder())
    refuse_usage(name, "a translation model, since an ensemble consists of translation models",
                 "a model without an encoder-decoder backbone", "leave the model out");
}

// Throws Error(input) if a tokenizer of a member differs from that of the first member. `role`: "source" or "target",
// for the message.
void require_same_tokenizer(const std::string& role, const LoadedModel& first, const text::Tokenizer& first_tokenizer,
                            const LoadedModel& member, const text::Tokenizer& member_tokenizer) {
  const std::string expected = first_tokenizer.fingerprint(), found = member_tokenizer.fingerprint();
  if (expected != found)
    refuse_input(member.name, str("the ", role, " vocabulary of ", first.name, ", with the fingerprint ", expected),
                 found, kSameVocabularyAdvice);
}

}  // namespace

std::unique_ptr<LanguageModel> make_ensemble(std::vector<EnsembleMember> members) {
  for (const EnsembleMember& member : members) require_translation_model(member.name, *member.model);
  const EnsembleMember& first = members.front();
  const VocabularySizes first_sizes = first.model->vocabulary_sizes();
  for (const EnsembleMember& member : members) {
    const VocabularySizes sizes = member.model->vocabulary_sizes();
    if (sizes.target != first_sizes.target || sizes.source != first_sizes.source)
      refuse_input(member.name, str("the vocabulary of ", first.name, ", ", describe_sizes(first_sizes)),
                   describe_sizes(sizes), kSameVocabularyAdvice);
    if (member.model->start_token() != first.model->start_token())
      refuse_input(
          member.name,
          str("the start token of ", first.name, " (model.encoder-decoder.start_token), ", first.model->start_token()),
          str(member.model->start_token()), "make an ensemble of models with the same start token");
  }
  return std::make_unique<Ensemble>(std::move(members));
}

LoadedModel ensemble_of(std::vector<LoadedModel> models) {
  if (models.size() == 1) return std::move(models.front());
  // This check precedes that of the vocabularies, since a model with the expected vocabulary would still be refused.
  for (const LoadedModel& model : models) require_translation_model(model.name, *model.model);
  LoadedModel first = std::move(models.front());
  std::vector<std::string> names{first.name};
  std::vector<EnsembleMember> members;
  members.push_back({first.name, std::move(first.model), first.config.model.width});
  for (size_t n = 1; n < models.size(); ++n) {
    LoadedModel& model = models[n];
    require_same_tokenizer("target", first, *first.tokenizers.target, model, *model.tokenizers.target);
    require_same_tokenizer("source", first, first.tokenizers.source_or_target(), model,
                           model.tokenizers.source_or_target());
    names.push_back(model.name);
    if (model.mapped_file != nullptr) first.member_files.push_back(model.mapped_file);
    members.push_back({model.name, std::move(model.model), model.config.model.width});
  }
  first.model = make_ensemble(std::move(members));
  first.name = join(names, "+");
  return first;
}

}  // namespace mh::model
