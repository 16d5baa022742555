// Opens shards, checks them against models, and loads models.
#include "common/shard_source.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "analysis/importance.h"
#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "common/processes.h"
#include "io/record_kind.h"
#include "train/run_config.h"

namespace mh {

ShardSource::ShardSource(const std::string& path) : name_(input_name(path)) {
  if (MappedFile::is_mappable(path)) {
    file_ = std::make_unique<io::ShardFile>(path);
    task_ = task::task_of_kind(file_->header().kind, path);
    records_ = std::make_unique<text::FileRecords>(*file_);
    return;
  }
  io::ShardStream stream(path);
  task_ = task::task_of_kind(stream.header().kind, name_);
  if (!task_->reads_pipes())
    refuse_usage(name_, str("a file, for a shard of the kind ", stream.header().kind), "a pipe",
                 "write the shard to a file first");
  records_ = std::make_unique<text::InMemoryRecords>(stream);
}

void ShardSource::require_readable_by(const model::ModelOptions& model, const text::Tokenizers& tokenizers,
                                      const std::string& name) const {
  const std::unique_ptr<task::Task> task = task::task_of(model);
  const std::string kind = task->record_kind();
  if (header().kind != kind)
    refuse_input(name_, str("a shard of the kind ", kind, ", which ", name, " reads"),
                 "a shard of the kind " + header().kind,
                 str("make a shard of the kind ", kind, " with ", io::prep_commands_for(kind)));
  text::require_vocabularies(header(), name_, tokenizers, name);
}

void ShardSource::require_readable_by(const io::Checkpoint& checkpoint) const {
  require_readable_by(model::config_of(checkpoint).model, text::tokenizers_of(checkpoint), checkpoint.name());
}

namespace {

Config run_config_of(const model::LoadedModel& model) {
  Config config;
  config.load_text(model.toml, model.name);
  return config;
}

}  // namespace

// Builds the rows of the dataset with the options of the model's training configuration.
std::shared_ptr<const task::Dataset> ShardSource::dataset_for(const model::LoadedModel& model) const {
  require_readable_by(model.config.model, model.tokenizers, model.name);
  train::RunConfig run_config = train::RunConfig::parse(model.toml, model.name);
  run_config.model = model.config;
  std::shared_ptr<const task::Dataset> dataset =
      run_config.task().open(*records_, model.tokenizers, run_config.dataset_options(false));
  if (dataset->corpus().num_targets() == 0)
    refuse_input(name_, "at least one token, class or number to predict", "none", "use a shard with more records");
  return dataset;
}

std::shared_ptr<const task::Dataset> ShardSource::labelled_dataset_for(const model::LoadedModel& model) const {
  auto dataset = dataset_for(model);
  dataset->require_targets();
  return dataset;
}

namespace {

// Returns whether an assignment "key=value" sets an option of a task whose options affect scores.
bool affects_scores(const std::string& assignment) {
  for (const std::string& name : task::tasks().names())
    if (const auto task = task::tasks().make(name, "task");
        task->options_affect_scores() && assignment.starts_with(str(task->section(), ".")))
      return true;
  return false;
}

}  // namespace

model::LoadedModel load_with_options(const ModelArguments& args, const io::Checkpoint& checkpoint,
                                     model::Masters masters, const std::vector<std::string>& assignments,
                                     bool names_model) {
  const at::Device device = device_of_process(args.device);
  std::vector<std::string> model_settings, task_settings;
  for (const std::string& assignment : assignments)
    (affects_scores(assignment) ? task_settings : model_settings).push_back(assignment);
  const bool is_bf16 = args.precision == "bf16";
  if (!is_bf16) masters = model::Masters::present;
  model::LoadedModel model = model::load_model(checkpoint, device, model_settings, masters);
  if (is_bf16 && masters == model::Masters::present) model.model->parameters().use_bf16_copies(true);
  if (!task_settings.empty()) {
    Config config = run_config_of(model);
    for (const std::string& assignment : task_settings) config.set(assignment);
    model.toml = train::RunConfig::read(config).toml();
  }
  const attention::Path attention_path = attention::parse_attention_path(args.attention_path);
  const std::string line_prefix = names_model ? model.name + ": " : "";
  model.model->set_path(attention_path, line_prefix);
  if (attention_path == attention::Path::fused) model.model->require_fused(false);
  for (const std::string& line : model.model->describe_paths(false)) log_detail(str(line_prefix, "attention: ", line));
  return model;
}

data::ScoringOptions resolved_scoring_options(const model::LoadedModel& model,
                                              const data::ScoringOptions& scoring_options,
                                              const task::Dataset& dataset) {
  if (!task::task_of(model.config.model)->traits().has_text_order)
    return dataset.corpus().resolve(scoring_options, *model.model);
  Config config = run_config_of(model);
  train::TrainOptions train_options;
  config.read("train", train_options);
  data::ScoringOptions options = scoring_options;
  if (options.sequence_length == 0) options.sequence_length = train_options.batch.sequence_length;
  const bool is_trained_on_sentences = train_options.batch.order == data::BatchOrder::sentences;
  if (options.text_rows == data::TextRows::automatic && is_trained_on_sentences && options.context == 0)
    options.text_rows = data::TextRows::sentences;
  if (options.text_rows != data::TextRows::sentences && is_trained_on_sentences)
    log_warning(str(model.name, ": trained on sentences (train.batch.order = sentences), scored in blocks of ",
                    count_of(options.sequence_length, "token"),
                    " across ends of lines, so scores differ from those of sentences, the default rows of mh-eval"));
  // A model of Hugging Face was trained on texts of max_position_embeddings, whatever the blocks of its fine-tuning.
  const bool is_converted = !model.huggingface_type.empty();
  const int64_t trained_length = is_converted
                                     ? std::max(train_options.batch.sequence_length, model.config.model.max_positions)
                                     : train_options.batch.sequence_length;
  if (options.sequence_length > trained_length)
    log_warning(str(model.name, ": blocks of ", count_of(options.sequence_length, "token"), " are longer than the ",
                    is_converted ? str(count_of(trained_length, "position"), " of the model")
                                 : str("blocks of ", count_of(trained_length, "token"), " in training"),
                    ", so scores may be worse; --sequence-length sets the length"));
  return dataset.corpus().resolve(options, *model.model);
}

void refuse_unused_seed(const CommandLineFields& fields, const data::SampleOptions& sample,
                        const std::vector<std::string>& measures) {
  const CLI::Option *seed = fields.option("seed"), *blocks = fields.option("blocks");
  if (seed->count() == 0) return;
  const auto uses_seed = [](const std::string& name) {
    return analysis::importance_measures().make(name, "--by")->uses_seed();
  };
  if (sample.blocks > 0 || std::any_of(measures.begin(), measures.end(), uses_seed)) return;
  std::vector<std::string> alternatives{"--blocks above 0"};
  if (!measures.empty())
    for (const std::string& name : analysis::importance_measures().names())
      if (uses_seed(name)) alternatives.push_back("--by " + name);
  refuse_options({fields.option("seed")}, join_alternatives(alternatives) + " with this option",
                 str(blocks->count() > 0 ? "" : kDefaultRemark, "--blocks ", sample.blocks));
}

nlohmann::ordered_json settings_of(const data::ScoringOptions& scoring_options, const std::string& precision) {
  nlohmann::ordered_json settings{{"block", scoring_options.sequence_length}, {"context", scoring_options.context},
                                  {"memory", scoring_options.memory},         {"blocks", scoring_options.sample.blocks},
                                  {"seed", scoring_options.sample.seed},      {"precision", precision}};
  if (scoring_options.has_begin_token) settings["begin"] = name_of(scoring_options.begin);
  return settings;
}

std::string measurement_text(const std::string& measure, const data::ScoringOptions& scoring_options) {
  return str(" by ", measure,
             scoring_options.has_independent_rows
                 ? " on whole records, "
                 : str(" in blocks of ", count_of(scoring_options.sequence_length, "token"), ", "),
             scoring_options.sample.blocks == 0 ? "all" : str(scoring_options.sample.blocks), " of them; seed ",
             scoring_options.sample.seed,
             scoring_options.has_begin_token ? str(", --begin ", name_of(scoring_options.begin)) : "");
}

std::function<void(int64_t, int64_t)> progress_bar(const std::string& label, const std::string& unit) {
  auto progress_line = std::make_shared<std::unique_ptr<ProgressLine>>();
  return [=](int64_t num_completed, int64_t total) {
    if (*progress_line == nullptr) *progress_line = std::make_unique<ProgressLine>(label, total, unit);
    (*progress_line)->update(num_completed);
  };
}

}  // namespace mh
