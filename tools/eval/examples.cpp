// mh-eval MODEL… DATA of examples: the scores of their task, and predictions.
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/table.h"
#include "base/text.h"
#include "metrics/predictions.h"
#include "score.h"
#include "task/example_options.h"
#include "task/example_scores.h"

namespace mh::eval {

using nlohmann::ordered_json;

namespace {

// Null for no path. Opened before there is work.
std::unique_ptr<ByteSink> opened(const std::string& path) { return path.empty() ? nullptr : open_sink(path); }

// As a server or an official script takes them.
void write_predictions(ByteSink& sink, const task::Examples& examples, const task::ExampleScores& found) {
  if (examples.asked != nullptr) sink.write(metrics::predictions_json(examples.asked->questions, found.answers));
  else text::write_predictions(sink, examples.classified->task(), found.predicted);
  sink.close();
}

void check(const ScoreJob& score, const task::Examples& examples, const std::string& name) {
  const ExamplesJob& job = score.examples;
  const auto refuse = [](const char* option, const std::string& expected, const std::string& found) {
    throw Error(Exit::usage, Problem{option, expected, found, "leave it out"});
  };
  if (!score.per_token.empty()) refuse("--per-token", "a text or pairs, whose tokens are scored", name);
  const bool words = examples.head == model::HeadTask::words;
  if (!job.predictions.empty() && words) refuse("--predictions", "classes, numbers or answers", "masked words");
  if (!job.best.empty() && examples.asked == nullptr) refuse("--best-answers", "a shard of questions", name);
}

}  // namespace

void ExamplesJob::check(const std::vector<std::string>& files) const {
  for (const auto& [option, path] : {std::pair("--predictions", predictions), {"--best-answers", best}}) {
    if (path.empty()) continue;
    if (files.size() > 2)
      throw Error(Exit::usage, Problem{option, "one model", str(files.size() - 1), "ask one after the other"});
    refuse_output_onto_input(path, files);
  }
  const auto place = [](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path));
  };
  if (!best.empty() && !predictions.empty() && place(predictions) == place(best))
    throw Error(Exit::usage, Problem{"--best-answers", "another file than that of --predictions", best, ""});
}

void score_examples(const ScoreJob& score, const TextSource& source) {
  const Arguments& a = *score.shared;
  const ExamplesJob& job = score.examples;
  const bool shows = job.predictions != "-" && job.best != "-";
  Table table(Table::format_named(a.format));
  for (size_t i = 0; i + 1 < score.files.size(); ++i) {
    model::LoadedModel m = load(a, score.files[i]);
    const task::Corpus corpus = source.text_for(m);
    score.decoding.check(corpus, source.name());  // refuses what is of pairs
    const auto& examples = std::get<task::Examples>(corpus);
    check(score, examples, source.name());
    const task::ScoringOptions options = scoring_for(m, score.scoring, corpus);  // refuses what is of texts
    const auto predictions = opened(job.predictions), best = opened(job.best);
    task::ExampleScores found = task::score_examples(*m.model, examples, {nullptr, progress_bar("score", "rows")});
    if (predictions != nullptr) write_predictions(*predictions, examples, found);
    if (best != nullptr) best->write(metrics::best_json(examples.asked->questions, found.answers)), best->close();
    ordered_json j{{"model", m.name},
                   {"task", examples.classified != nullptr ? examples.classified->task().name : source.header().kind},
                   {"rows", found.rows},
                   {"scored", found.scored},
                   {"loss", found.scored > 0 ? found.loss : NAN}};
    for (const auto& [name, value] : found.scores) j[name] = value;
    j["longest"] = options.block;
    if (examples.asked != nullptr) {
      const task::ExampleOptions how = example_options(m);
      j.update({{"stride", how.squad.stride},
                {"question", how.squad.question},
                {"best", how.answers.best},
                {"longest_answer", how.answers.longest},
                {"null_threshold", how.answers.null_threshold}});
    }
    j.update({{"precision", a.precision}, {"set", join(a.sets, " ")}});
    if (shows) table.row(j);
    else
      for (const auto& [name, value] : found.scores) log_info(str(name, " ", shortest(value)));
  }
}

}  // namespace mh::eval
