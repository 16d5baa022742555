#include "train/trainer.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/version.h"
#include "model/adopt.h"
#include "model/load.h"
#include "task/pinned.h"
#include "text/records/examples.h"
#include "train/ahead_batches.h"
#include "train/only.h"

namespace mh::train {

using nlohmann::ordered_json;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string position_json(const Position& p) {
  ordered_json j{{"update", p.update},
                 {"tokens", p.tokens},
                 {"best_update", p.best_update},
                 {"worse", p.worse},
                 {"last_lr", p.last_lr},
                 {"norm", p.norm},
                 {"settled", p.settled},
                 {"threads", p.threads},
                 {"nll", p.nll},
                 {"smoothed", p.smoothed},
                 {"counted", p.counted},
                 {"steps", p.steps},
                 {"procedures", p.procedures},
                 {"memory", p.memory},
                 {"kept", p.kept},
                 {"schedule_rule", p.schedule_rule}};
  if (std::isfinite(p.best)) j["best"] = p.best;
  if (std::isfinite(p.counted_best)) j["counted_best"] = p.counted_best;
  return j.dump();
}

Position parse_position(const std::string& text, const std::string& name) {
  auto j = nlohmann::json::parse(text, nullptr, false);
  Position p;
  try {
    p.update = j.at("update"), p.tokens = j.at("tokens"), p.best_update = j.at("best_update"), p.worse = j.at("worse");
    p.last_lr = j.at("last_lr"), p.norm = j.at("norm"), p.settled = j.at("settled"), p.threads = j.at("threads");
    p.steps = j.at("steps"), p.procedures = j.at("procedures"), p.memory = j.at("memory");
    p.nll = j.at("nll"), p.smoothed = j.at("smoothed"), p.counted = j.at("counted");
    if (j.contains("kept")) p.kept = j.at("kept").get<std::map<int64_t, double>>();
    p.schedule_rule = j.value("schedule_rule", int64_t{1});
    p.best = j.value("best", p.best), p.counted_best = j.value("counted_best", p.best);
  } catch (const nlohmann::json::exception& error) {
    throw Error(Exit::input, Problem{name + ": " + io::kTrainingKey, "where the training stands", error.what(), ""});
  }
  return p;
}

std::string checksum_of(const io::ShardFile& shard) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(shard.content_hash()));
  return text;
}

}  // namespace

