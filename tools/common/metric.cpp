#include "common/metric.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "common/option_columns.h"
#include "common/subject.h"
#include "task/example_scores.h"

namespace mh {

void Metric::describe(Fields& f) {
  f.section("", translation_);
  f.section("", bleu_);
}

void Metric::add_to(CLI::App& app) {
  std::vector<std::string> names{"perplexity", "bleu"};
  for (const std::string& score : task::all_score_names()) names.push_back(score);
  app.add_option("--metric", name_,
                 "perplexity, bleu of translations of pairs, or a score of examples' task: " +
                     join(task::all_score_names(), ", ") + " [perplexity]")
      ->type_name("WHAT")
      ->check(one_of(names));
  fields_ = std::make_unique<CommandLineFields>(app);
  fields_->declare(*this);
}

void Metric::take() {
  fields_->take(*this);
  bleu_.check();
  if (is_bleu()) return;
  for (const CLI::Option* option : fields_->options())
    if (option->count() > 0)
      throw Error(Exit::usage, Problem{option->get_name(), "--metric bleu, which it is for", name_, ""});
}

const char* Metric::title() const { return is_bleu() ? "BLEU" : name_.c_str(); }

void Metric::check(model::LoadedModel& m, const task::Corpus& corpus, const std::string& shard,
                   const task::ScoringOptions& how) const {
  if (is_perplexity()) return;
  const auto* examples = std::get_if<task::Examples>(&corpus);
  const auto scores = examples != nullptr ? task::score_names(*examples) : std::vector<std::string>{};
  if (is_bleu() ? !std::holds_alternative<task::Pairs>(corpus)
                : std::find(scores.begin(), scores.end(), name_) == scores.end())
    throw Error(Exit::usage,
                Problem{"--metric " + name_, is_bleu() ? "a shard of pairs to translate" : "examples that have it",
                        str(shard, examples != nullptr ? ", which has " + join(scores, ", ") : ", which has no task"),
                        examples != nullptr ? "" : "judge a language model by its perplexity"});
  if (how.sample.blocks > 0)
    throw Error(Exit::usage,
                Problem{"--blocks", str("0, as ", title(), is_bleu() ? " is of all pairs" : " is of all rows"),
                        str(how.sample.blocks), ""});
  if (is_bleu()) task::Translator(*m.model, m.tokenizers, translation_);
}

double Metric::of(model::LoadedModel& m, const task::Corpus& corpus, const std::string& shard,
                  const std::function<void(int64_t, int64_t)>& progress, attention::Observer* observer) const {
  if (const auto* examples = std::get_if<task::Examples>(&corpus))
    return task::score_named(task::score_examples(*m.model, *examples, {observer, progress}).scores, name_);
  task::Translator translator(*m.model, m.tokenizers, translation_);
  translator.show_to(observer);
  return bleu_of(translator, std::get<task::Pairs>(corpus), shard, bleu_, progress).score;
}

nlohmann::ordered_json Metric::protocol() const {
  if (!is_bleu()) return nlohmann::ordered_json::object();
  nlohmann::ordered_json columns = {{"signature", bleu_signature(bleu_, 1, metrics::BleuOf::corpus)}};
  columns.update(option_columns(translation_.search));
  return columns;
}

}  // namespace mh
