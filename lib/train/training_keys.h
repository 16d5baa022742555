// What each key of a training state (the checkpoint entry `multihead.training`) means: for `mh-train --list training`
// and mhc(5). The command-line case checkpoint_page compares the names with those of real training states.
#pragma once

#include <array>

namespace mh::train {

struct TrainingKey {
  const char* name;
  const char* meaning;
};

inline constexpr std::array kTrainingKeys{
    TrainingKey{"update", "Updates done."},
    TrainingKey{"tokens", "Targets trained on."},
    TrainingKey{"best_update", "Update of the best validation; 0 before the first."},
    TrainingKey{"worse", "Validations since the last one that reset train.patience."},
    TrainingKey{"last_lr", "Learning rate of the last update."},
    TrainingKey{"norm", "Gradient norm of the last update, before clipping."},
    TrainingKey{"settled",
                "Whether the validation, log line and saves due after the last update are done; if not, a "
                "resume does them first."},
    TrainingKey{"threads", "CPU threads of the run that saved the state."},
    TrainingKey{"nll", "Sum of negative log-likelihoods since the last line of the log, nats."},
    TrainingKey{"smoothed", "The same sum of the training loss, label smoothing included."},
    TrainingKey{"counted", "Targets in these two sums."},
    TrainingKey{"steps", "Optimiser steps by parameter name."},
    TrainingKey{"procedures", "State of each procedure by name, as JSON text."},
    TrainingKey{"memory", "Whether the file holds the tensors memory.*."},
    TrainingKey{"kept", "Update and score of each model that train.checkpoint.retain_by = \"best\" has saved."},
    TrainingKey{"schedule_rule",
                "2: update n takes the learning rate at n - 1 completed updates; 1, also if absent: "
                "at n."},
    TrainingKey{"best",
                "Score of the best validation, lower is better: loss in nats, or minus BLEU or a task's score. "
                "Absent before the first."},
    TrainingKey{"counted_best",
                "Score from which train.validation.min_improvement is measured. Absent before the first "
                "validation."},
};

}  // namespace mh::train
