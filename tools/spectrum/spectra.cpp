// mh-spectrum MODEL... [DATA]: computes spectra and writes them as tables and plots.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "analysis/dump.h"
#include "analysis/observers.h"
#include "analysis/spectrum_source.h"
#include "attention/layer.h"
#include "base/error.h"
#include "base/json_types.h"
#include "base/text.h"
#include "common/processes.h"
#include "nn/ops.h"
#include "rows.h"
#include "spectrum.h"

namespace mh::spectrum {

using nlohmann::ordered_json;

namespace {

// Returns the values of --of that read a text if `reads_text`, otherwise the values that read parameters, such as
// "alphas, output-value or weight:NAME".
std::string matrices_text(bool reads_text) { return join_alternatives(analysis::source_forms(reads_text)); }

// Returns matrices_text() with the summary of each source after its value.
std::string explained_matrices_text(bool reads_text) {
  return join_alternatives(analysis::summarised_source_forms(reads_text));
}

constexpr const char* kDefaultSource = "attention";  // default of --of

struct SpectraJob {
  std::shared_ptr<Arguments> args;
  std::vector<std::string> files;
  std::string source_name = kDefaultSource, curves_path, plot_path, dump_path;
  bool is_summary = false;
  std::vector<CLI::Option*> table_options;    // options of the table
  std::vector<CLI::Option*> forward_options;  // options of the model's passes
};

// Throws Error(usage) for invalid file arguments. Called before any file is opened.
void check_files(const SpectraJob& job, const std::vector<std::string>& models,
                 const analysis::SpectrumSource& source) {
  const bool reads_text = source.reads_text();
  if (job.files.empty() || (reads_text && job.files.size() == 1))
    refuse_usage("", reads_text ? "one or more models, then the data" : "a model",
                 job.files.empty() ? "none" : str(job.files[0], ", without data"),
                 reads_text
                     ? str("name a shard after the models, or use --of ", matrices_text(false), ", which need no data")
                     : "usage: mh-spectrum --of MATRICES MODEL...");
  if (!reads_text && models.size() > 1 && std::filesystem::path(models.back()).extension() == ".mhs")
    refuse_usage(str("--of ", job.source_name), "models only, since these matrices need no data", models.back(),
                 "leave the data out");
  refuse_repeated_standard_input("", job.files);
  refuse_output_onto_input("-", job.files);
  std::set<std::string> outputs;
  for (const auto& [option, file] : {std::pair{"--curves", job.curves_path}, std::pair{"--plot", job.plot_path},
                                     std::pair{"--dump", job.dump_path}}) {
    if (file.empty() || (file == "-" && std::string(option) == "--plot")) continue;
    if (file == "-") refuse_usage(option, "a file, since the table goes to standard output", "-", "name a file");
    if (!outputs.insert(file).second)
      refuse_usage(option, "a file that no other option writes", file, "name another file");
    refuse_output_onto_input(file, job.files);
  }
  const int64_t num_blocks = job.args->scoring_options.sample.blocks;
  if (!job.dump_path.empty() && (!source.reads_attention() || models.size() != 1 || num_blocks == 0))
    refuse_usage("--dump", "one model, --of attention and --blocks above 0",
                 models.size() != 1 ? count_of(models.size(), "model")
                 : num_blocks == 0  ? std::string("--blocks 0")
                                    : "--of " + job.source_name,
                 "name one model with --of attention and --blocks N, or leave --dump out");
}

// Returns whether several processes can share the work. Parameters take little time, and --dump writes the matrices of
// all batches.
bool can_share(const SpectraJob& job, bool reads_text) { return reads_text && job.dump_path.empty(); }

// The models on the command line, of which one is loaded at a time, and the shard, if the source of matrices reads
// text.
class SpectraInputs {
 public:
  // `argument`: text after the colon of the name of `source`.
  SpectraInputs(const SpectraJob& job, const analysis::SpectrumSource& source, const std::string& argument)
      : job_(job),
        models_(job.files),
        masters_(source.reads_text() ? model::Masters::absent : model::Masters::present) {
    const bool reads_text = source.reads_text();
    std::string shard_path;
    if (reads_text && models_.size() > 1) shard_path = models_.back(), models_.pop_back();
    check_files(job, models_, source);
    if (can_share(job, reads_text)) group_ = &join_evaluation(job.files, *job.args);
    const std::string where = "--of " + job.source_name;
    if (!argument.empty() && !job.args->kinds.empty())
      refuse_usage("--kind", "matrices of several layers", where + ", which names a single matrix", "leave --kind out");
    for (const std::string& model : models_) {
      checkpoints_.push_back(std::make_unique<io::Checkpoint>(model));
      checkpoints_.back()->metadata_entry(io::kConfigKey);
      if (!argument.empty()) analysis::require_weight(*checkpoints_.back(), argument, where);
    }
    if (!reads_text) return;
    shard_.emplace(shard_path);
    for (const auto& checkpoint : checkpoints_) shard_->require_readable_by(*checkpoint);
    if (shard_->holds_pairs() && !job.dump_path.empty())
      refuse_usage("--dump", "a text, whose attention matrices have equal sizes",
                   str(shard_path, ", which contains pairs of different lengths"), "leave --dump out");
  }

