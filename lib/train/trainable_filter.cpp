#include "train/trainable_filter.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "model/partial_load.h"
#include "train/groups.h"

namespace mh::train {

namespace {

using nn::HeadRole;

const std::map<std::string, std::vector<HeadRole>>& roles_by_word() {
  static const std::map<std::string, std::vector<HeadRole>> table{
      {"attention", {HeadRole::projection, HeadRole::output, HeadRole::gate, HeadRole::mixing, HeadRole::stage}},
      {"gates", {HeadRole::gate}},
      {"mixing", {HeadRole::mixing}},
      {"output", {HeadRole::output}},
      {"projections", {HeadRole::projection}},
      {"stages", {HeadRole::gate, HeadRole::mixing, HeadRole::stage}}};
  return table;
}

constexpr const char* kHeadWord = "head";

bool selects(const std::string& name, const nn::Parameter& p) {
  if (name == kHeadWord) return model::is_task_head_parameter(p.name());
  const auto word = roles_by_word().find(name);
  if (word == roles_by_word().end()) return matches(name, p.name());
  return std::find(word->second.begin(), word->second.end(), p.traits().role) != word->second.end();
}

}  // namespace

TrainableFilter::TrainableFilter(const std::vector<std::string>& names, const nn::ParameterList& parameters)
    : names_(names) {
  std::vector<std::string> known_words{kHeadWord}, all;
  for (const auto& [word, roles] : roles_by_word()) known_words.push_back(word);
  all = known_words;
  for (const nn::Parameter& p : parameters.all()) all.push_back(p.name());
  for (const std::string& name : names_) {
    const bool has_match = std::any_of(parameters.all().begin(), parameters.all().end(), [&](const nn::Parameter& p) {
      return p.traits().trainable && selects(name, p);
    });
    if (has_match) continue;
    const std::string suggestion = did_you_mean(name, all);
    throw Error(Exit::usage,
                Problem{"train.trainable",
                        str("patterns that match names of trainable parameters, such as '*.query.*', or one "
                            "of the words head (the task head), ",
                            join({known_words.begin() + 1, known_words.end()}, ", ")),
                        str("'", name, "', which matches no trainable parameter of this model"),
                        roles_by_word().count(name) > 0 || name == kHeadWord ? "" : suggestion});
  }
}

bool TrainableFilter::operator()(const nn::Parameter& p) const {
  return selects_all() ||
         std::any_of(names_.begin(), names_.end(), [&](const std::string& name) { return selects(name, p); });
}

}  // namespace mh::train
