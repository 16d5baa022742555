// The training loop. Everything that a run becomes follows from its configuration and the number of the update, so a
// run that was killed and resumed has the weights, bit for bit, of one that was not (same number of threads).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "io/checkpoint.h"
#include "io/shard.h"
#include "model/load.h"
#include "model/memories.h"
#include "text/tokenizers.h"
#include "train/batches.h"
#include "train/optimizer.h"
#include "train/recorded_pass.h"
#include "train/run_batches.h"
#include "train/run_config.h"
#include "train/run_folder.h"
#include "train/schedule.h"
#include "train/turns.h"
#include "train/validation.h"

namespace mh::train {

constexpr int64_t kScheduleRule = 2;

// Where a run stands; saved with the weights and moments.
struct Position {
  int64_t update = 0;      // updates done
  int64_t tokens = 0;      // targets trained on
  double best = INFINITY;  // lowest validation loss, nats per token; or minus the highest BLEU (train.validate_by)
  int64_t best_update = 0;
  double counted_best = INFINITY;  // what train.min_improvement is measured from
  int64_t worse = 0;               // validations since then
  std::map<int64_t, double>
      kept;  // models of the best validations (train.keep_by): update, and what they were judged by
  // 2: update n takes the learning rate at n - 1 completed updates. 1, of states saved before that rule: at n.
  int64_t schedule_rule = kScheduleRule;
  double last_lr = 0;
  double norm = 0;  // of the last update's gradient
  // The work that follows an update (validation, log, saving) is done. A run that a signal stops leaves it to the
  // resumed one, so that no validation is ever left out.
  bool settled = true;
  int64_t threads = 0;                            // of the run that saved this
  std::map<std::string, int64_t> steps;           // of the optimiser, by parameter
  std::map<std::string, std::string> procedures;  // their states, by name
  bool memory = false;                            // tensors of a memory come with it
  // Sums since the last line of the log.
  double nll = 0;
  double smoothed = 0;
  int64_t counted = 0;
};

// What procedures are told of a run; valid as long as both. `validates`: there is a validation set. `at`: where it goes
// on.
Plan plan_of(const RunConfig& run, const Batches& batches, bool validates, const Position& at = {});

// Error(input) where a shard has nothing to train on.
void require_tokens(int64_t tokens, const std::string& shard);

// What a new run begins with: a checkpoint's weights, of the same vocabulary, and nothing else of it. Parameters are
// the same, unless it `adopts` them (model/adopt.h).
struct Start {
  const io::Checkpoint* checkpoint = nullptr;  // null: first values from the seed
  bool adopts = false;
};

class Trainer {
 public:
  // The data, the tokenizer in them and the folder are checked before anything is built. `resume`: continue from
  // last.safetensors, or from the start where there is none yet.
  Trainer(RunConfig config, const std::string& folder, bool resume, at::Device device = at::kCPU, Start start = {});
  ~Trainer();

  // Trains to the end, or until a signal asks to stop (after saving). Returns the exit status: 0, or 128 + the signal.
  // Throws Error(failed), after saving, where a loss or gradient is not finite.
  int run();

  // Of the best model of the run so far, or of the last one where nothing was validated; its weights stay in place.
  // Only with a validation set.
  bool validates() const { return validator_->exists(); }
  Validation validate_best();
  int64_t best_update() const { return at_.best_update; }

 private:
  struct Sums {
    double nll = 0, smoothed = 0;
    int64_t tokens = 0;
  };
  // `memories`: of each micro-batch; brought up to date.
  Sums forward_backward(const Pass& pass, std::vector<model::Memories>& memories);
  // Losses of rows on the device; their gradients are added to those of the parameters. `memory` may be null.
  nn::SlicedLoss pass_of(const model::Input& input, const model::Targets& targets, const nn::ForwardContext& step,
                         model::Memories* memory);
  Standing standing() const;
  Validation validate(attention::Observer* observer);
  // Takes over a checkpoint's parameters; says what is new, what is left out, and whether anything changes by it.
  void adopt(const io::Checkpoint& checkpoint);
  void begin_epoch();  // what procedures do before it
  // The passes of one update, a step of the optimiser each. Throws where loss or gradient are not finite.
  void update();
  // `state`: what it starts from, in words.
  Sums step(const Pass& pass, double lr, std::vector<model::Memories>& memories, const std::string& state);
  // What follows an update. False where a signal asks for a stop; the state is saved then.
  bool settle();
  bool judge(const Validation& result);      // whether it is the best
  bool keep_best(const Validation& result);  // saves the model among those kept, if it is one of them
  // Whether a procedure goes on from the best weights now; done then.
  bool begin_phase();
  void return_to_best();  // weights of best.safetensors, a fresh optimiser, an empty memory
  void write_log();
  void save_state(const std::string& reason, const char* name = "last.safetensors");
  void save_weights(const std::string& path);
  void write(const std::string& path, const model::Views& tensors, io::Metadata more = {}) const;
  bool due(const Length& every) const;
  bool stopped_early() const;
  bool finished() const { return at_.update >= end_ || stopped_early(); }
  void load_state(const io::Checkpoint& checkpoint);
  // Refuses a resume that changes what the run is, and names what else is changed. Error(usage).
  void compare(const std::string& old_toml, const std::string& name) const;
  void open_data();

  RunConfig config_;
  at::Device device_;
  std::string toml_, from_;
  std::unique_ptr<RunFolder> folder_;
  std::unique_ptr<io::ShardFile> train_, valid_;
  text::Tokenizers tokenizers_;
  std::unique_ptr<Validator> validator_;
  std::unique_ptr<model::LanguageModel> model_;
  std::unique_ptr<Batches> batches_;
  std::unique_ptr<Optimizer> optimizer_;
  ScheduleLengths lengths_;
  int64_t end_ = 0;  // updates in the run
  std::unique_ptr<Turns> turns_;
  std::unique_ptr<RecordedPass> recorded_;  // null: nothing is recorded
  // What the rows of the next update have behind them, by micro-batch; empty at the start of an epoch, and always
  // where the model has no memory.
  std::vector<model::Memories> memories_;
  Position at_;
  // Since the last line of the log, or the start of the program: when that was, seconds of validation, targets.
  double logged_at_ = 0, validation_seconds_ = 0;
  int64_t timed_tokens_ = 0;
  std::string note_, last_validation_;  // for the progress bar
};

}  // namespace mh::train
