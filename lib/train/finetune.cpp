#include "train/finetune.h"

#include "model/load.h"

namespace mh::train {

namespace {

std::string read_inherited_sections(const io::Checkpoint& checkpoint) {
  Config config;
  config.load_text(checkpoint.metadata_entry(io::kConfigKey), checkpoint.name() + ": configuration");
  RunConfig run;
  run.groups.read(config);
  run.procedures.read(config, "train.procedures", mh::train::procedures());
  const auto model = model::build_language_model(
      model::config_of(checkpoint), model::vocabulary_sizes_of(text::tokenizers_of(checkpoint)), at::Device(at::kMeta));
  run.groups.adapt_to_finetuning(model->parameters());
  run.procedures.retain_if([](const Procedure& procedure) { return procedure.is_inherited_by_finetuning(); });
  const std::string groups = run.groups.toml(), procedures = run.procedures.toml();
  return groups + (groups.empty() || procedures.empty() ? "" : "\n") + procedures;
}

}  // namespace

std::string inherited_sections(const io::Checkpoint& checkpoint) {
  return read_stored_config(checkpoint.name(), io::kEditedCheckpointAdvice,
                            [&] { return read_inherited_sections(checkpoint); });
}

}  // namespace mh::train