Trainer::Trainer(RunConfig config, const std::string& folder, bool resume, at::Device device, Start start)
    : config_(std::move(config)), device_(device) {
  const io::Checkpoint* from = start.checkpoint;
  config_.check();
  open_data();
  if (from != nullptr)
    text::require_vocabularies(train_->header(), config_.data.train, text::tokenizers_of(*from), from->name());
  batches_ = batches_of(config_, *train_, tokenizers_);
  model_ = model::build_language_model(config_.model, model::sizes_of(tokenizers_), device_);
  toml_ = config_.toml();
  end_ = batches_->updates(config_.train.length);
  if (!device_.is_cpu()) batches_ = ahead_of(std::move(batches_), end_, task::pinned);
  lengths_.horizon = config_.train.horizon.count > 0 ? batches_->updates(config_.train.horizon) : end_;
  lengths_.warmup = config_.train.warmup_share > 0 ? warmup_of_share(config_.train, lengths_.horizon)
                                                   : batches_->updates(config_.train.warmup);
  lengths_.period = batches_->updates(config_.train.period);
  if (lengths_.warmup >= end_ && end_ > 0)
    log_warning(str("the run ends after ", with_commas(end_), " updates, within its warm-up of ",
                    with_commas(lengths_.warmup), ": the learning rate does not reach train.lr"));
  optimizer_ = std::make_unique<Optimizer>(model_->parameters(), config_.train, config_.groups);
  config_.groups.check(model_->parameters(), config_.train.optimizer);
  config_.regularisers.start(model_->parameters(), config_.model.attention);
  config_.check_model(*model_);
  validator_ = std::make_unique<Validator>(config_, valid_.get(), tokenizers_);
  if (valid_ != nullptr) validator_->check(*model_);  // damaged, or too long for the model: now, not after an epoch
  const std::string last = folder + "/last.safetensors";
  Position at;
  if (resume && MappedFile::possible(last)) at = parse_position(io::Checkpoint(last).entry(io::kTrainingKey), last);
  for (const auto& entry : config_.procedures.entries()) {
    entry.plugin->plan(plan_of(config_, *batches_, valid_ != nullptr, at));
    entry.plugin->start(*model_);
  }
  turns_ = std::make_unique<Turns>(config_, model_->parameters(), batches_.get());
  turns_->check();

  if (from == nullptr || start.adopts) model_->parameters().initialise(static_cast<uint64_t>(config_.train.seed));
  if (from != nullptr) start.adopts ? adopt(*from) : model::load_parameters(*from, model_->parameters());
  // Behind what compares the model with the one it comes from, in single precision both.
  if (config_.train.precision == "bf16") model_->parameters().set_bf16(true);
  model_->set_path(attention::path_named(config_.train.attention_path));
  if (config_.train.record)
    recorded_ = std::make_unique<RecordedPass>(
        *model_,
        [this](const model::Input& input, const model::Targets& targets, const nn::ForwardContext& step) {
          return pass_of(input, targets, step, nullptr);
        },
        nn::make_device_graph);
  folder_ = std::make_unique<RunFolder>(folder, resume);
  if (resume && folder_->has("last.safetensors")) {
    load_state(io::Checkpoint(last));
  } else {
    if (resume && folder_->has_progress())
      throw Error(Exit::input, Problem{last, "the state that the log says was reached", "no such file",
                                       "bring it back, or start a new run"});
    if (resume) compare(read_text_file(folder_->file("config.toml")), "config.toml");
  }
  if (from != nullptr) {
    from_ = from->name();
    save_state("the start");  // before the configuration: without it a resume would begin with other weights
  }
  // Only now, so that a resume that is refused changes nothing.
  write_file_atomically(folder_->file("config.toml"), toml_);
  folder_->rewind_log(resume ? at_.update : -1, at_.settled);
  if (config_.regularisers.observer() != nullptr) log_info("attention: composed, as a regulariser looks at it");
  else
    for (const std::string& line : model_->describe_paths(true)) log_info("attention: " + line);
}

void Trainer::compare(const std::string& before, const std::string& name) const {
  Config old_config;
  old_config.load_text(before, name);
  complete_stored(old_config);
  const RunConfig old_run = RunConfig::read(old_config);
  std::vector<std::string> fixed{"model.",
                                 "attention.",
                                 "data.vocabulary",
                                 "data.source_vocabulary",
                                 "data.train_tokens",
                                 "data.train_checksum",
                                 "train.seed",
                                 "train.batch_tokens",
                                 "train.groups.",
                                 "train.regularisers.",
                                 "train.procedures.",
                                 "train.precision",
                                 "train.optimizer",
                                 "train.batching",
                                 "train.block",
                                 "train.batch_rows",
                                 "train.alike",
                                 "train.long_block",
                                 "train.long_from",
                                 "mlm.",
                                 "squad.",
                                 "train.only"};
  // A validation set may be added later; the best of one is not the best of another.
  if (!old_run.data.valid_checksum.empty())
    for (const char* key : {"data.valid_checksum", "train.valid_block", "train.valid_memory", "train.validate_by"})
      fixed.emplace_back(key);
  if (old_run.train.validate_by == "bleu") fixed.emplace_back("train.decode.");
  // Resolved anew: a key that has come since has its default in both.
  const std::string was = old_run.toml();
  auto wrong = changes(was, toml_, fixed);
  if (!wrong.empty())
    throw Error(Exit::usage, Problem{name, "the model, data and batches that the run was started with",
                                     join(wrong, "; "), "start a new run for another setting"});
  for (const std::string& change : changes(was, toml_, {"train.", "data."})) log_info("changed: " + change);
  const bool ends = config_.train.schedule == "linear" ||
                    (config_.train.schedule == "cosine" && config_.train.period.count == 0) ||
                    config_.regularisers.follow_share();
  if (ends && config_.train.horizon.count == 0 && old_run.train.length != config_.train.length)
    log_warning("the schedule's horizon moves from " + to_string(old_run.train.length) + " to " +
                to_string(config_.train.length) +
                ": not the run that this length would have given from the start; train.horizon keeps it");
}

