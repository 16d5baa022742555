#include "train/run_config.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "io/checkpoint.h"

namespace mh::train {

RunConfig RunConfig::read(Config& config) {
  RunConfig run;
  run.model = model::ModelConfig::read(config);
  config.read("train", run.train);
  run.tasks.read(config, run.model.model);
  run.groups.read(config);
  run.regularisers.read(config, "train.regularisers", mh::train::regularisers(), true);
  run.procedures.read(config, "train.procedures", mh::train::procedures());
  config.read("data", run.data);
  config.check_all_known();
  return run;
}

RunConfig RunConfig::parse(const std::string& toml, const std::string& name) {
  return read_stored_config(name, io::kEditedCheckpointAdvice, [&] {
    Config config;
    config.load_text(toml, name + ": configuration");
    return read(config);
  });
}

void RunConfig::describe(Fields& f) {
  f.section("model", model.model);
  f.section("train", train);
  tasks.describe(f);
  f.section("data", data);
  groups.describe(f);
  regularisers.describe(f);
  procedures.describe(f);
}

void set_legacy_defaults(Config& config) {
  TrainOptions train;
  config.read("train", train);
  const auto stored_keys = config.keys_below("train");
  if (std::find(stored_keys.begin(), stored_keys.end(), "dropout_index") == stored_keys.end())
    config.set("train.dropout_index=\"padded\"");
  for (const std::string& name : task::tasks().names())
    task::tasks().make(name, "task")->set_legacy_defaults(config, train.batch.long_sequence_length);
}

void RunConfig::check() const {
  if (train.length.count == 0)
    refuse_usage("train.length", "a length of training above 0", "no length", "for example --set train.length=300u");
  if (train.validation.patience > 0 && data.valid_path.empty())
    refuse_usage("train.validation.patience", "0, or --valid with a shard for early stopping", "no --valid",
                 "pass --valid, or leave train.validation.patience out");
  if (train.validation.metric != "loss" && data.valid_path.empty())
    refuse_usage("train.validation.metric", "loss, or --valid with a shard to score", "no --valid",
                 "pass --valid, or leave train.validation.metric out");
  if (train.checkpoint.retain_by == "best" && data.valid_path.empty())
    refuse_usage("train.checkpoint.retain_by", "newest, or --valid with a shard to rank models", "no --valid",
                 "pass --valid, or leave train.checkpoint.retain_by out");
  check_without_data();
}

void RunConfig::check_without_data() const {
  train.check();
  if (train.label_smoothing > 0 && !model.model.output_cutoffs.empty())
    refuse_usage(
        "train.label_smoothing", "0 with model.output_cutoffs", str(train.label_smoothing),
        "leave train.label_smoothing or model.output_cutoffs out, since label smoothing requires a full softmax over "
        "the vocabulary");
  check_task_options();
  check_shard_weights();
  const int64_t memory = model.model.transformer_xl.memory;
  const bool shuffles_rows = train.batch.order == BatchOrder::blocks || train.batch.order == BatchOrder::sentences;
  if (memory > 0 && shuffles_rows)
    refuse_usage("train.batch.order", "streams or sentence-streams, since the model has a memory",
                 str(train.batch.order == BatchOrder::blocks ? "the default, " : "", name_of(train.batch.order),
                     ", which are shuffled"),
                 "set train.batch.order=streams, or model.transformer-xl.memory=0");
  if (train.validation.memory > 0 && memory == 0)
    refuse_usage("train.validation.memory", "0 for a model without a memory", str(train.validation.memory),
                 "leave train.validation.memory out, or set model.backbone='transformer-xl' and "
                 "model.transformer-xl.memory");
  if (memory > 0 && validation_memory() < 0)
    refuse_usage(
        "train.validation.sequence_length",
        str("at most ", memory + train.batch.sequence_length,
            ", the sum of model.transformer-xl.memory and train.batch.sequence_length, if train.validation.memory is "
            "not set"),
        str(train.validation.sequence_length),
        "lower train.validation.sequence_length, or set train.validation.memory");
}

void RunConfig::check_shard_weights() const {
  const size_t num_shards = data.train_paths.size(), num_weights = data.weights.size();
  if (num_shards > 0 && num_weights > 0 && num_weights != num_shards)
    refuse_usage("data.weights", str("a weight for each training shard, that is, ", num_shards), str(num_weights),
                 "give one weight for each shard, or leave data.weights out");
}

void RunConfig::check_task_options() const {
  const task::TaskTraits traits = task().traits();
  const std::vector<std::string> scores = task::names_of(task().scores());
  const std::string& metric = train.validation.metric;
  const bool has_metric = metric == "loss" || std::find(scores.begin(), scores.end(), metric) != scores.end();
  if (task::score_spec(metric).needs_decoding && !has_metric)
    refuse_usage("train.validation.metric", "loss, or a score of the model's task",
                 metric + ", which scores translations only",
                 "set train.validation.metric=loss, or to a score of the model's task");
  if (traits.has_perplexity && !has_metric)
    refuse_usage("train.validation.metric",
                 scores.empty() ? "loss, for a language model" : "loss or " + join(scores, ", "),
                 metric + ", which scores examples only",
                 "set train.validation.metric=loss, or train an encoder with mh-finetune");
  task().check(train.batch, train.validation.sequence_length);
  if ((train.batch.long_sequence_length > 0) != (train.batch.long_from.count > 0))
    refuse_usage(
        "train.batch.long_from", "both train.batch.long_from and train.batch.long_sequence_length, or neither",
        train.batch.long_sequence_length > 0 ? "no train.batch.long_from" : "no train.batch.long_sequence_length",
        "set both keys, for example train.batch.long_from=900u, or leave both out");
}

void RunConfig::check_model(model::LanguageModel& language_model) const {
  language_model.require_length("train.batch.sequence_length", train.batch.sequence_length,
                                data::BatchOptions{}.sequence_length);
  language_model.require_length("train.batch.long_sequence_length", train.batch.long_sequence_length);
  language_model.require_length("train.validation.sequence_length", validation_sequence_length());
  if (task::score_spec(train.validation.metric).needs_decoding) {
    train.validation.decode.translation.search.check(language_model, kDecodeSection);
    language_model.new_state();  // throws Error(usage) if a stage does not support incremental decoding
  }
  if (train.cuda_graph) check_cuda_graph(language_model);
  if (train.recompute && regularisers.observer() != nullptr)
    refuse_usage("train.recompute", "false, since a regulariser observes the attention of the forward pass", "true",
                 "leave train.recompute out, or remove the regulariser");
  if (train.attention_path != "fused") return;
  language_model.require_fused(true);
  if (regularisers.why_composed() != nullptr)
    refuse_usage("train.attention_path", "auto or composed, since a regulariser reads attention probabilities", "fused",
                 "remove the regulariser, or set train.attention_path=auto");
  for (const auto& entry : procedures.entries())
    if (entry.plugin->observes())
      refuse_usage(
          "train.attention_path",
          str("auto or composed, since the procedure ", entry.name, " reads attention probabilities during validation"),
          "fused", "remove the procedure, or set train.attention_path=auto");
}

void RunConfig::check_cuda_graph(model::LanguageModel& language_model) const {
  const auto refuse = [](const std::string& expected, const std::string& found) {
    refuse_usage("train.cuda_graph", expected, found, "leave train.cuda_graph out");
  };
  // A dry run builds the model on LibTorch's device "meta" and reports the errors of a run on a GPU.
  const at::Device device = language_model.parameters().device();
  if (!device.is_cuda() && !device.is_meta()) refuse("a model on a GPU", "a model on the CPU");
  if (!task().traits().has_text_order)
    refuse("a language model, whose rows have equal lengths",
           str("model.backbone='", model.model.backbone, "', whose training examples have different lengths"));
  if (train.batch.order == BatchOrder::sentences)
    refuse("rows of equal lengths", "train.batch.order=sentences, whose rows have different lengths");
  if (language_model.memory_length() > 0)
    refuse("a model without a memory", str("model.transformer-xl.memory=", language_model.memory_length()));
  if (train.recompute) refuse("train.recompute=false", "true");
  if (train.batch.micro_tokens > 0)
    refuse("no micro-batches (train.batch.micro_tokens=0)", str("train.batch.micro_tokens=", train.batch.micro_tokens));
  std::vector<std::string> cutoff_keys;
  if (!model.model.input_cutoffs.empty()) cutoff_keys.emplace_back("model.input_cutoffs");
  if (!model.model.output_cutoffs.empty()) cutoff_keys.emplace_back("model.output_cutoffs");
  if (!cutoff_keys.empty())
    refuse("a model whose tensor shapes do not depend on the tokens",
           join(cutoff_keys, " and ") + ", with which tensor shapes depend on the tokens");
  if (!regularisers.entries().empty()) refuse("no regularisers", regularisers.entries().front().name);
  for (const attention::AttentionLayer* layer : language_model.attention_layers())
    if (const std::string sampling_stage = layer->stage_sampling_on_host(); !sampling_stage.empty())
      refuse("stages that draw no random numbers on the CPU", sampling_stage);
}

task::DatasetOptions RunConfig::dataset_options(bool is_training) const {
  return {model.model.bert, train.batch.sequence_length, static_cast<uint64_t>(train.seed), is_training};
}

std::optional<int64_t> RunConfig::max_long_row_predictions() const {
  return task().clone_for_long_rows(train.batch.sequence_length, train.batch.long_sequence_length)->max_predictions();
}

int64_t RunConfig::validation_sequence_length() const {
  return train.validation.sequence_length > 0 ? train.validation.sequence_length : train.batch.sequence_length;
}

int64_t RunConfig::validation_memory() const {
  if (train.validation.memory >= 0 || model.model.transformer_xl.memory == 0)
    return std::max<int64_t>(0, train.validation.memory);
  return model.model.transformer_xl.memory + train.batch.sequence_length - validation_sequence_length();
}

std::string RunConfig::toml() const {
  TomlWriter writer;
  RunConfig copy = *this;
  writer.section("train", copy.train);
  copy.tasks.describe(writer, model.model);
  writer.section("data", copy.data);
  std::string text = model.toml() + "\n" + writer.text();
  for (const std::string& section_toml : {groups.toml(), regularisers.toml(), procedures.toml()})
    if (!section_toml.empty()) text += "\n" + section_toml;
  return text;
}

namespace {

template <class T>
void list_plugins(FieldLister& lister, const std::string& section, const Registry<T>& registry) {
  for (const std::string& name : registry.names())
    lister.section(str(section, ".", name), *registry.make(name, section));
}

template <class S>
void list_options(FieldLister& lister, const Registry<S>& registry) {
  for (const std::string& name : registry.names())
    if (auto options = registry.make(name, "stage")->options()) lister.section("attention." + name, *options);
}

}  // namespace

std::vector<FieldDescription> all_keys() {
  FieldLister lister;
  model::ModelOptions model_options;
  attention::AttentionOptions attention_options;
  TrainOptions train_options;
  DataOptions data_options;
  model::UnusedBackboneOptions backbones{model_options};
  lister.section("model", model_options);
  lister.section("model", backbones);
  lister.section("attention", attention_options);
  list_options(lister, attention::transforms());
  list_options(lister, attention::pairings());
  list_options(lister, attention::scores());
  list_options(lister, attention::position_biases());
  list_options(lister, attention::normalisers());
  list_options(lister, attention::mixers());
  list_options(lister, attention::combiners());
  lister.section("train", train_options);
  task::TaskOptions().describe(lister);
  ParameterGroupOptions group_options;
  lister.section("train.groups.NAME", group_options);
  PluginType type;
  lister.section("train.regularisers.NAME", type);
  list_plugins(lister, "train.regularisers", regularisers());
  list_plugins(lister, "train.procedures", procedures());
  lister.section("data", data_options);
  return lister.descriptions();
}

}  // namespace mh::train
