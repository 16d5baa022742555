#include "train/validation.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"
#include "task/scoring.h"
#include "task/translation.h"

namespace mh::train {

Validator::Validator(const RunConfig& config, const io::ShardFile* shard, const text::Tokenizers& tokenizers)
    : config_(config), tokenizers_(tokenizers) {
  if (shard == nullptr) return;
  corpus_ = task::corpus_of(*shard, tokenizers, config.example_options(false));
  task::require_targets(*corpus_, shard->name());
}

void Validator::check(model::LanguageModel& model) const {
  if (const auto* pairs = std::get_if<task::Pairs>(&*corpus_))
    model.require_length("the longest sentence of " + config_.data.valid, pairs->longest);
  const auto* examples = std::get_if<task::Examples>(&*corpus_);
  if (examples == nullptr || by_loss()) return;
  const std::vector<std::string> names = task::score_names(*examples);
  if (std::find(names.begin(), names.end(), config_.train.validation.metric) == names.end())
    throw Error(Exit::usage,
                Problem{"train.validation.metric", "loss, or a score of the task: " + join(names, ", "),
                        config_.train.validation.metric, did_you_mean(config_.train.validation.metric, names)});
}

Validation Validator::run(model::LanguageModel& model, attention::Observer* observer) const {
  const task::Corpus& corpus = *corpus_;
  if (const auto* examples = std::get_if<task::Examples>(&corpus)) {
    const task::ExampleScores found = task::score_examples(model, *examples, {observer, {}});
    return {found.loss, found.scores};
  }
  task::ScoringOptions options;
  if (std::holds_alternative<task::Text>(corpus)) {
    options.block = config_.validation_block();
    options.memory = config_.validation_memory();
  }
  task::Listener listener;
  listener.observer = observer;
  const task::Score score = task::score(model, corpus, options, listener);
  Validation result{score.nll / static_cast<double>(std::max<int64_t>(1, score.tokens)), {}};
  if (!by_loss() && stop_signal() == 0) result.scores = {{"bleu", bleu(model, std::get<task::Pairs>(corpus))}};
  return result;
}

double Validator::bleu(model::LanguageModel& model, const task::Pairs& pairs) const {
  const DecodeOptions& o = config_.train.validation.decode;
  // What the model trains on it can read.
  task::Translator translator(model, tokenizers_,
                              {o.search, std::max<int64_t>(1, pairs.longest), false, o.batch_tokens});
  return bleu_of(translator, pairs, config_.data.valid, o.bleu).score;
}

double Validator::judged(const Validation& v) const {
  return by_loss() ? v.loss : -task::score_named(v.scores, config_.train.validation.metric);
}

double Validator::improvement(double before, double after) const {
  return by_loss() && !of_examples() ? std::exp(before) - std::exp(after) : before - after;
}

nlohmann::ordered_json Validator::line(const Validation& v) const {
  nlohmann::ordered_json line;
  if (of_examples()) line["valid_loss"] = v.loss;
  else line["valid_nll"] = v.loss, line["valid_perplexity"] = std::exp(v.loss);
  for (const auto& [name, value] : v.scores) line["valid_" + name] = value;
  return line;
}

std::string Validator::text(const Validation& v) const {
  std::string text = str("validation loss ", rounded(v.loss, 4));
  if (!of_examples()) text += str(" nats per token, perplexity ", rounded(std::exp(v.loss), 2));
  for (const auto& [name, value] : v.scores)
    text += name == "bleu" ? str(", BLEU ", rounded(value, 2)) : str(", ", name, " ", rounded(value, 4));
  return text;
}

std::string Validator::brief(const Validation& v) const {
  if (by_loss()) return "valid " + rounded(of_examples() ? v.loss : std::exp(v.loss), 2);
  const bool bleu = config_.train.validation.metric == "bleu";
  return str("valid ", bleu ? "BLEU" : config_.train.validation.metric, " ", rounded(-judged(v), bleu ? 2 : 4));
}

}  // namespace mh::train