Trainer::~Trainer() = default;

void Trainer::adopt(const io::Checkpoint& from) {
  const model::Adoption adoption = model::adoption_of(from, model_->parameters(), from.name());
  model::adopt_parameters(from, model_->parameters());
  for (const auto& [names, what] :
       {std::pair(&adoption.added, " are new, drawn from the seed: "), {&adoption.left_out, " are left out: "}})
    if (!names->empty())
      log_info(str(names->size(), names->size() == 1 ? " tensor" : " tensors", what, join(*names, ", ")));
  if (adoption.added.empty()) return;
  const Only only(config_.train.only, model_->parameters());
  std::vector<std::string> still;
  for (const std::string& name : adoption.added)
    if (const nn::Parameter* p = model_->parameters().find(name); p->traits().trainable && !only(*p))
      still.push_back(name);
  if (!still.empty())
    log_warning(str("new, and by train.only not trained, so as drawn to the end: ", join(still, ", "),
                    model::is_of_head(still.back()) ? "; --train-only takes the word head too" : ""));
  const double change = model::change_by_adoption(from, *model_);
  if (change == 0) log_info("what is new changes no hidden state yet");
  else
    log_warning(str("what is new changes hidden states from the start, on a few random tokens by up to ", change,
                    ": the run does not begin where ", from.name(), " ended"));
}

void require_tokens(int64_t tokens, const std::string& shard) {
  if (tokens == 0)
    throw Error(Exit::input, Problem{shard, "a token to train on, or more", "0 tokens",
                                     "make the shard of a text that is not empty"});
}

void Trainer::open_data() {
  DataOptions& d = config_.data;
  if (d.train.empty())
    throw Error(Exit::usage, Problem{"--train", "a shard to train on", "none", "make one with mh-prep lm"});
  train_ = std::make_unique<io::ShardFile>(d.train);
  const char* kind = task::kind_for(config_.model.model);
  io::require_kind(train_->header(), d.train, kind);
  tokenizers_ = text::tokenizers_of(train_->header(), d.train);
  require_tokens(static_cast<int64_t>(train_->counts().tokens), d.train);
  // So that a checkpoint says what its classes are.
  if (model::ModelOptions& m = config_.model.model; m.head == model::HeadTask::classes && m.labels.empty()) {
    const std::vector<std::string> labels = text::task_of(train_->header(), d.train).labels;
    if (static_cast<int64_t>(labels.size()) == m.classes) m.labels = labels;
  }
  if (!d.valid.empty()) {
    valid_ = std::make_unique<io::ShardFile>(d.valid);
    io::require_kind(valid_->header(), d.valid, kind);
    text::require_vocabularies(valid_->header(), d.valid, tokenizers_, d.train);
    d.valid_tokens = static_cast<int64_t>(valid_->counts().tokens);
    if (d.valid_tokens == 0) throw Error(Exit::input, Problem{d.valid, "tokens to validate on", "none", ""});
  }
  d.vocabulary = train_->header().fingerprint;
  d.source_vocabulary = train_->header().source_fingerprint;
  d.train_tokens = static_cast<int64_t>(train_->counts().tokens);
  d.train_checksum = checksum_of(*train_);
  d.valid_checksum = valid_ != nullptr ? checksum_of(*valid_) : "";
  // A resume may be called from another folder.
  for (std::string* path : {&d.train, &d.valid})
    if (!path->empty()) {
      *path = std::filesystem::absolute(*path).lexically_normal().string();
      if (find_invalid_utf8(*path) != std::string::npos)
        throw Error(Exit::usage, Problem{*path, "a path in UTF-8, which the run's configuration can hold",
                                         "other bytes in the name of a folder", "rename it, or use a link to it"});
    }
}

