// mh-convert --average, --fold and --head-size: write a new checkpoint from one or more checkpoints.
#include <unistd.h>

#include <filesystem>

#include "analysis/average.h"
#include "analysis/fold.h"
#include "analysis/pad_heads.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "convert.h"
#include "io/origin.h"
#include "nn/ops.h"
#include "train/derived_metadata.h"

namespace mh::convert {

namespace {

// Throws Error(usage) for invalid arguments. Called before any file is opened.
void check_arguments(const Arguments& args) {
  if (!args.changes_checkpoints() && args.files.size() == 1 && args.files.front() != "-" &&
      !std::filesystem::exists(args.files.front()))
    refuse_input(args.files.front(), "a Hugging Face folder", "no such folder", "check the path");
  if (!args.changes_checkpoints())
    refuse_usage("", "--average, --fold, --head-size or a Hugging Face folder",
                 args.files.empty() ? "none" : "only " + join(args.files, ", "),
                 "name the folder of a Hugging Face model, or a checkpoint with one of these options");
  if (args.files.empty()) refuse_usage("", "a checkpoint", "none", "mh-convert --help shows all options");
  if (!args.average && args.files.size() > 1)
    refuse_usage(args.fold ? "--fold" : "--head-size", "one checkpoint", count_of(args.files.size(), "checkpoint"),
                 "add --average to average the checkpoints first");
  refuse_options({args.seed_option, args.padded_vocabulary_option}, "a Hugging Face folder with this option",
                 "checkpoints");
  refuse_repeated_standard_input("", args.files);
  check_output(args);
}

// Logs the number of averaged parameters that are not trainable, such as running statistics.
void log_non_trainable(const nn::ParameterList& parameters) {
  std::vector<std::string> names;
  for (const nn::Parameter& p : parameters.all())
    if (!p.traits().trainable) names.push_back(p.name());
  if (!names.empty()) log_info(str("averaged ", names.size(), " non-trainable tensors as well, such as ", names[0]));
}

}  // namespace

void check_output(const Arguments& args) {
  if (args.output == "-" && isatty(STDOUT_FILENO) == 1)
    refuse_usage("", "a file or a pipe for the checkpoint", "a terminal", "use -o FILE, or > FILE");
  refuse_output_onto_input(args.output, args.files);
}

void convert_checkpoints(const Arguments& args) {
  check_arguments(args);
  nn::prepare_cpu(args.threads);
  std::vector<std::unique_ptr<io::Checkpoint>> owned_checkpoints;
  std::vector<const io::Checkpoint*> checkpoints;
  for (const std::string& path : args.files)
    checkpoints.push_back(owned_checkpoints.emplace_back(std::make_unique<io::Checkpoint>(path)).get());
  const io::Checkpoint& first_checkpoint = *checkpoints.front();
  model::LoadedModel model =
      args.average ? analysis::average_checkpoints(checkpoints) : model::load_model(first_checkpoint, at::kCPU);
  io::Metadata metadata = train::derived_metadata(first_checkpoint);
  if (args.average) {
    std::vector<std::string> names;
    for (const io::Checkpoint* checkpoint : checkpoints) names.push_back(checkpoint->name());
    io::add_origin(metadata, model.name, {{"average", names}});
  }
  if (args.fold) {
    analysis::FoldedModel folded_model = analysis::fold_combiners(model.config, *model.model, "--fold " + model.name);
    train::set_model(metadata, train::RunConfig::parse(model.toml, model.name), folded_model.config);
    io::add_origin(metadata, model.name, {{"fold", folded_model.layer_names}});
    const int64_t old_num_parameters = model.model->parameters().num_trainable_elements();
    model.model = std::move(folded_model.model);
    model.config = std::move(folded_model.config);
    log_info(str("folded the combiners of ", count_of(folded_model.layer_names.size(), "layer"), "; parameters ",
                 with_commas(old_num_parameters), " -> ",
                 with_commas(model.model->parameters().num_trainable_elements())));
  }
  if (args.head_size > 0) {
    analysis::PaddedModel padded_model =
        analysis::pad_heads(model.config, *model.model, args.head_size, "--head-size, " + model.name);
    train::set_model(metadata, train::RunConfig::parse(model.toml, model.name), padded_model.config);
    io::add_origin(metadata, model.name, {{"head_size", args.head_size}});
    const int64_t old_num_parameters = model.model->parameters().num_trainable_elements();
    model.model = std::move(padded_model.model);
    log_info(str("padded the heads of ", count_of(padded_model.num_layers, "layer"), " to ", args.head_size,
                 " elements; parameters ", with_commas(old_num_parameters), " -> ",
                 with_commas(model.model->parameters().num_trainable_elements())));
  }
  model::write_parameters(*open_sink(args.output), model.model->parameters(), std::move(metadata), output_type(args));
  if (args.dtype != Arguments{}.dtype) log_info("parameters are written as " + args.dtype);
  if (!args.average) return;
  log_info(str("averaged ", count_of(checkpoints.size(), "checkpoint"), "; ",
               count_with_commas(model.model->parameters().num_trainable_elements(), "parameter")));
  log_non_trainable(model.model->parameters());
}

}  // namespace mh::convert
