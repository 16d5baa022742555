// Learning-rate schedules. Update n (from 1) takes the learning rate at n - 1 completed updates, as in fairseq and
// transformers; the first update thus takes the learning rate at 0 completed updates.
#pragma once

#include <functional>

#include "train/options.h"

namespace mh::train {

// Lengths of a learning-rate schedule, in updates.
struct ScheduleLengths {
  int64_t warmup = 0;          // 0: no warm-up
  int64_t total_updates = 0;   // length of the schedule, warm-up included
  int64_t period = 0;          // train.schedule.period: first cycle of cosine, half a cycle of cyclic-cosine; 0: none
  int64_t restart = 0;         // completed updates at which the schedule starts again; 0: never
  int64_t restart_warmup = 0;  // warm-up after `restart`
};

// Returns the length in updates of a warm-up given by train.schedule.warmup_ratio. `total_updates`: length of the
// schedule in updates. Rounds down if decay_from is "start", as BERT does, and up otherwise, as transformers does.
int64_t warmup_from_ratio(const TrainOptions& options, int64_t total_updates);

// Returns the lengths of the schedule of a run of `end` updates. `to_updates`: converts a length of training to
// updates; 0 for a length that is unknown without data. Throws Error(usage) unless the schedule starts again before its
// end and after its first warm-up.
ScheduleLengths schedule_lengths(const TrainOptions& options, int64_t end,
                                 const std::function<int64_t(const Length&)>& to_updates);

// Returns the learning rate at c = `num_completed` updates. lr: train.lr; W, H, T: lengths of the warm-up, of the
// schedule and of its period.
//
// Warm-up, c < W: warmup_lr + c (lr - warmup_lr) / W. From c = W on:
//   constant       lr
//   inverse-sqrt   lr √max(1, W) / √max(1, c)                                       fairseq
//   linear         lr (H - c) / (H - W), 0 from H on                                 transformers
//                  lr (H - c) / H         where decay_from is "start"                BERT (google-research)
//   cosine         min_lr + (lr - min_lr)(1 + cos(π t / P)) / 2                      fairseq, transformers
//                  P = H - W, t = min(c - W, P)
//                  P = H, t = min(c, P)   where decay_from is "start"                Transformer-XL
//                  where T > 0, cycles from c = W on; in cycle i (from 0), P = T·period_growth^i, t counts from the
//                  start of the cycle, and lr and min_lr are multiplied by period_shrink^i
//                                                                                    fairseq (Baevski & Auli 2019)
//   cyclic-cosine  lr (1 + cos(π c / T)) / 2: period 2T, without a jump              Skip Cross-Head Transformer-XL
//
// With a restart at R updates (train.schedule.restart), the first schedule has H = R, and from c = R on the rate is
// that of a schedule of H - R updates with a warm-up of W' updates (train.schedule.restart_warmup) at c - R. Source:
// the two phases of pre-training of BERT, which are two runs of its program.
//
// The two schedules of the published program of Transformer-XL, cosine with decay_from "start" and cyclic-cosine, give
// lr to the first update (c = 0) although there is a warm-up: that program sets the learning rate after each update,
// and its optimiser starts at lr.
double learning_rate(const TrainOptions& options, const ScheduleLengths& lengths, int64_t num_completed);

}  // namespace mh::train