bool Trainer::stopped_early() const { return config_.train.patience > 0 && at_.worse >= config_.train.patience; }

bool Trainer::due(const Length& every) const {
  if (at_.update == end_) return true;
  return every.count > 0 && at_.update % std::max<int64_t>(1, batches_->updates(every)) == 0;
}

Standing Trainer::standing() const {
  return {at_.update, at_.update / batches_->updates_per_epoch(), lengths_.horizon};
}

Plan plan_of(const RunConfig& run, const Batches& batches, bool validates, const Position& at) {
  Plan plan;
  plan.seed = static_cast<uint64_t>(run.train.seed);
  plan.end = batches.updates(run.train.length);
  plan.updates = [&batches](const Length& length) { return batches.updates(length); };
  plan.validates = validates;
  plan.has_best = std::isfinite(at.best);
  if (validates) {
    const Length& every = run.train.validate_every;
    const int64_t gap = std::max<int64_t>(1, batches.updates(every));
    const int64_t settled = at.settled ? at.update : at.update - 1;
    plan.next_validation = every.count > 0 ? std::min(plan.end, (settled / gap + 1) * gap) : plan.end;
    plan.validates_epochs = every.count > 0 && batches.updates_per_epoch() % gap == 0;
  }
  for (const auto& entry : run.procedures.entries())
    plan.weights_move = plan.weights_move || entry.plugin->moves_weights();
  plan.optimizer = [&run](const std::string& parameter) {
    const GroupOptions* group = run.groups.of(parameter);
    return group != nullptr && !group->optimizer.empty() ? group->optimizer : run.train.optimizer;
  };
  return plan;
}

nn::SlicedLoss Trainer::pass_of(const model::Input& input, const model::Targets& targets,
                                const nn::ForwardContext& step, model::Memories* memory) {
  attention::Observer* observer = config_.regularisers.observer();
  if (observer != nullptr) observer->begin(input.lengths);
  const at::Tensor hidden = model_->hidden(input, step, memory, observer);
  const nn::SlicedLoss loss = model_->loss(hidden, targets, config_.train.label_smoothing, step);
  // Terms are per token, as the loss will be once it is divided by the tokens of the update.
  const at::Tensor term = config_.regularisers.loss(standing());
  const at::Tensor total = term.defined()
                               ? loss.smoothed + term.to(loss.smoothed.device()) * static_cast<double>(loss.scored)
                               : loss.smoothed;
  // What trains may have no part in these rows: a band that none of their tokens is in.
  if (total.requires_grad()) total.backward();
  model_->parameters().collect_gradients();
  return loss;
}

Trainer::Sums Trainer::forward_backward(const Pass& pass, std::vector<model::Memories>& memories) {
  const std::vector<Batches::Part> parts = batches_->parts(at_.update);
  Sums sums;
  at::Tensor losses = at::zeros({2}, at::TensorOptions(device_).dtype(at::kDouble));  // nll and smoothed
  for (size_t part = 0; part < parts.size(); ++part) {
    const task::Batch batch = batches_->load(at_.update, parts[part]);
    nn::ForwardContext step{true, static_cast<uint64_t>(config_.train.seed), static_cast<uint32_t>(at_.update),
                            parts[part].first, &pass.requests};
    if (!pass.skipped.empty()) step.skipped = &pass.skipped;
    if (model_->memory() > 0 && part == memories.size())
      memories.push_back(std::move(*model_->new_memory(model_->memory())));
    const bool repeats = recorded_ != nullptr && pass.requests.empty() && pass.skipped.empty();
    const nn::SlicedLoss loss =
        repeats ? (*recorded_)(batch, step)
                : pass_of(batch.input.to(device_), batch.wanted(), step, memories.empty() ? nullptr : &memories[part]);
    losses.add_(at::stack({loss.nll, loss.smoothed.detach().to(at::kDouble)}));
    sums.tokens += loss.scored;
  }
  losses = losses.to(at::kCPU);  // the one place of these passes that waits for a GPU
  sums.nll = losses[0].item<double>(), sums.smoothed = losses[1].item<double>();
  return sums;
}

