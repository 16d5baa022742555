// mh-eval MODEL… DATA --hypotheses FILE: translations of a shard, and their BLEU.
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "common/option_columns.h"
#include "common/subject.h"
#include "eval.h"

namespace mh::eval {

using nlohmann::ordered_json;

void DecodeJob::describe(Fields& f) {
  f.section("", translation);
  f.section("", bleu);
}

void DecodeJob::start() {
  if (!wanted) return;
  bleu.check();
  if (hypotheses == "-")
    throw Error(Exit::usage, Problem{"--hypotheses", "a file, as the scores go to standard output", "-", ""});
  if (!references.empty()) lines = std::make_shared<Lines>(references);
}

void DecodeJob::check(const task::Corpus& corpus, const std::string& shard) const {
  if (!wanted) return;
  const auto* pairs = std::get_if<task::Pairs>(&corpus);
  if (pairs == nullptr)
    throw Error(Exit::usage, Problem{"--hypotheses, --beam and the like", "a shard of pairs to translate",
                                     str(shard, ", which is none"), "leave them out"});
  if (lines != nullptr) require_as_many(shard, static_cast<size_t>(pairs->size()), *lines);
}

ordered_json decode(const DecodeJob& job, model::LoadedModel& m, const task::Pairs& pairs, const std::string& shard,
                    const std::string& file) {
  const auto began = std::chrono::steady_clock::now();
  task::Translator translator(*m.model, m.tokenizers, job.translation);
  std::unique_ptr<ByteSink> sink = file.empty() ? nullptr : open_sink(file);
  metrics::Bleu bleu(job.bleu);
  metrics::BleuStatistics sum;
  int64_t tokens = 0;
  auto bar = progress_bar("translate", "sentences");
  task::translate(
      translator, pairs, shard,
      [&](int64_t pair, const std::vector<search::Hypothesis>& found) {
        const std::string text = translator.text_of(found[0]);
        const std::string decoded =
            job.lines != nullptr ? std::string() : task::reference_of(*m.tokenizers.target, pairs.target(pair));
        const std::string_view reference =
            job.lines != nullptr ? job.lines->lines[static_cast<size_t>(pair)] : std::string_view(decoded);
        sum += bleu.statistics(text, {&reference, 1});
        tokens += static_cast<int64_t>(found[0].tokens.size());
        if (sink != nullptr) sink->write(text + "\n");
      },
      bar);
  bar = {};
  if (sink != nullptr) sink->close();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  log_info(str(with_commas(pairs.size()), " sentences translated to ", with_commas(tokens), " tokens in ",
               human_seconds(seconds), ", ", with_commas(static_cast<int64_t>(static_cast<double>(tokens) / seconds)),
               " tokens/s"));
  if (translator.truncated() > 0) log_warning(str(translator.truncated(), " sources were cut off"));
  const metrics::BleuScore s = bleu_score(sum, job.bleu, metrics::BleuOf::corpus);
  ordered_json row = {{"bleu", s.score},
                      {"signature", bleu_signature(job.bleu, 1, metrics::BleuOf::corpus)},
                      {"brevity_penalty", s.brevity_penalty},
                      {"length_ratio", s.length_ratio},
                      {"sentences", sum.sentences},
                      {"truncated", translator.truncated()},
                      {"references", job.lines != nullptr ? job.lines->name : shard}};
  row.update(option_columns(job.translation.search));
  return row;
}

}  // namespace mh::eval
