// Learning rates by update. Updates count from 1: rate(n) is used for the n-th.
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

// warm-up: warmup_lr + n (lr - warmup_lr) / W for n < W. Then
//   constant       lr
//   inverse-sqrt   lr √W / √n                              (fairseq; without a warm-up, W = 1)
//   cosine         min + (max - min)(1 + cos(π t / T)) / 2 within cycle i of T = period·growth^i updates, both ends
//                  multiplied by shrink^i                   (fairseq; Baevski & Auli 2019)
//   linear         lr (H - n) / (H - W), 0 from H on       (BERT)
//   cyclic-cosine  ½ lr (1 + cos(π n / T)): period 2T, no restart; the warm-up rises linearly from 0 and ends at n = T
//                  (Skip Cross-Head Transformer-XL, released code)
double learning_rate(const TrainOptions& options, const ScheduleLengths& lengths, int64_t n);

}  // namespace mh::train
