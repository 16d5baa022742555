// Optimiser steps of one parameter element, for the loops on CPUs and GPUs. lib/train/optimizer.h has the formulas.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace mh::kernels {

struct AdamParams {
  float lr, beta1, beta2, epsilon;
  // 1 - beta1^t and 1 - beta2^t in update t = 1, 2, …; both 1 without bias correction
  float bias_correction1, bias_correction2;
  float lr_weight_decay;  // lr * weight decay: p -= lr_weight_decay * p before the step
  float gradient_scale;   // factor of the gradient g: clipping factor / number of targets of the update
};

// Applies Adam with decoupled weight decay (AdamW). step_size: lr / bias_correction1.
MH_HOST_DEVICE void adam_element(const AdamParams& params, float step_size, float bias_correction2_sqrt, float& p,
                                 float g, float& m, float& v) {
  const float gradient = params.gradient_scale * g;
  m = params.beta1 * m + (1 - params.beta1) * gradient;
  v = params.beta2 * v + (1 - params.beta2) * gradient * gradient;
  p = p - params.lr_weight_decay * p - step_size * m / (std::sqrt(v) / bias_correction2_sqrt + params.epsilon);
}

struct MomentumParams {
  float lr, momentum;
  float weight_decay;    // weight_decay * p is added to the gradient
  float gradient_scale;  // factor of the gradient g: clipping factor / number of targets of the update
};

// Applies SGD with momentum, like torch.optim.SGD with dampening 0.
MH_HOST_DEVICE void sgd_element(const MomentumParams& params, float& p, float g, float& buffer) {
  buffer = params.momentum * buffer + params.gradient_scale * g + params.weight_decay * p;
  p -= params.lr * buffer;
}

struct NagParams {
  float lr, momentum;
  float lr_ratio;         // lr divided by the lr of the previous update; 1 in the first update
  float lr_weight_decay;  // lr * weight decay
  float gradient_scale;   // factor of the gradient g: clipping factor / number of targets of the update
};

// Applies Nesterov's accelerated gradient with decoupled weight decay, like the optimiser `nag` of fairseq.
MH_HOST_DEVICE void nag_element(const NagParams& params, float& p, float g, float& buffer) {
  const float m = params.momentum, gradient = params.gradient_scale * g;
  p = p * (1 - params.lr_weight_decay) + m * m * params.lr_ratio * buffer - (1 + m) * params.lr * gradient;
  buffer = m * params.lr_ratio * buffer - params.lr * gradient;
}

}  // namespace mh::kernels
