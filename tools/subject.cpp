#include "subject.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "model/device.h"
#include "train/run_config.h"

namespace mh {

TextSource::TextSource(const std::string& path) : name_(path) {
  if (MappedFile::possible(path)) file_ = std::make_unique<io::ShardFile>(path);
  else held_ = io::read_tokens(path);
  io::require_kind(header(), name_, "language-model");
}

TextSource::~TextSource() = default;

const io::ShardHeader& TextSource::header() const { return file_ != nullptr ? file_->header() : held_.header; }

task::Text TextSource::text_for(const model::LoadedModel& m) const {
  io::require_vocabulary(header(), name_, *m.tokenizer, m.name);
  const int32_t end = m.tokenizer->end_of_line();
  const task::Text text = file_ != nullptr ? task::text_of(*file_, end) : task::text_of(held_.tokens, end);
  if (text.tokens == 0) throw Error(Exit::input, Problem{name_, "tokens to look at", "none", ""});
  return text;
}

model::LoadedModel load_as(const ModelArguments& a, const io::Checkpoint& checkpoint,
                           const std::vector<std::string>& sets) {
  static const at::Device device = model::choose_device(a.device);
  model::LoadedModel m = model::load_model(checkpoint, device, sets);
  const attention::Path attention = attention::path_named(a.attention);
  m.model->set_path(attention);
  if (attention == attention::Path::fused) m.model->require_fused(false);
  if (a.precision == "bf16") m.model->parameters().set_bf16(true);
  return m;
}

task::ScoringOptions scoring_for(const model::LoadedModel& m, const task::ScoringOptions& given, int64_t tokens) {
  Config config;
  config.load_text(m.toml, m.name);
  train::TrainOptions training;
  config.read("train", training);
  task::ScoringOptions options = given;
  if (options.block == 0) options.block = training.block;
  if (options.block > training.block)
    log_warning(
        str(m.name, ": blocks of ", options.block, " tokens are longer than those of training, ", training.block));
  return task::resolve(options, *m.model, tokens);
}

nlohmann::ordered_json settings_of(const task::ScoringOptions& how, const std::string& precision) {
  return {{"block", how.block},          {"context", how.context},  {"memory", how.memory},
          {"blocks", how.sample.blocks}, {"seed", how.sample.seed}, {"precision", precision}};
}

std::function<void(int64_t, int64_t)> progress_bar(const std::string& label, const std::string& unit) {
  auto bar = std::make_shared<std::unique_ptr<Progress>>();
  return [=](int64_t done, int64_t all) {
    if (*bar == nullptr) *bar = std::make_unique<Progress>(label, all, unit);
    (*bar)->update(done);
  };
}

}  // namespace mh
