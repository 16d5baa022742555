#include "train/trainable_filter.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/partial_load.h"
#include "train/parameter_groups.h"

namespace mh::train {

namespace {

const TrainableWord* find_word(const std::string& name) {
  const auto& words = trainable_words();
  const auto word = std::find_if(words.begin(), words.end(), [&](const TrainableWord& w) { return name == w.name; });
  return word == words.end() ? nullptr : &*word;
}

bool selects(const std::string& entry, const nn::Parameter& p) {
  const TrainableWord* word = find_word(entry);
  if (word == nullptr) return matches_pattern(entry, p.name());
  if (word->roles.empty()) return model::is_task_head_parameter(p.name());
  return std::find(word->roles.begin(), word->roles.end(), p.traits().role) != word->roles.end();
}

}  // namespace

const std::vector<TrainableWord>& trainable_words() {
  using nn::HeadRole;
  static const std::vector<TrainableWord> words{
      {"head", "The task head of an encoder (model.bert.head) and its pooler.", {}},
      {"attention",
       "All parameters of attention layers.",
       {HeadRole::projection, HeadRole::output, HeadRole::gate, HeadRole::mixing, HeadRole::stage}},
      {"gates",
       "Parameters of stages that scale heads, such as gates, mixtures of experts and routers.",
       {HeadRole::gate}},
      {"mixing", "Parameters of stages that mix heads, such as mixing matrices.", {HeadRole::mixing}},
      {"output", "Output projections with their biases.", {HeadRole::output}},
      {"projections", "Projections to queries, keys and values.", {HeadRole::projection}},
      {"stages",
       "Parameters of all stages: gates, mixing, scores and norms.",
       {HeadRole::gate, HeadRole::mixing, HeadRole::stage}}};
  return words;
}

std::string trainable_words_text() {
  std::vector<std::string> names;
  for (const TrainableWord& word : trainable_words()) names.emplace_back(word.name);
  return join(names, ", ");
}

TrainableFilter::TrainableFilter(const std::vector<std::string>& entries, const nn::ParameterList& parameters)
    : entries_(entries) {
  std::vector<std::string> known_names;
  for (const TrainableWord& word : trainable_words()) known_names.emplace_back(word.name);
  for (const nn::Parameter& p : parameters.all()) known_names.push_back(p.name());
  for (const std::string& entry : entries_) {
    const bool has_match = std::any_of(parameters.all().begin(), parameters.all().end(), [&](const nn::Parameter& p) {
      return p.traits().trainable && selects(entry, p);
    });
    if (has_match) continue;
    const std::string advice = str("use a model with such parameters, or leave '", entry, "' out");
    refuse_usage("train.trainable (option --train-only of mh-finetune)",
                 str("patterns that match names of trainable parameters, such as '*.query.*', or words of "
                     "mh-train --list trainable: ",
                     trainable_words_text()),
                 str("'", entry, "', which matches no trainable parameter of this model"),
                 find_word(entry) != nullptr ? advice : did_you_mean(entry, known_names, advice));
  }
}

bool TrainableFilter::operator()(const nn::Parameter& p) const {
  return selects_all() ||
         std::any_of(entries_.begin(), entries_.end(), [&](const std::string& entry) { return selects(entry, p); });
}

}  // namespace mh::train
