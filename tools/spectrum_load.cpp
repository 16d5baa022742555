// Models and data of mh-spectrum.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "model/device.h"
#include "spectrum.h"
#include "train/run_config.h"

namespace mh::spectrum {

Data::Data(const std::string& path) {
  if (MappedFile::possible(path)) file_ = std::make_unique<io::ShardFile>(path);
  else piped_ = io::read_tokens(path);
  io::require_kind(header(), path, "language-model");
}

task::Text Data::text(const io::Tokenizer& tokenizer) const {
  return file_ != nullptr ? task::text_of(*file_, tokenizer.end_of_line())
                          : task::text_of(piped_.tokens, tokenizer.end_of_line());
}

void check_vocabularies(const std::vector<std::string>& models, const Data& data, const std::string& data_name) {
  for (const std::string& model : models)
    if (model != "-")
      io::require_vocabulary(data.header(), data_name, io::Checkpoint(model).entry(io::kFingerprintKey), model);
}

model::LoadedModel load(const Arguments& a, const std::string& path) {
  static const at::Device device = model::choose_device(a.device);
  model::LoadedModel m = model::load_model(path, device, a.sets);
  const attention::Path attention = attention::path_named(a.attention);
  m.model->set_path(attention);
  if (attention == attention::Path::fused) m.model->require_fused(false);
  if (a.precision == "bf16") m.model->parameters().set_bf16(true);
  return m;
}

task::ScoringOptions resolved(const task::ScoringOptions& given, model::LoadedModel& m, const task::Text& text) {
  Config config;
  config.load_text(m.toml, m.name);
  train::TrainOptions trained;
  config.read("train", trained);
  task::ScoringOptions options = given;
  if (options.block == 0) options.block = trained.block;
  if (options.block > trained.block)
    log_warning(
        str(m.name, ": blocks of ", options.block, " tokens are longer than those of training, ", trained.block));
  return task::resolve(options, *m.model, text.tokens);
}

void add_settings(nlohmann::ordered_json& row, const Arguments& a, const task::ScoringOptions& how) {
  row["block"] = how.block;
  row["context"] = how.context;
  row["memory"] = how.memory;
  row["blocks"] = how.sample.blocks;
  row["seed"] = how.sample.seed;
  row["precision"] = a.precision;
  row["set"] = join(a.sets, " ");
}

}  // namespace mh::spectrum
