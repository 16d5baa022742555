// mh-eval MODEL… DATA --hypotheses FILE: translates a shard and computes BLEU.
#include <chrono>

#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "common/option_columns.h"
#include "common/shard_source.h"
#include "data/pairs.h"
#include "score.h"

namespace mh::eval {

using nlohmann::ordered_json;

namespace {

// Returns the pairs of the shard. Throws Error(usage) if the shard holds no pairs.
const data::Pairs& pairs_of(const DecodeJob& job, const task::Dataset& dataset, const std::string& shard) {
  return dataset.require_pairs(join(job.option_names, ", "), shard);
}

}  // namespace

void DecodeJob::describe(Fields& f) { options.describe(f); }

void DecodeJob::prepare() {
  if (option_names.empty()) return;
  options.check();
  if (hypotheses_path == "-")
    refuse_usage("--hypotheses", "a file, since the scores go to standard output", "-", "name a file");
  if (!references_path.empty()) reference_lines = std::make_shared<text::Lines>(references_path);
}

void DecodeJob::check(const task::Dataset& dataset, const std::string& shard) const {
  if (option_names.empty()) return;
  const data::Pairs& pairs = pairs_of(*this, dataset, shard);
  if (reference_lines != nullptr)
    text::require_line_count(shard, static_cast<size_t>(pairs.size()), *reference_lines,
                             "give one reference per pair of the shard, in its order; mh-prep cat prints the pairs of "
                             "the shard, without the pairs that mh-prep dropped");
}

ordered_json decode_and_score(const DecodeJob& job, model::LoadedModel& model, const task::Dataset& dataset,
                              const std::string& shard, const std::string& file, const distributed::Group* group) {
  const data::Pairs& pairs = pairs_of(job, dataset, shard);
  const auto start_time = std::chrono::steady_clock::now();
  task::Translator translator(*model.model, task::SourceTargetTokenizers(model.tokenizers), job.options.translation);
  translator.set_group(group);
  std::unique_ptr<ByteSink> sink = file.empty() ? nullptr : open_sink(file);
  int64_t num_tokens = 0;
  task::TranslationCallbacks callbacks;
  callbacks.on_translation = [&](const std::string& text, int64_t length) {
    num_tokens += length;
    if (sink != nullptr) sink->write(text + "\n");
  };
  callbacks.on_progress = progress_bar("translate", "sentences");
  const auto references = job.reference_lines != nullptr ? job.reference_lines->lines : std::vector<std::string_view>{};
  const metrics::BleuStatistics statistics =
      task::bleu_statistics_of(translator, pairs, shard, job.options.bleu, references, callbacks);
  callbacks.on_progress = {};
  model.require_unchanged_file();
  if (sink != nullptr) sink->close();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_time).count();
  log_info(str(count_with_commas(pairs.size(), "sentence"), " translated to ", count_with_commas(num_tokens, "token"),
               " in ", human_seconds(seconds), ", ",
               with_commas(static_cast<int64_t>(static_cast<double>(num_tokens) / seconds)), " tokens/s"));
  if (translator.num_truncated() > 0)
    log_warning(str("truncated ", count_of(translator.num_truncated(), "source sentence"),
                    " to the maximum length (--max-source)"));
  const metrics::BleuScore score = bleu_score(statistics, job.options.bleu, metrics::BleuScope::corpus);
  ordered_json row = {{"bleu", score.score},
                      {"signature", job.options.signature()},
                      {"brevity_penalty", score.brevity_penalty},
                      {"length_ratio", score.length_ratio},
                      {"sentences", statistics.num_sentences},
                      {"truncated", translator.num_truncated()},
                      {"references", job.reference_lines != nullptr ? job.reference_lines->name : shard}};
  row.update(option_columns(job.options.translation.search));
  return row;
}

}  // namespace mh::eval
