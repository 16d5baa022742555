// mh-eval bleu HYP REF…: computes BLEU and chrF of plain text.
#include "metrics/bleu.h"

#include <algorithm>
#include <deque>

#include "base/command_line.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/table.h"
#include "base/text.h"
#include "common/metric_option.h"
#include "eval.h"
#include "metrics/chrf.h"
#include "text/lines.h"

namespace mh::eval {

using nlohmann::ordered_json;

namespace {

struct BleuJob {
  std::string hypotheses_path, format;       // path of the file of hypotheses; format of the table
  std::vector<std::string> reference_paths;  // paths of the files of references
  bool prints_sentences = false;  // whether the table has a row for each sentence instead of one for the corpus
  bool computes_chrf = false;     // whether chrF is computed in addition to BLEU
  metrics::BleuOptions bleu_options;
  metrics::ChrfOptions chrf_options;  // `lowercase` is set from the BLEU option of this name
  std::shared_ptr<const CommandLineFields> fields;
  void describe(Fields& f);
};

ordered_json row_of(const BleuJob& job, metrics::BleuScope scope, const metrics::BleuStatistics& statistics,
                    const metrics::ChrfStatistics& chrf) {
  const metrics::BleuScore score = bleu_score(statistics, job.bleu_options, scope);
  const size_t num_references = job.reference_paths.size();
  ordered_json precisions = score.precisions;
  if (job.format != "json") {
    std::vector<std::string> texts;
    for (double p : score.precisions) texts.push_back(shortest_decimal(p));
    precisions = join(texts, "/");
  }
  ordered_json row{{"score", score.score},
                   {"signature", bleu_signature(job.bleu_options, num_references, scope)},
                   {"precisions", precisions},
                   {"brevity_penalty", score.brevity_penalty},
                   {"length_ratio", score.length_ratio},
                   {"hypothesis_tokens", statistics.num_hypothesis_tokens},
                   {"reference_tokens", statistics.num_reference_tokens},
                   {"sentences", statistics.num_sentences}};
  if (job.computes_chrf) {
    row["chrf"] = chrf_score(chrf);
    row["chrf_signature"] = chrf_signature(job.chrf_options, num_references);
  }
  return row;
}

void BleuJob::describe(Fields& f) {
  f.field("sentence", prints_sentences,
          "print one table row for each sentence, numbered from 1, instead of one row for the corpus");
  f.section("", bleu_options);
  f.field("chrf", computes_chrf, "compute chrF in addition to BLEU");
  f.section("chrf", chrf_options);
}

void score_text(BleuJob job) {
  check_bleu_options(*job.fields, job.bleu_options);
  job.chrf_options.lowercase = job.bleu_options.lowercase;
  if (!job.computes_chrf)
    refuse_options({job.fields->option("chrf.words")}, "--chrf with this option", "no --chrf", "add --chrf");
  if (std::count(job.reference_paths.begin(), job.reference_paths.end(), "-") + (job.hypotheses_path == "-" ? 1 : 0) >
      1)
    refuse_usage("mh-eval bleu", "standard input (-) for at most one file", "- more than once",
                 "write the other inputs to files");
  const text::Lines hypotheses(job.hypotheses_path);
  std::deque<text::Lines> references;
  for (const std::string& path : job.reference_paths)
    text::require_line_count(hypotheses.name, hypotheses.lines.size(), references.emplace_back(path));
  Table table(Table::format_named(job.format));
  metrics::Bleu bleu(job.bleu_options);
  metrics::Chrf chrf(job.chrf_options);
  metrics::BleuStatistics corpus_bleu;
  metrics::ChrfStatistics corpus_chrf;
  std::vector<std::string_view> line_references(references.size());
  for (size_t i = 0; i < hypotheses.lines.size(); ++i) {
    for (size_t r = 0; r < references.size(); ++r) line_references[r] = references[r].lines[i];
    const metrics::BleuStatistics sentence_bleu = bleu.statistics(hypotheses.lines[i], line_references);
    const metrics::ChrfStatistics sentence_chrf =
        job.computes_chrf ? chrf.statistics(hypotheses.lines[i], line_references) : metrics::ChrfStatistics{};
    if (job.prints_sentences) {
      ordered_json row{{"sentence", i + 1}};
      row.update(row_of(job, metrics::BleuScope::sentence, sentence_bleu, sentence_chrf));
      row.erase("sentences");
      table.print_row(row);
    }
    corpus_bleu += sentence_bleu;
    corpus_chrf += sentence_chrf;
  }
  if (!job.prints_sentences) table.print_row(row_of(job, metrics::BleuScope::corpus, corpus_bleu, corpus_chrf));
}

}  // namespace

void add_bleu_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args, const SharedOptions& shared_options,
                         Jobs& jobs) {
  const auto job = std::make_shared<BleuJob>();
  CLI::App* sub = app.add_subcommand("bleu", "compute BLEU and chrF of plain text, one sentence per line");
  sub->add_option("hypotheses", job->hypotheses_path, "translations to score; - is standard input")
      ->required()
      ->type_name("HYP");
  sub->add_option("references", job->reference_paths, "reference translations")->required()->type_name("REF...");
  exclude(*sub, shared_options.scoring_options);
  exclude(*sub, shared_options.model_options);  // the subcommand runs no model
  job->fields = add_job(jobs, sub, job, [=] {
    job->format = args->format;
    score_text(*job);
  });
}

}  // namespace mh::eval