Validation Trainer::validate(attention::Observer* observer) {
  const double began = now();
  const Validation result = validator_->run(*model_, observer);
  validation_seconds_ += now() - began;
  return result;
}

Validation Trainer::validate_best() {
  const std::string best = folder_->file(folder_->has("best.safetensors") ? "best.safetensors" : "last.safetensors");
  model::load_parameters(io::Checkpoint(best), model_->parameters());
  return validate(nullptr);
}

// Speed over wall time, saving and logging included, validation apart.
void Trainer::write_log() {
  if (at_.counted == 0) return;
  const double nll = at_.nll / static_cast<double>(at_.counted);
  const double seconds = now() - logged_at_ - validation_seconds_;
  ordered_json line{{"update", at_.update},
                    {"epoch", static_cast<double>(at_.update) / static_cast<double>(batches_->updates_per_epoch())},
                    {"tokens", at_.tokens},
                    {"loss", at_.smoothed / static_cast<double>(at_.counted)},
                    {"nll", nll}};
  // Of examples the loss may be that of numbers, or of two things together.
  if (model::reads_of(config_.model.model) != model::Reads::examples) line["perplexity"] = std::exp(nll);
  line.update({{"lr", optimizer_->last_lr},
               {"gradient_norm", at_.norm},
               {"tokens_per_second", static_cast<double>(timed_tokens_) / std::max(seconds, 1e-9)},
               {"seconds", seconds},
               {"validation_seconds", validation_seconds_}});
  folder_->log(line);
  at_.nll = at_.smoothed = 0;
  at_.counted = timed_tokens_ = 0;
  logged_at_ = now();
  validation_seconds_ = 0;
}

void Trainer::write(const std::string& path, const model::Views& tensors, io::Metadata more) const {
  more.insert({{io::kFormatKey, "1"}, {io::kConfigKey, toml_}});
  more.merge(text::entries_of(tokenizers_));
  auto sink = open_sink(path);
  io::write_checkpoint(*sink, tensors.all(), std::move(more));
  sink->close();
}

void Trainer::save_weights(const std::string& path) {
  model::Views views;
  views.add(model_->parameters());
  write(path, views);
}

void Trainer::save_state(const std::string& reason, const char* name) {
  at_.last_lr = optimizer_->last_lr;
  at_.threads = at::get_num_threads();
  at_.steps = optimizer_->steps();
  at_.memory = !memories_.empty();
  for (const auto& entry : config_.procedures.entries()) at_.procedures[entry.name] = entry.plugin->state();
  model::Views views;
  views.add(model_->parameters());
  for (const auto& [label, tensor] : optimizer_->state()) views.add(label, tensor);
  for (const auto& [label, tensor] : model::memory_tensors(memories_)) views.add(label, tensor);
  write(folder_->file(name), views, {{io::kTrainingKey, position_json(at_)}});
  log_detail(str("saved at update ", at_.update, ": ", reason));
}

