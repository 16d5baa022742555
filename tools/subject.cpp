#include "subject.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "model/device.h"
#include "train/run_config.h"

namespace mh {

TextSource::TextSource(const std::string& path) : name_(path) {
  if (MappedFile::possible(path)) {
    file_ = std::make_unique<io::ShardFile>(path);
    pairs_ = file_->header().kind == io::kPairsKind;
    if (!pairs_) io::require_kind(header(), name_, io::kTextKind);
    return;
  }
  io::ShardStream stream(path);
  pairs_ = stream.header().kind == io::kPairsKind;
  if (pairs_) held_pairs_ = io::read_pairs(stream);
  else held_ = io::read_tokens(stream);
}

TextSource::~TextSource() = default;

const io::ShardHeader& TextSource::header() const {
  return file_ != nullptr ? file_->header() : pairs_ ? held_pairs_.header : held_.header;
}

const io::ShardCounts& TextSource::counts() const {
  return file_ != nullptr ? file_->counts() : pairs_ ? held_pairs_.counts : held_.counts;
}

void TextSource::require(bool reads_pairs, const io::Tokenizers& tokenizers, const std::string& model) const {
  if (pairs_ != reads_pairs)
    throw Error(Exit::input,
                Problem{name_,
                        str("a shard of the kind ", pairs_ ? io::kTextKind : io::kPairsKind, " for ", model, ", which ",
                            pairs_ ? "has no encoder" : "has an encoder"),
                        header().kind, pairs_ ? "make it with mh-prep lm" : "make it with mh-prep translation"});
  io::require_vocabularies(header(), name_, tokenizers, model);
}

void TextSource::require_for(const io::Checkpoint& checkpoint) const {
  require(model::has_encoder(model::config_of(checkpoint).model), io::tokenizers_of(checkpoint), checkpoint.name());
}

task::Corpus TextSource::text_for(const model::LoadedModel& m) const {
  require(m.model->has_encoder(), m.tokenizers, m.name);
  const int32_t source_end = m.tokenizers.of_source().end_of_line(), end = m.tokenizers.target->end_of_line();
  task::Corpus corpus = file_ != nullptr ? task::corpus_of(*file_, m.tokenizers)
                        : pairs_         ? task::Corpus(task::pairs_of(held_pairs_, source_end, end))
                                         : task::Corpus(task::text_of(held_.tokens, end));
  if (task::targets_in(corpus) == 0) throw Error(Exit::input, Problem{name_, "tokens to look at", "none", ""});
  return corpus;
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

task::ScoringOptions scoring_for(const model::LoadedModel& m, const task::ScoringOptions& given,
                                 const task::Corpus& corpus) {
  if (std::holds_alternative<task::Pairs>(corpus)) return task::resolve(given, *m.model, corpus);
  Config config;
  config.load_text(m.toml, m.name);
  train::TrainOptions training;
  config.read("train", training);
  task::ScoringOptions options = given;
  if (options.block == 0) options.block = training.block;
  if (options.block > training.block)
    log_warning(
        str(m.name, ": blocks of ", options.block, " tokens are longer than those of training, ", training.block));
  return task::resolve(options, *m.model, corpus);
}

nlohmann::ordered_json settings_of(const task::ScoringOptions& how, const std::string& precision) {
  return {{"block", how.block},          {"context", how.context},  {"memory", how.memory},
          {"blocks", how.sample.blocks}, {"seed", how.sample.seed}, {"precision", precision}};
}

std::string measured_by(const std::string& measure, const task::ScoringOptions& how) {
  return str(" by ", measure, how.sentences ? " on pairs, " : str(" in blocks of ", how.block, " tokens, "),
             how.sample.blocks == 0 ? "all" : str(how.sample.blocks), " of them; seed ", how.sample.seed);
}

std::function<void(int64_t, int64_t)> progress_bar(const std::string& label, const std::string& unit) {
  auto bar = std::make_shared<std::unique_ptr<Progress>>();
  return [=](int64_t done, int64_t all) {
    if (*bar == nullptr) *bar = std::make_unique<Progress>(label, all, unit);
    (*bar)->update(done);
  };
}

}  // namespace mh
