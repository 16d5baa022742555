#include "metric.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "subject.h"

namespace mh {

void Metric::describe(Fields& f) {
  f.section("", translation_);
  f.section("", bleu_);
}

void Metric::add_to(CLI::App& app) {
  app.add_option("--metric", name_, "perplexity, or bleu of translations of a shard of pairs [perplexity]")
      ->type_name("WHAT")
      ->check(one_of({"perplexity", "bleu"}));
  const std::vector<CLI::Option*> others = app.get_options();
  fields_ = std::make_unique<CommandLineFields>(app);
  fields_->declare(*this);
  for (const CLI::Option* option : app.get_options())
    if (std::find(others.begin(), others.end(), option) == others.end()) options_.push_back(option);
}

void Metric::take() {
  fields_->take(*this);
  bleu_.check();
  if (is_bleu()) return;
  for (const CLI::Option* option : options_)
    if (option->count() > 0)
      throw Error(Exit::usage, Problem{option->get_name(), "--metric bleu, which it is for", name_, ""});
}

void Metric::check(model::LoadedModel& m, const task::Corpus& corpus, const std::string& shard,
                   const task::ScoringOptions& how) const {
  if (!is_bleu()) return;
  if (!std::holds_alternative<task::Pairs>(corpus))
    throw Error(Exit::usage, Problem{"--metric bleu", "a shard of pairs to translate", str(shard, ", which is a text"),
                                     "judge a language model by its perplexity"});
  if (how.sample.blocks > 0)
    throw Error(Exit::usage, Problem{"--blocks", "0, as BLEU is of all pairs", str(how.sample.blocks), ""});
  task::Translator(*m.model, m.tokenizers, translation_);
}

double Metric::bleu(model::LoadedModel& m, const task::Corpus& corpus, const std::string& shard,
                    attention::Observer* observer) const {
  task::Translator translator(*m.model, m.tokenizers, translation_);
  translator.show_to(observer);
  return bleu_of(translator, std::get<task::Pairs>(corpus), shard, bleu_, progress_bar("translate", "sentences")).score;
}

nlohmann::ordered_json Metric::protocol() const {
  return {{"signature", bleu_signature(bleu_, 1, task::BleuOf::corpus)},
          {"search", task::protocol_of(translation_.search)}};
}

}  // namespace mh
