// The optimizers' update rules, which are the attributes of the operations that apply them.
// `grad_scale` multiplies the gradient first. `weight_decay` is decoupled (I. Loshchilov and
// F. Hutter, 2019): the variable is first scaled by 1 - learning_rate * weight_decay.
#pragma once

#include <cstdint>

#include "op/fields.h"

namespace tandem::update {

// var -= rate * g.
struct GradientDescent {
  double learning_rate = 0.01;
  double weight_decay = 0.0;
  double grad_scale = 1.0;
  TANDEM_FIELDS(learning_rate, weight_decay, grad_scale)
};

// velocity = momentum * velocity - rate * g; var += velocity, or with `nesterov` var += momentum *
// velocity - rate * g. As Keras.
struct Momentum {
  double learning_rate = 0.01;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0.0;
  double grad_scale = 1.0;
  TANDEM_FIELDS(learning_rate, momentum, nesterov, weight_decay, grad_scale)
};

// As PyTorch's SGD: the buffer does not contain the learning rate, and weight decay is not
// decoupled but added to g, or to the step if `decay_after_momentum`. buffer = momentum * buffer +
// (1 - dampening) * g, in step 1 without dampening; var -= rate * buffer, or with `nesterov` var -=
// rate * (g + momentum * buffer).
struct DampedMomentum {
  double learning_rate = 0.01;
  double momentum = 0.9;
  double dampening = 0.0;
  bool nesterov = false;
  bool decay_after_momentum = false;
  std::int64_t step = 1;  // counts from 1
  double weight_decay = 0.0;
  double grad_scale = 1.0;
  TANDEM_FIELDS(learning_rate, momentum, dampening, nesterov, decay_after_momentum, step,
                weight_decay, grad_scale)
};

// D. P. Kingma and J. Ba, 2015, in the form of Keras: epsilon is added outside the square root, to
// the uncorrected v. m += (1 - beta_1) (g - m); v += (1 - beta_2) (g^2 - v);
// var -= rate * sqrt(1 - beta_2^step) / (1 - beta_1^step) * m / (sqrt(v) + epsilon).
// In the form of the paper and PyTorch, `corrected_epsilon` adds epsilon to the corrected sqrt(v).
// `gradient_decay` times the variable is added to the gradient first (L2 regularisation).
// AMSGrad (S. J. Reddi, S. Kale and S. Kumar, 2018), an operation of its own, keeps the largest v
// of each element in a third slot and divides by its root.
struct Adam {
  double learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  std::int64_t step = 1;  // counts from 1
  double weight_decay = 0.0;
  double gradient_decay = 0.0;
  bool bias_correction = true;
  bool corrected_epsilon = false;
  double grad_scale = 1.0;
  TANDEM_FIELDS(learning_rate, beta_1, beta_2, epsilon, step, weight_decay, gradient_decay,
                bias_correction, corrected_epsilon, grad_scale)
};

// T. Tieleman and G. Hinton, 2012, in the form of Keras: epsilon is inside the square root.
//   ms = rho * ms + (1 - rho) g^2
//   d = rate * g / sqrt(ms + epsilon); centred: mg = rho * mg + (1 - rho) g, and ms - mg^2 for ms
//   var -= d; with momentum: mom = momentum * mom + d; var -= mom
// In the form of PyTorch, `outer_epsilon` adds epsilon to the root and keeps the learning rate out
// of the momentum: d is g / (sqrt(ms) + epsilon), and the step is rate * d, or rate * mom.
// `gradient_decay` as in Adam.
struct RmsProp {
  double learning_rate = 1e-3;
  double rho = 0.9;
  double momentum = 0.0;
  double epsilon = 1e-7;
  double weight_decay = 0.0;
  double gradient_decay = 0.0;
  bool outer_epsilon = false;
  double grad_scale = 1.0;
  TANDEM_FIELDS(learning_rate, rho, momentum, epsilon, weight_decay, gradient_decay, outer_epsilon,
                grad_scale)
};

// J. Duchi, E. Hazan and Y. Singer, 2011: accumulator += g^2; var -= rate * g / sqrt(accumulator +
// epsilon). The caller chooses the accumulator's initial value. In the form of PyTorch,
// `outer_epsilon` adds epsilon to the root instead. `gradient_decay` as in Adam.
struct Adagrad {
  double learning_rate = 1e-3;
  double epsilon = 1e-7;
  double weight_decay = 0.0;
  double gradient_decay = 0.0;
  bool outer_epsilon = false;
  double grad_scale = 1.0;
  TANDEM_FIELDS(learning_rate, epsilon, weight_decay, gradient_decay, outer_epsilon, grad_scale)
};

// Y. You et al., 2020: Adam's direction r = m^ / (sqrt(v^) + epsilon) + weight_decay * var with
// both moments corrected, and var -= rate * (|var| / |r|) * r; the ratio is 1 if a norm is 0. Here,
// weight decay is part of r. `gradient_decay` times the variable is added to the gradient instead.
// Without `grad_averaging` the first moment is beta_1 m + g. Without `scaled` the ratio is 1.
struct Lamb {
  double learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-6;
  std::int64_t step = 1;  // counts from 1
  double weight_decay = 0.0;
  double gradient_decay = 0.0;
  bool bias_correction = true;
  bool grad_averaging = true;
  bool scaled = true;
  double grad_scale = 1.0;
  TANDEM_FIELDS(learning_rate, beta_1, beta_2, epsilon, step, weight_decay, gradient_decay,
                bias_correction, grad_averaging, scaled, grad_scale)
};

}  // namespace tandem::update