void Trainer::load_state(const io::Checkpoint& checkpoint) {
  compare(checkpoint.entry(io::kConfigKey), checkpoint.name());
  model::load_parameters(checkpoint, model_->parameters());
  for (auto& [name, tensor] : optimizer_->state()) model::load_tensor(checkpoint, name, tensor);
  at_ = parse_position(checkpoint.entry(io::kTrainingKey), checkpoint.name());
  optimizer_->last_lr = at_.last_lr;
  optimizer_->set_steps(at_.steps);
  if (at_.memory && model_->memory() == 0)
    throw Error(Exit::input, Problem{checkpoint.name(), "no memory, as the model keeps none", "one", ""});
  if (at_.memory)
    memories_ = model::load_memories(checkpoint, *model_->new_memory(model_->memory()), batches_->rows_per_update(),
                                     batches_->rows_per_part(), config_.model.model.width, device_);
  for (const auto& entry : config_.procedures.entries())
    if (auto it = at_.procedures.find(entry.name); it != at_.procedures.end()) entry.plugin->set_state(it->second);
  text::require_vocabularies(train_->header(), train_->name(), text::tokenizers_of(checkpoint), checkpoint.name());
  if (at_.update > end_)
    throw Error(Exit::usage, Problem{"train.length", str("at least ", at_.update, "u, where the run stands"),
                                     to_string(config_.train.length), ""});
  if (at_.schedule_rule != kScheduleRule) {
    if (at_.update > 0 && at_.update < end_ && (config_.train.schedule != "constant" || at_.update < lengths_.warmup))
      log_warning(
          str("the run began with an earlier version, whose update n took the learning rate at n completed updates; "
              "from update ",
              with_commas(at_.update + 1), " on it takes the rate at n - 1, as LEARNING RATES in mh-train(1) has it"));
    at_.schedule_rule = kScheduleRule;
  }
  if (at_.update < end_) log_info(str("resumes at update ", with_commas(at_.update), " of ", with_commas(end_)));
  if (at_.threads != at::get_num_threads())
    log_warning(str("runs with ", at::get_num_threads(), " threads, after ", at_.threads,
                    ": sums are rounded in another order, so that the weights differ in their last digits"));
}

bool Trainer::keep_best(const Validation& result) {
  at_.kept[at_.update] = validator_->judged(result);
  while (static_cast<int64_t>(at_.kept.size()) > config_.train.keep) {
    auto worst = at_.kept.begin();  // of equal ones the newest, as the best is the oldest of those
    for (auto it = at_.kept.begin(); it != at_.kept.end(); ++it)
      if (!(it->second < worst->second)) worst = it;
    at_.kept.erase(worst);
  }
  const bool kept = at_.kept.count(at_.update) > 0;
  if (kept) save_weights(folder_->checkpoint(at_.update));
  return kept;
}

bool Trainer::judge(const Validation& result) {
  const double value = validator_->judged(result);
  const bool better = value < at_.best;
  if (better) at_.best = value, at_.best_update = at_.update;
  // Small steps add up: each is measured from the last that counted.
  const double least = config_.train.min_improvement;
  const double improved = validator_->improvement(at_.counted_best, value);
  if (better && (least == 0 || !(improved < least))) {
    at_.counted_best = value;
    at_.worse = 0;
  } else {
    ++at_.worse;
  }
  ordered_json line{{"update", at_.update}};
  line.update(validator_->line(result));
  line["best"] = better;
  folder_->log(line);
  last_validation_ = validator_->brief(result);
  log_info(str("update ", with_commas(at_.update), ": ", validator_->text(result), better ? ", the best so far" : ""));
  if (better) save_weights(folder_->file("best.safetensors"));
  return better;
}

bool Trainer::begin_phase() {
  bool returns = false;
  for (const auto& entry : config_.procedures.entries())
    returns = entry.plugin->returns_to_best(standing(), stopped_early()) || returns;
  if (returns) return_to_best();
  return returns;
}

void Trainer::return_to_best() {
  const std::string best = folder_->file("best.safetensors");
  if (!std::isfinite(at_.best))
    throw Error(Exit::failed, Problem{best, "the best weights so far, to go on from", "no validation was finite", ""});
  model::load_parameters(io::Checkpoint(best), model_->parameters());
  optimizer_->reset();
  memories_.clear();
  at_.counted_best = at_.best;
  at_.worse = 0;
  folder_->log({{"update", at_.update}, {"returned_to", at_.best_update}});
  log_info(str("update ", with_commas(at_.update), ": goes on from the best weights, of update ",
               with_commas(at_.best_update)));
}

