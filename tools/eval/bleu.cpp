// mh-eval bleu HYP REF…: computes BLEU and chrF of plain text, and compares systems by paired tests.
#include "metrics/bleu.h"

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
#include "metrics/paired_tests.h"
#include "text/lines.h"

namespace mh::eval {

using nlohmann::ordered_json;

namespace {

struct BleuJob {
  std::string hypotheses_path, format;       // path of the file of hypotheses; format of the table
  std::vector<std::string> reference_paths;  // paths of the files of references
  bool prints_sentences = false;  // whether the table has a row for each sentence instead of one for the corpus
  bool computes_chrf = false;     // whether chrF is computed in addition to BLEU
  // Paths of the hypotheses of further systems, which paired tests compare with the system of `hypotheses_path`.
  std::vector<std::string> compared_paths;
  metrics::BleuOptions bleu_options;
  metrics::ChrfOptions chrf_options;  // `lowercase` is set from the BLEU option of this name
  metrics::PairedTestOptions test_options;
  std::shared_ptr<const CommandLineFields> fields;
  void describe(Fields& f);
  // Throws Error(usage) for options that contradict each other, or for standard input in place of several files.
  void check() const;
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
  f.section("", test_options);
}

void BleuJob::check() const {
  check_bleu_options(*fields, bleu_options);
  if (!computes_chrf)
    refuse_options({fields->option("chrf.words")}, "--chrf with this option", "no --chrf", "add --chrf");
  if (compared_paths.empty())
    refuse_options({fields->option("draws"), fields->option("seed")}, "--compare with this option", "no --compare",
                   "add --compare FILE");
  else refuse_options({fields->option("sentence")}, "scores of the corpus with --compare", "--sentence");
  std::vector<std::string> paths{hypotheses_path};
  paths.insert(paths.end(), reference_paths.begin(), reference_paths.end());
  paths.insert(paths.end(), compared_paths.begin(), compared_paths.end());
  refuse_repeated_standard_input("bleu", paths);
}

// Calls `on_sentence` with the BLEU and chrF statistics of each sentence, in order.
void for_each_sentence(
    const BleuJob& job, const text::Lines& hypotheses, const std::deque<text::Lines>& references,
    const std::function<void(const metrics::BleuStatistics&, const metrics::ChrfStatistics&)>& on_sentence) {
  metrics::Bleu bleu(job.bleu_options);
  metrics::Chrf chrf(job.chrf_options);
  std::vector<std::string_view> line_references(references.size());
  for (size_t i = 0; i < hypotheses.lines.size(); ++i) {
    for (size_t r = 0; r < references.size(); ++r) line_references[r] = references[r].lines[i];
    on_sentence(bleu.statistics(hypotheses.lines[i], line_references),
                job.computes_chrf ? chrf.statistics(hypotheses.lines[i], line_references) : metrics::ChrfStatistics{});
  }
}

// Prints a table row for each system: its scores and the results of the paired tests against the first system.
void compare_text(const BleuJob& job, const text::Lines& hypotheses, const std::deque<text::Lines>& references) {
  std::deque<text::Lines> compared_hypotheses;
  for (const std::string& path : job.compared_paths)
    text::require_line_count(hypotheses.name, hypotheses.lines.size(), compared_hypotheses.emplace_back(path));
  std::vector<std::string> names;
  std::vector<std::vector<metrics::BleuStatistics>> bleu_statistics;
  std::vector<std::vector<metrics::ChrfStatistics>> chrf_statistics;
  const auto add_system = [&](const text::Lines& lines) {
    names.push_back(lines.name);
    std::vector<metrics::BleuStatistics>& bleu = bleu_statistics.emplace_back();
    std::vector<metrics::ChrfStatistics>& chrf = chrf_statistics.emplace_back();
    for_each_sentence(job, lines, references,
                      [&](const metrics::BleuStatistics& sentence_bleu, const metrics::ChrfStatistics& sentence_chrf) {
                        bleu.push_back(sentence_bleu);
                        if (job.computes_chrf) chrf.push_back(sentence_chrf);
                      });
  };
  add_system(hypotheses);
  for (const text::Lines& lines : compared_hypotheses) add_system(lines);
  const auto bleu_of = [&](const metrics::BleuStatistics& s) {
    return bleu_score(s, job.bleu_options, metrics::BleuScope::corpus).score;
  };
  const auto bleu_comparisons =
      metrics::compare_systems<metrics::BleuStatistics>(bleu_statistics, bleu_of, job.test_options);
  const auto chrf_comparisons = job.computes_chrf ? metrics::compare_systems<metrics::ChrfStatistics>(
                                                        chrf_statistics, metrics::chrf_score, job.test_options)
                                                  : std::vector<metrics::SystemComparison>{};
  Table table(Table::format_named(job.format));
  for (size_t system = 0; system < names.size(); ++system) {
    metrics::BleuStatistics corpus_bleu;
    metrics::ChrfStatistics corpus_chrf;
    for (const metrics::BleuStatistics& sentence : bleu_statistics[system]) corpus_bleu += sentence;
    for (const metrics::ChrfStatistics& sentence : chrf_statistics[system]) corpus_chrf += sentence;
    ordered_json row{{"system", names[system]}};
    row.update(row_of(job, metrics::BleuScope::corpus, corpus_bleu, corpus_chrf));
    const metrics::SystemComparison& bleu = bleu_comparisons[system];
    row.update({{"difference", bleu.difference},
                {"mean", bleu.mean},
                {"interval", bleu.interval},
                {"p_bootstrap", bleu.bootstrap_p},
                {"p_randomisation", bleu.randomisation_p}});
    if (job.computes_chrf) {
      const metrics::SystemComparison& chrf = chrf_comparisons[system];
      row.update({{"chrf_difference", chrf.difference},
                  {"chrf_mean", chrf.mean},
                  {"chrf_interval", chrf.interval},
                  {"chrf_p_bootstrap", chrf.bootstrap_p},
                  {"chrf_p_randomisation", chrf.randomisation_p}});
    }
    row.update({{"draws", job.test_options.draws}, {"seed", job.test_options.seed}});
    table.print_row(row);
  }
}

void score_text(BleuJob job) {
  job.check();
  job.chrf_options.lowercase = job.bleu_options.lowercase;
  const text::Lines hypotheses(job.hypotheses_path);
  std::deque<text::Lines> references;
  for (const std::string& path : job.reference_paths)
    text::require_line_count(hypotheses.name, hypotheses.lines.size(), references.emplace_back(path));
  if (!job.compared_paths.empty()) return compare_text(job, hypotheses, references);
  Table table(Table::format_named(job.format));
  metrics::BleuStatistics corpus_bleu;
  metrics::ChrfStatistics corpus_chrf;
  size_t num_sentences = 0;
  for_each_sentence(job, hypotheses, references,
                    [&](const metrics::BleuStatistics& sentence_bleu, const metrics::ChrfStatistics& sentence_chrf) {
                      ++num_sentences;
                      if (job.prints_sentences) {
                        ordered_json row{{"sentence", num_sentences}};
                        row.update(row_of(job, metrics::BleuScope::sentence, sentence_bleu, sentence_chrf));
                        row.erase("sentences");
                        table.print_row(row);
                      }
                      corpus_bleu += sentence_bleu;
                      corpus_chrf += sentence_chrf;
                    });
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
  sub->add_option("--compare", job->compared_paths,
                  "translations of another system, which paired tests compare with HYP; can be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  exclude(*sub, shared_options.scoring_options);
  exclude(*sub, shared_options.model_options);  // the subcommand runs no model
  job->fields = add_job(jobs, sub, job, [=] {
    job->format = args->format;
    score_text(*job);
  });
}

}  // namespace mh::eval
