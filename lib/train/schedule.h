// Learning-rate schedules. An update takes the rate of the number of updates completed before it, as the published
// programs do: the first update takes the rate at 0 completed updates, and update n the rate at n - 1.
#pragma once

#include <functional>

#include "train/options.h"

namespace mh::train {

// Lengths in updates.
struct ScheduleLengths {
  int64_t warmup = 0;
  int64_t horizon = 0;
  int64_t period = 0;
};

// Returns the updates of a warm-up that is a ratio of the schedule's length: rounded down if decay counts from the
// start, as BERT does, and up otherwise, as transformers does.
int64_t warmup_of_share(const TrainOptions& options, int64_t horizon);

// Returns the lengths of a run of `end` updates. `updates`: converts a length to updates.
ScheduleLengths schedule_lengths(const TrainOptions& options, int64_t end,
                                 const std::function<int64_t(const Length&)>& updates);

// Returns the learning rate at c = `completed` updates; lr is train.lr, W the warm-up, H the horizon, T the period.
//
// Warm-up, c < W: warmup_lr + c (lr - warmup_lr) / W. From c = W on:
//   constant       lr
//   inverse-sqrt   lr √max(1, W) / √max(1, c)                                       fairseq
//   linear         lr (H - c) / (H - W), 0 from H on                                 transformers
//                  lr (H - c) / H         where decay_from is "start"                BERT (google-research)
//   cosine         min_lr + (lr - min_lr)(1 + cos(π t / P)) / 2                      fairseq, transformers
//                  t = c - W, P = H - W; at most P
//                  t = c, P = H           where decay_from is "start"                Transformer-XL
//                  with T > 0, cycle i of P = T·period_growth^i updates, lr and min_lr multiplied by period_shrink^i
//                                                                                    fairseq (Baevski & Auli 2019)
//   cyclic-cosine  lr (1 + cos(π c / T)) / 2: period 2T, no restart                  Skip Cross-Head Transformer-XL
//
// The two schedules of Transformer-XL's program, cosine from the start and cyclic-cosine, give the first update (c = 0)
// the full rate although there is a warm-up: the program sets the rate after each update, and its optimizer starts at
// lr.
double learning_rate(const TrainOptions& options, const ScheduleLengths& lengths, int64_t completed);

}  // namespace mh::train
