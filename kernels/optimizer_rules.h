// Optimiser steps of one parameter element, for the loops on CPUs and GPUs. lib/train/optimizer.h has the formulas.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace mh::kernels {

struct AdamPlan {
  float lr, beta1, beta2, epsilon;
  // 1 - beta1^t and 1 - beta2^t in update t = 1, 2, …; both 1 without bias correction
  float bias_correction1, bias_correction2;
  float decay;  // lr * weight decay: p -= decay * p before the step
  float scale;  // factor of g: 1 / number of targets of the update, times the factor of gradient clipping
};

// Applies Adam with decoupled weight decay (AdamW). step_size: lr / bias_correction1.
MH_HOST_DEVICE void adam_element(const AdamPlan& plan, float step_size, float bias_correction2_sqrt, float& p, float g,
                                 float& m, float& v) {
  const float gradient = plan.scale * g;
  m = plan.beta1 * m + (1 - plan.beta1) * gradient;
  v = plan.beta2 * v + (1 - plan.beta2) * gradient * gradient;
  p = p - plan.decay * p - step_size * m / (std::sqrt(v) / bias_correction2_sqrt + plan.epsilon);
}

struct MomentumPlan {
  float lr, momentum;
  float decay;  // weight decay, added to the gradient
  float scale;  // factor of g: 1 / number of targets of the update, times the factor of gradient clipping
};

// Applies SGD with momentum, as torch.optim.SGD with dampening 0.
MH_HOST_DEVICE void sgd_element(const MomentumPlan& plan, float& p, float g, float& buffer) {
  buffer = plan.momentum * buffer + plan.scale * g + plan.decay * p;
  p -= plan.lr * buffer;
}

struct NagPlan {
  float lr, momentum;
  float lr_ratio;  // lr / lr of the previous update; 1 in the first update
  float decay;     // lr * weight decay
  float scale;     // factor of g: 1 / number of targets of the update, times the factor of gradient clipping
};

// Applies Nesterov's accelerated gradient with decoupled weight decay, as fairseq's optimiser nag.
MH_HOST_DEVICE void nag_element(const NagPlan& plan, float& p, float g, float& buffer) {
  const float m = plan.momentum, gradient = plan.scale * g;
  p = p * (1 - plan.decay) + m * m * plan.lr_ratio * buffer - (1 + m) * plan.lr * gradient;
  buffer = m * plan.lr_ratio * buffer - plan.lr * gradient;
}

}  // namespace mh::kernels
