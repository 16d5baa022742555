#include "common/subject.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "nn/device.h"
#include "text/records/whole_shard.h"
#include "train/run_config.h"

namespace mh {

namespace {

using File = std::unique_ptr<io::ShardFile>;

std::variant<File, text::TokenText, text::PairText> opened(const std::string& path) {
  if (MappedFile::possible(path)) return std::make_unique<io::ShardFile>(path);
  io::ShardStream stream(path);
  if (stream.header().kind == io::kPairsKind) return text::read_pairs(stream);
  if (stream.header().kind == io::kTextKind) return text::read_tokens(stream);
  throw Error(Exit::usage, Problem{path, str("a file, for a shard of the kind ", stream.header().kind), "a pipe",
                                   "write it to a file first"});
}

}  // namespace

TextSource::TextSource(const std::string& path) : name_(path), data_(opened(path)) {}

const io::ShardHeader& TextSource::header() const {
  if (const File* file = std::get_if<File>(&data_)) return (*file)->header();
  if (const auto* pairs = std::get_if<text::PairText>(&data_)) return pairs->header;
  return std::get<text::TokenText>(data_).header;
}

const io::ShardCounts& TextSource::counts() const {
  if (const File* file = std::get_if<File>(&data_)) return (*file)->counts();
  if (const auto* pairs = std::get_if<text::PairText>(&data_)) return pairs->counts;
  return std::get<text::TokenText>(data_).counts;
}

void TextSource::require(const model::ModelOptions& model, const text::Tokenizers& tokenizers,
                         const std::string& name) const {
  const std::string kind = task::kind_for(model);
  if (header().kind != kind)
    throw Error(Exit::input, Problem{name_, str("a shard of the kind ", kind, ", which ", name, " reads"),
                                     header().kind, str("make it with mh-prep ", task::preparation_of(kind))});
  text::require_vocabularies(header(), name_, tokenizers, name);
}

void TextSource::require_for(const io::Checkpoint& checkpoint) const {
  require(model::config_of(checkpoint).model, text::tokenizers_of(checkpoint), checkpoint.name());
}

namespace {

Config run_config_of(const model::LoadedModel& m) {
  Config config;
  config.load_text(m.toml, m.name);
  return config;
}

}  // namespace

// Rows are made as they were in the model's training.
task::ExampleOptions example_options(const model::LoadedModel& m) {
  Config config = run_config_of(m);
  train::RunConfig run = train::RunConfig::read(config);
  run.model = m.config;
  return run.example_options(false);
}

task::Corpus TextSource::text_for(const model::LoadedModel& m) const {
  require(m.config.model, m.tokenizers, m.name);
  const int32_t source_end = m.tokenizers.of_source().end_of_line(), end = m.tokenizers.target->end_of_line();
  task::Corpus corpus;
  if (const File* file = std::get_if<File>(&data_)) corpus = task::corpus_of(**file, m.tokenizers, example_options(m));
  else if (const auto* pairs = std::get_if<text::PairText>(&data_)) corpus = task::pairs_of(*pairs, source_end, end);
  else corpus = task::text_of(std::get<text::TokenText>(data_).tokens, end);
  if (task::targets_in(corpus) == 0) throw Error(Exit::input, Problem{name_, "tokens to look at", "none", ""});
  return corpus;
}

task::Corpus TextSource::measure_for(const model::LoadedModel& m) const {
  task::Corpus corpus = text_for(m);
  task::require_targets(corpus, name_);
  return corpus;
}

model::LoadedModel load_as(const ModelArguments& a, const io::Checkpoint& checkpoint,
                           const std::vector<std::string>& sets) {
  static const at::Device device = nn::choose_device(a.device);
  std::vector<std::string> of_model, of_answers;
  for (const std::string& set : sets) (set.rfind("squad.", 0) == 0 ? of_answers : of_model).push_back(set);
  model::LoadedModel m = model::load_model(checkpoint, device, of_model);
  if (!of_answers.empty()) {
    Config config = run_config_of(m);
    for (const std::string& set : of_answers) config.set(set);
    m.toml = train::RunConfig::read(config).toml();
  }
  const attention::Path attention = attention::path_named(a.attention);
  m.model->set_path(attention);
  if (attention == attention::Path::fused) m.model->require_fused(false);
  for (const std::string& line : m.model->describe_paths(false)) log_detail("attention: " + line);
  if (a.precision == "bf16") m.model->parameters().set_bf16(true);
  return m;
}

task::ScoringOptions scoring_for(const model::LoadedModel& m, const task::ScoringOptions& given,
                                 const task::Corpus& corpus) {
  if (!std::holds_alternative<task::Text>(corpus)) return task::resolve(given, *m.model, corpus);
  Config config = run_config_of(m);
  train::TrainOptions training;
  config.read("train", training);
  task::ScoringOptions options = given;
  if (options.block == 0) options.block = training.batch.block;
  if (options.block > training.batch.block)
    log_warning(str(m.name, ": blocks of ", options.block, " tokens are longer than those of training, ",
                    training.batch.block));
  return task::resolve(options, *m.model, corpus);
}

nlohmann::ordered_json settings_of(const task::ScoringOptions& how, const std::string& precision) {
  return {{"block", how.block},          {"context", how.context},  {"memory", how.memory},
          {"blocks", how.sample.blocks}, {"seed", how.sample.seed}, {"precision", precision}};
}

std::string measured_by(const std::string& measure, const task::ScoringOptions& how) {
  return str(" by ", measure, how.sentences ? " on whole records, " : str(" in blocks of ", how.block, " tokens, "),
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
