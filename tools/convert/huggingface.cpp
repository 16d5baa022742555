// mh-convert FOLDER reads a model from a Hugging Face folder; mh-convert --to huggingface MODEL FOLDER writes one.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "conversion/huggingface_folder.h"
#include "convert.h"
#include "io/origin.h"
#include "nn/ops.h"
#include "train/run_config.h"

namespace mh::convert {

namespace {

bool is_folder(const std::string& file) { return std::filesystem::is_directory(file); }

// Throws Error(usage) for a folder as an input of --average or --fold.
void refuse_folder_to_average_or_fold(const Arguments& args) {
  if (!args.average && !args.fold) return;
  const auto folder = std::find_if(args.files.begin(), args.files.end(), is_folder);
  refuse_usage(args.average ? "--average" : "--fold", args.average ? "checkpoint files" : "a checkpoint file",
               str("the folder ", *folder, ", which mh-convert reads as a Hugging Face folder"),
               str("first convert the folder to a checkpoint, then ", args.average ? "average" : "fold",
                   "; or name a checkpoint in the folder"));
}

// Throws Error(usage) for --average and --fold together with --to huggingface.
void refuse_average_and_fold_with_to(const Arguments& args) {
  if (args.average || args.fold)
    refuse_usage(args.average ? "--average" : "--fold", "no --to huggingface in the same run", "both",
                 str("first write ", args.average ? "an averaged" : "a folded", " checkpoint with ",
                     args.average ? "--average" : "--fold", ", then convert this checkpoint with --to huggingface"));
}

// Returns the name of a folder without trailing slashes.
std::string strip_slashes(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

void log_summary(const model::LoadedModel& model, const Arguments& args) {
  log_info(str(count_with_commas(model.model->parameters().num_trainable_elements(), "parameter"), ", ",
               count_with_commas(model.tokenizers.target->size(), "entry"), " of the vocabulary, written as ",
               args.dtype));
}

}  // namespace

io::DType output_type(const Arguments& args) {
  for (const io::DType type : {io::DType::bf16, io::DType::f16})
    if (args.dtype == conversion::dtype_name(type)) return type;
  return io::DType::f32;
}

bool is_from_huggingface(const Arguments& args) {
  return std::any_of(args.files.begin(), args.files.end(), is_folder) ||
         ((args.padded_vocabulary_option->count() > 0 || args.seed_option->count() > 0) && !args.changes_checkpoints());
}

void convert_from_huggingface(const Arguments& args) {
  refuse_folder_to_average_or_fold(args);
  refuse_options({args.head_size_option}, "a checkpoint file with this option", "a Hugging Face folder");
  if (args.files.size() != 1)
    refuse_usage("", "one Hugging Face folder", count_of(args.files.size(), "argument"),
                 "mh-convert --help shows examples");
  check_output(args);
  nn::prepare_cpu(args.threads);
  const std::string folder = strip_slashes(args.files.front());
  const conversion::Folder huggingface_folder(folder, {args.seed, args.accepts_padding_rows});
  const model::LoadedModel& model = huggingface_folder.model();
  train::RunConfig run_config = train::RunConfig::parse(model.toml, folder);
  // Tools read their default sequence length from the configuration, so this length must not exceed the number of
  // positions of the model.
  run_config.train.batch.sequence_length =
      std::min(run_config.train.batch.sequence_length, run_config.model.model.max_positions);
  io::Metadata metadata{{io::kFormatKey, "1"}, {io::kConfigKey, run_config.toml()}};
  metadata.merge(text::metadata_of(model.tokenizers));
  io::add_origin(metadata, folder, {{"huggingface", folder}, {io::kModelTypeKey, huggingface_folder.model_type()}});
  if (!huggingface_folder.companions().empty()) metadata[io::kHuggingFaceKey] = huggingface_folder.companions();
  huggingface_folder.write_checkpoint(*open_sink(args.output), std::move(metadata), output_type(args));
  log_summary(model, args);
}

void convert_to_huggingface(const Arguments& args) {
  refuse_average_and_fold_with_to(args);
  refuse_options({args.head_size_option}, "no --to huggingface in the same run", "--to huggingface");
  if (args.files.size() != 2)
    refuse_usage("--to huggingface", "a checkpoint and a new folder", count_of(args.files.size(), "argument"),
                 "mh-convert --help shows examples");
  refuse_options({args.output_option}, "no --output with --to huggingface, whose second argument is the new folder",
                 args.output);
  refuse_options({args.padded_vocabulary_option, args.seed_option}, "a Hugging Face folder as input with this option",
                 "--to huggingface, whose input is a checkpoint");
  nn::prepare_cpu(args.threads);
  const std::string folder = strip_slashes(args.files.back());
  const io::Checkpoint checkpoint(args.files.front());
  const model::LoadedModel model = model::load_model(checkpoint, at::kCPU);
  conversion::write_folder(model, folder, {model.huggingface_type, output_type(args), model.huggingface_companions});
  log_summary(model, args);
}

}  // namespace mh::convert