  // The processes that share the batches of the data; null: one process.
  const distributed::Group* group() const { return group_; }
  const std::vector<std::string>& models() const { return models_; }
  bool holds_pairs() const { return shard_ && shard_->holds_pairs(); }
  std::shared_ptr<const task::Dataset> dataset_for(const model::LoadedModel& model) const {
    return shard_->dataset_for(model);
  }
  const model::LoadedModel& load_model(size_t index) {  // the reference is valid until the next call with another index
    if (loaded_model_ && model_index_ == index) return *loaded_model_;
    loaded_model_.reset();
    loaded_model_ =
        load_with_options(*job_.args, *checkpoints_[index], masters_, job_.args->assignments, checkpoints_.size() > 1);
    model_index_ = index;
    return *loaded_model_;
  }

 private:
  const SpectraJob& job_;
  const distributed::Group* group_ = nullptr;
  std::vector<std::string> models_;
  model::Masters masters_;  // present for matrices that are parameters
  std::vector<std::unique_ptr<io::Checkpoint>> checkpoints_;
  std::optional<ShardSource> shard_;
  std::optional<model::LoadedModel> loaded_model_;
  size_t model_index_ = 0;  // command-line index of the model that loaded_model_ holds
};

// The source of a model's matrices, and the resolved options of scoring.
struct PreparedSource {
  std::unique_ptr<analysis::SpectrumSource> source;
  data::ScoringOptions scoring_options;
};

// Returns the place of an error of the matrices: the option --of, or none if --of has its default.
std::string place_of(const SpectraJob& job) {
  return job.source_name == kDefaultSource ? std::string() : "--of " + job.source_name;
}

void refuse_no_matrices(const SpectraJob& job, const std::string& model, bool reads_text) {
  refuse_usage(place_of(job),
               reads_text ? "attention layers with heads, and a text with a full block" : "attention layers with heads",
               str("none in ", model),
               reads_text ? "use a model with attention heads, a longer text, or a lower --sequence-length"
                          : "use a model that has attention layers with heads");
}

// Creates and starts the source of matrices for a model. A source that reads parameters has read all matrices on
// return. Throws Error(usage) if the model has no matrices for the source, or the text has no block of full length.
PreparedSource prepare_source(const SpectraJob& job, const SpectraInputs& inputs, const model::LoadedModel& model) {
  auto [source, argument] = analysis::parse_source(job.source_name, "--of");
  const bool reads_text = source->reads_text();
  data::ScoringOptions scoring_options;
  int64_t num_targets = 0;
  bool is_text_too_short = false;
  if (reads_text) {
    const auto dataset = inputs.dataset_for(model);
    scoring_options = resolved_scoring_options(model, job.args->scoring_options, *dataset);
    num_targets = dataset->corpus().num_targets();
    is_text_too_short = !scoring_options.has_independent_rows && num_targets < scoring_options.sequence_length;
  }
  const analysis::Kinds kinds = analysis::kinds_named(job.args->kinds, model.model->parameters(), "--kind");
  source->start(*model.model, {argument, !job.curves_path.empty(), scoring_options.sequence_length,
                               scoring_options.has_independent_rows, kinds, model.name});
  const auto layers = model.model->attention_layers();
  const bool has_no_heads = std::all_of(layers.begin(), layers.end(), [&](const attention::AttentionLayer* l) {
    return l->layer_spec().heads == 0 || !analysis::contains(kinds, l->layer_spec().kind);
  });
  if (has_no_heads && reads_text)
    refuse_usage(place_of(job), "attention layers with heads", str("none in ", model.name),
                 "use a model that has attention layers with heads");
  if (is_text_too_short)
    refuse_usage(place_of(job),
                 str("a text with at least ", count_of(scoring_options.sequence_length, "token"),
                     " to predict, the length of a block for ", model.name),
                 count_of(num_targets, "token"), "use a longer text, or a lower --sequence-length");
  if (!reads_text && source->entries().empty()) refuse_no_matrices(job, model.name, reads_text);
  return {std::move(source), scoring_options};
}

// Runs the model over the text. The observers are the source and, for --dump, the attention dump.
void observe_text(const SpectraJob& job, const SpectraInputs& inputs, const model::LoadedModel& model,
                  const PreparedSource& prepared_source) {
  const data::ScoringOptions& scoring_options = prepared_source.scoring_options;
  const auto dataset = inputs.dataset_for(model);
  const analysis::AnalysisInput input{
      *model.model, dataset->corpus(), scoring_options, analysis::SideSelection::whole, progress_bar("spectra", "rows"),
      {},           inputs.group()};
  if (job.dump_path.empty()) {
    analysis::run_with_observer(input, *prepared_source.source);
    return model.require_unchanged_file();
  }
  analysis::AttentionDump dump(*model.model, scoring_options.sample.blocks, scoring_options.sequence_length,
                               scoring_options.sequence_length + scoring_options.memory);
  auto sink = open_sink(job.dump_path);
  analysis::Observers observers({prepared_source.source.get(), &dump});
  analysis::run_with_observer(input, observers);
  model.require_unchanged_file();
  dump.write(*sink, {{"multihead.model", model.name},
                     {"multihead.blocks", str(scoring_options.sample.blocks)},
                     {"multihead.seed", str(scoring_options.sample.seed)}});
  sink->close();
}

void report_spectra(const SpectraJob& job) {
  const auto [source, argument] = analysis::parse_source(job.source_name, "--of");
  const bool reads_text = source->reads_text();
  if (start_process().rank > 0 && !can_share(job, reads_text)) return;  // rank 0 computes the results
  SpectraInputs inputs(job, *source, argument);
  const std::vector<std::string>& models = inputs.models();
  const bool uses_relative_index = inputs.holds_pairs() && source->has_token_axes();
  SpectraWriter writer({job.source_name, job.args->format, job.curves_path, job.plot_path, job.is_summary,
                        uses_relative_index, models.size()});
  std::vector<PreparedSource> prepared_sources;
  for (size_t i = 0; i < models.size(); ++i)
    prepared_sources.push_back(prepare_source(job, inputs, inputs.load_model(i)));
  writer.open_curves_file();
  const auto titles = short_names(models);
  for (size_t i = 0; i < models.size(); ++i) {
    const model::LoadedModel& model = inputs.load_model(i);
    ordered_json settings = ordered_json::object();
    if (reads_text) {
      observe_text(job, inputs, model, prepared_sources[i]);
      add_settings(settings, *job.args, prepared_sources[i].scoring_options);
    }
    const auto& entries = prepared_sources[i].source->entries();
    if (entries.empty()) refuse_no_matrices(job, model.name, reads_text);
    writer.write(model.name, titles[i], entries, settings);
  }
  writer.close();
}

// Throws Error(usage) for options of scoring and of the model's passes if --of names matrices that are read from
// parameters, and for options of the table if --plot - draws a plot in its place.
void refuse_unused_options(const SpectraJob& job, const CommandLineFields& fields) {
  if (job.plot_path == "-")
    refuse_options(job.table_options, "a table with this option", "--plot -, which replaces the table");
  if (analysis::parse_source(job.source_name, "--of").source->reads_text()) return;
  std::vector<CLI::Option*> options = fields.options();
  options.insert(options.end(), job.forward_options.begin(), job.forward_options.end());
  refuse_options(options, str("--of ", matrices_text(true), ", which read data"), "--of " + job.source_name);
}

}  // namespace

std::unique_ptr<CommandLineFields> Arguments::declare(CLI::App& app) {
  auto declared_fields = std::make_unique<CommandLineFields>(app);
  scoring_options.describe(*declared_fields), declared_fields->declare(scoring_options.sample);
  return declared_fields;
}

void Arguments::store_values(CommandLineFields* subcommand_fields) {
  size_t num_blocks_options = 0;
  for (CommandLineFields* command_line_fields : {fields.get(), subcommand_fields}) {
    if (command_line_fields == nullptr) continue;
    command_line_fields->store_values(scoring_options), command_line_fields->store_values(scoring_options.sample);
    num_blocks_options += command_line_fields->option("blocks")->count();
  }
  for (const CommandLineFields* command_line_fields : {fields.get(), subcommand_fields})
    if (command_line_fields != nullptr) refuse_unused_seed(*command_line_fields, scoring_options.sample);
  scoring_options.sample.is_default_sample = num_blocks_options == 0;
}

void add_settings(ordered_json& row, const Arguments& args, const data::ScoringOptions& scoring_options) {
  row.update(settings_of(scoring_options, args.precision));
  row["set"] = join(args.assignments, " ");
}

Job make_spectra_job(CLI::App& app, const std::shared_ptr<Arguments>& args,
                     std::vector<CLI::Option*>& spectra_options) {
  const auto job = std::make_shared<SpectraJob>();
  job->args = args;
  const auto add = [&](CLI::Option* option, const char* type) { spectra_options.push_back(option->type_name(type)); };
  add(app.add_option("files", job->files,
                     str("checkpoints, then a shard, unless --of is ", matrices_text(false),
                         "; one of these files may be - for standard input")),
      "MODEL... [DATA]");
  add(app.add_option("--of", job->source_name,
                     str("matrices to analyse; computed from the data: ", explained_matrices_text(true),
                         "; read from the checkpoint, without data: ", explained_matrices_text(false), " [attention]")),
      "MATRICES");
  add_list(app, "--kind", args->kinds, "kinds of attention to analyse, such as decoder.cross [all]", "KIND,...");
  job->table_options.push_back(add_format_option(app, args->format));
  job->table_options.push_back(app.add_flag(
      "--summary", job->is_summary, "print a row for each model and kind of attention, with means over layers"));
  spectra_options.push_back(job->table_options.back());
  add(app.add_option("--curves", job->curves_path,
                     "output file of a table of c_k (sum of the k largest singular values / sum of all) for every k: "
                     "mean and percentiles over blocks or sentences"),
      "FILE");
  add(app.add_option("--plot", job->plot_path,
                     "output file of a plot (.svg, .png or .pdf) with the curve of each layer, or with heat maps of "
                     "matrices across heads; - draws the plot in the terminal instead of printing the table"),
      "FILE");
  add(app.add_option("--dump", job->dump_path,
                     "output file (.safetensors) of the attention matrices of the sampled blocks"),
      "FILE");
  job->forward_options.push_back(add_set_option(app, args->assignments));
  const ModelOptionSet model_options = add_model_options(app, *args);
  job->forward_options.insert(job->forward_options.end(), {model_options.precision, model_options.attention});
  args->fields = args->declare(app);
  return {&app, [args, job] {
            args->store_values(nullptr);
            refuse_unused_options(*job, *args->fields);
            nn::prepare_cpu(args->threads);
            ignore_broken_pipe([&] { report_spectra(*job); });
          }};
}

}  // namespace mh::spectrum