// In an order that a kill between any two steps cannot spoil: the state is saved last, so what it says is done is done.
bool Trainer::settle() {
  const bool validates = valid_ != nullptr && due(config_.train.validate_every);
  const bool ends_epoch = at_.update % batches_->updates_per_epoch() == 0;
  std::vector<attention::Observer*> looking;
  if (ends_epoch)
    for (const auto& entry : config_.procedures.entries())
      if (auto* observer = entry.plugin->observer(standing())) looking.push_back(observer);
  analysis::Observers observers(looking);
  const Validation result =
      validates && stop_signal() == 0 ? validate(looking.empty() ? nullptr : &observers) : Validation{};
  at_.settled = stop_signal() == 0;
  if (!at_.settled) {
    save_state("the run stops");
    return false;
  }
  const bool better = validates && judge(result);
  if (ends_epoch)
    for (const auto& entry : config_.procedures.entries()) entry.plugin->after_epoch(*model_, standing());
  if (due(config_.train.log_every) || stopped_early()) write_log();
  const bool returns = begin_phase();
  const bool at_save = due(config_.train.save_every);
  const bool by_best = config_.train.keep_by == "best";
  const bool kept = by_best && validates && keep_best(result);
  if (!by_best && at_save && config_.train.keep > 0) {
    save_weights(folder_->checkpoint(at_.update));
    folder_->prune_checkpoints(config_.train.keep);
  }
  // The best weights that training has returned to may soon be overwritten by better ones; and a resume, which may go
  // another way (with another rate), must know of the weights in best.safetensors.
  if (at_save || better || kept || stopped_early() || returns)
    save_state(at_save ? "it is due" : returns ? "a new phase" : better || kept ? "a good model" : "the run stops");
  if (kept) folder_->keep_checkpoints(at_.kept);  // only now: a state knows of those that are there
  return true;
}

Trainer::Sums Trainer::step(const Pass& pass, double lr, std::vector<model::Memories>& memories,
                            const std::string& state) {
  turns_->choose(pass, standing());
  const Sums sums = forward_backward(pass, memories);
  const double scale = 1 / static_cast<double>(std::max<int64_t>(1, sums.tokens));
  const double norm = optimizer_->gradient_norm(scale);
  if (!std::isfinite(sums.smoothed) || !std::isfinite(norm)) {
    model_->parameters().zero_gradients();
    // Apart from last.safetensors, since the weights may be spoilt already.
    save_state("the loss is not finite", "diverged.safetensors");
    throw Error(Exit::failed,
                Problem{str("update ", at_.update + 1, ", ", batches_->place(at_.update)), "a finite loss and gradient",
                        str("loss ", sums.smoothed * scale, ", gradient norm ", norm),
                        str(state,
                            " is in diverged.safetensors; --resume goes on from last.safetensors, with a lower "
                            "train.lr or with train.clip")});
  }
  const double clip = config_.train.clip > 0 && norm > config_.train.clip ? config_.train.clip / (norm + 1e-6) : 1;
  optimizer_->step(lr, scale * clip);
  model_->parameters().zero_gradients();
  at_.norm = norm;
  return sums;
}

void Trainer::begin_epoch() {
  for (const auto& entry : config_.procedures.entries())
    if (const std::string did = entry.plugin->before_epoch({*model_, *optimizer_}, standing()); !did.empty())
      folder_->log({{"update", at_.update + 1}, {entry.name, ordered_json::parse(did)}});
}

