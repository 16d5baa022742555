// mh-eval MODEL… DATA: perplexity.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/table.h"
#include "base/text.h"
#include "common/subject.h"
#include "eval.h"
#include "io/shard.h"

namespace mh::eval {

using nlohmann::ordered_json;

model::LoadedModel load(const Arguments& a, const std::string& path) {
  return load_as(a, io::Checkpoint(path), a.sets);
}

namespace {

// Where what is written of model `index` goes; with several models each has a file of its own.
std::string file_of(const Arguments& a, const std::string& path, size_t index) {
  return path.empty() ? "" : path + (a.files.size() > 2 ? str(".", index) : "");
}

// Whether two names of files, which need not be there, are one.
bool same_place(const std::string& a, const std::string& b) {
  const auto place = [](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path));
  };
  return !a.empty() && !b.empty() && place(a) == place(b);
}

// What can be seen before the first model is scored.
void check(const Arguments& a, const DecodeJob& job) {
  if (a.files.size() < 2)
    throw Error(Exit::usage, Problem{"mh-eval", "one or more models, then the data",
                                     a.files.empty() ? "none" : str(a.files[0], " alone"), "mh-eval MODEL… DATA"});
  if (std::count(a.files.begin(), a.files.end(), "-") > 1)
    throw Error(Exit::usage, Problem{"mh-eval", "standard input for one file", "- more than once", ""});
  if (a.per_token == "-")
    throw Error(Exit::usage, Problem{"--per-token", "a file, as the scores go to standard output", "-", ""});
  const std::vector<std::string> subcommands{"bleu", "generate", "translate"};
  if (!did_you_mean(a.files[0], subcommands).empty() && !MappedFile::possible(a.files[0]))
    throw Error(Exit::usage, Problem{"mh-eval", "a model or a subcommand: " + join(subcommands, ", "), a.files[0],
                                     did_you_mean(a.files[0], subcommands)});
  std::vector<std::string> inputs = a.files;
  if (!job.references.empty()) inputs.push_back(job.references);
  refuse_output_onto_input("-", inputs);
  for (size_t i = 0; i + 1 < a.files.size(); ++i) {
    for (const std::string& output : {a.per_token, job.hypotheses})
      if (!output.empty()) refuse_output_onto_input(file_of(a, output, i), inputs);
    if (!a.per_token.empty() && same_place(file_of(a, a.per_token, i), file_of(a, job.hypotheses, i)))
      throw Error(Exit::usage, Problem{"--hypotheses", "another file than that of --per-token", job.hypotheses, ""});
    if (a.files[i] != "-") io::Checkpoint header(a.files[i]);
  }
}

}  // namespace

void score(const Arguments& a, const task::ScoringOptions& given, DecodeJob job, const ExamplesJob& of_examples) {
  check(a, job);
  of_examples.check(a.files);
  job.start();
  const std::string& data = a.files.back();
  const TextSource source(data);
  for (size_t i = 0; i + 1 < a.files.size(); ++i)
    if (a.files[i] != "-") source.require_for(io::Checkpoint(a.files[i]));
  if (source.holds_examples()) {
    return score_examples(a, given, of_examples, job, source);
  }
  if (!of_examples.predictions.empty() || !of_examples.best.empty())
    throw Error(Exit::usage, Problem{"--predictions", "a shard of examples or questions",
                                     str(source.name(), ", of the kind ", source.header().kind), "leave it out"});
  Table table(Table::format_named(a.format));
  for (size_t i = 0; i + 1 < a.files.size(); ++i) {
    model::LoadedModel m = load(a, a.files[i]);
    const task::Corpus text = source.text_for(m);
    job.check(text, source.name());
    const task::ScoringOptions options = scoring_for(m, given, text);
    std::unique_ptr<ByteSink> tokens = a.per_token.empty() ? nullptr : open_sink(file_of(a, a.per_token, i));
    if (tokens != nullptr) tokens->write("index\ttoken\tpiece\tlog_probability\n");
    task::Listener listener;
    listener.progress = progress_bar("score", "rows");
    int64_t unknown = 0;
    listener.each = [&](int64_t index, int32_t token, double p) {
      unknown += token == m.tokenizers.target->unknown();
      if (tokens != nullptr)
        tokens->write(
            str(index, '\t', token, '\t', text::escaped(m.tokenizers.target->piece(token)), '\t', shortest(p), '\n'));
    };
    const task::Score s = task::score(*m.model, text, options, listener);
    listener.progress = {};
    if (tokens != nullptr) tokens->close();
    const double nll = s.nll / static_cast<double>(s.tokens);
    ordered_json j{{"model", m.name},
                   {"tokens", s.tokens},
                   {"unknown", unknown},
                   {"nll", nll},
                   {"perplexity", std::exp(nll)},
                   {"bits_per_token", nll / std::log(2.0)},
                   {"bits_per_byte",
                    s.nll / std::log(2.0) / static_cast<double>(std::max<uint64_t>(1, source.counts().text_bytes))},
                   {"block", options.block},
                   {"context", options.context},
                   {"memory", options.memory},
                   {"streams", options.streams},
                   {"precision", a.precision},
                   {"set", join(a.sets, " ")},
                   {"protocol", task::protocol_of(options)}};
    if (job.wanted) j.update(decode(job, m, std::get<task::Pairs>(text), source.name(), file_of(a, job.hypotheses, i)));
    table.row(j);
  }
}

}  // namespace mh::eval