void Trainer::update() {
  if (at_.update % batches_->updates_per_epoch() == 0) begin_epoch();
  const double began = now(), lr = learning_rate(config_.train, lengths_, at_.update);
  const double lr_before = optimizer_->last_lr;
  Sums sums;  // of the last pass
  // Every pass starts from the same memory; it moves on with the last.
  std::vector<model::Memories> memories;
  const std::vector<Pass> passes = turns_->passes(standing());
  for (size_t i = 0; i < passes.size(); ++i) {
    optimizer_->last_lr = lr_before;  // each pass follows the update before, not the pass before
    sums = step(passes[i], lr, memories = memories_,
                i == 0 ? "the state before this update" : str("the state after pass ", i, " of this update"));
  }
  ++at_.update;
  if (!batches_->goes_on(at_.update)) memories.clear();
  memories_ = std::move(memories);
  at_.tokens += sums.tokens;
  at_.nll += sums.nll;
  at_.smoothed += sums.smoothed;
  at_.counted += sums.tokens;
  timed_tokens_ += sums.tokens;
  const double speed = static_cast<double>(sums.tokens) / (now() - began);
  note_ = str("loss ", rounded(sums.smoothed / static_cast<double>(std::max<int64_t>(1, sums.tokens)), 3), "  ",
              with_commas(static_cast<int64_t>(speed)), " tok/s  ", last_validation_);
}

int Trainer::run() {
  catch_stop_signals();
  // The run may have been given a patience that is spent.
  if (at_.settled && at_.update < end_ && stopped_early() && begin_phase()) save_state("a new phase");
  if (finished() && at_.settled) {
    log_info(str("the run is finished: ", with_commas(at_.update), " of ", with_commas(end_), " updates",
                 at_.update < end_ ? ", stopped early; train.patience=0 goes on" : "; train.length=… makes it longer"));
    return 0;
  }
  ordered_json started{{"started", str(log_name(), " ", version())},
                       {"update", at_.update},
                       {"threads", at::get_num_threads()},
                       {"parameters", model_->parameters().count()},
                       {"updates_per_epoch", batches_->updates_per_epoch()},
                       {"configuration", toml_}};
  if (!from_.empty()) started["from"] = from_;
  folder_->log(started);
  if (!from_.empty()) log_info("begins with the weights of " + from_);
  if (const int64_t trained = turns_->trained(); trained < model_->parameters().count())
    log_info(str(with_commas(trained), " parameters train, the others stay as they are"));
  if (at_.update == 0 && end_ > 0 && config_.train.lr > 0 && learning_rate(config_.train, lengths_, 0) == 0)
    log_info("the first update has learning rate 0, where the warm-up starts (train.warmup_lr): it changes no weights");
  if (const TrainOptions& t = config_.train; t.long_block > 0 && config_.model.model.head == model::HeadTask::words)
    log_info(str("from update ", with_commas(batches_->updates(t.long_from) + 1), " on rows have ", t.long_block,
                 " tokens, of which at most ", config_.long_predictions(), " are predicted"));
  if (recorded_ != nullptr)
    log_info(
        "updates that repeat one another launch one recorded graph; passes that draw experts or skip layers do not");
  if (turns_->leaves_out()) log_info("passes of an update that would train nothing of train.only are left out");
  log_info(str(with_commas(model_->parameters().count()), " parameters, ", with_commas(end_), " updates of ",
               with_commas(batches_->tokens_per_update()), " tokens"));
  // A full disk shows now, and a run without a state is one that has done nothing.
  if (!folder_->has("last.safetensors")) save_state("the start");
  Progress progress("train", end_, "updates");
  progress.set_start(at_.update);
  logged_at_ = now();
  bool goes_on = at_.settled || settle();
  while (goes_on && !finished()) {
    update();
    progress.update(at_.update, note_);
    goes_on = settle();
  }
  if (goes_on) {
    if (at_.update < end_) log_info(str("no better validation in ", at_.worse, " tries: stops"));
    return 0;
  }
  log_info(str("stopped by signal ", stop_signal(), " after update ", with_commas(at_.update),
               "; mh-train --resume goes on"));
  return 128 + stop_signal();
}

}  // namespace mh::train
