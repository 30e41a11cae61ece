// The formulas of the update rules (update_rules.h). A step object is called with an element of the
// variable, its gradient and its slots. It returns the new element and updates the slots in place.
// C is the compute type, kOp the operation's name, which is TensorFlow's if it has one.
#pragma once

#include <cmath>

#include "ops/formula/primitives.h"
#include "ops/nn/update_rules.h"

namespace tandem {
namespace TANDEM_SIDE {

// The factor that decoupled weight decay applies to a variable.
template <class Rule>
double kept_of(const Rule& rule) {
  return 1.0 - rule.learning_rate * rule.weight_decay;
}
// Adam's bias correction: a moment that starts at 0 is too small by the factor 1 - beta^step.
inline double correction(double beta, std::int64_t step) {
  return 1.0 - std::pow(beta, static_cast<double>(step));
}
template <class Rule>
double correction_1(const Rule& rule) {
  return rule.bias_correction ? correction(rule.beta_1, rule.step) : 1.0;
}
template <class Rule>
double correction_2(const Rule& rule) {
  return rule.bias_correction ? correction(rule.beta_2, rule.step) : 1.0;
}
// The gradient of an L2 penalty is part of the gradient. A decay of 0 changes no bit.
template <class C>
TANDEM_DEVICE C with_decay(C gradient, C decay, C variable) {
  return decay != C(0) ? gradient + decay * variable : gradient;
}

template <class C>
struct DescentStep {
  using Rule = update::GradientDescent;
  static constexpr const char* kOp = "ApplyGradientDescent";
  static constexpr int kSlots = 0;
  C rate, keep;
  explicit DescentStep(const Rule& rule) : rate(C(rule.learning_rate)), keep(C(kept_of(rule))) {}
  TANDEM_DEVICE C operator()(C variable, C gradient, C*) const {
    return variable * keep - rate * gradient;
  }
};

template <class C>
struct MomentumStep {
  using Rule = update::Momentum;
  static constexpr const char* kOp = "ApplyKerasMomentum";
  static constexpr int kSlots = 1;
  C rate, momentum, keep, nesterov;
  explicit MomentumStep(const Rule& rule)
      : rate(C(rule.learning_rate)),
        momentum(C(rule.momentum)),
        keep(C(kept_of(rule))),
        nesterov(C(rule.nesterov)) {}
  TANDEM_DEVICE C operator()(C variable, C gradient, C* slots) const {
    const C drop = rate * gradient;
    slots[0] = momentum * slots[0] - drop;
    return variable * keep + (nesterov != C(0) ? momentum * slots[0] - drop : slots[0]);
  }
};

template <class C>
struct DampedMomentumStep {
  using Rule = update::DampedMomentum;
  static constexpr const char* kOp = "ApplyMomentum";
  static constexpr int kSlots = 1;
  C rate, momentum, take, decay_before, decay_after, nesterov;
  explicit DampedMomentumStep(const Rule& rule)
      : rate(C(rule.learning_rate)),
        momentum(C(rule.momentum)),
        take(C(rule.step == 1 ? 1.0 : 1.0 - rule.dampening)),
        decay_before(C(rule.decay_after_momentum ? 0.0 : rule.weight_decay)),
        decay_after(C(rule.decay_after_momentum ? rule.weight_decay : 0.0)),
        nesterov(C(rule.nesterov)) {}
  TANDEM_DEVICE C operator()(C variable, C gradient, C* slots) const {
    const C slope = with_decay(gradient, decay_before, variable);
    slots[0] = momentum * slots[0] + take * slope;
    const C direction = nesterov != C(0) ? slope + momentum * slots[0] : slots[0];
    return variable - rate * with_decay(direction, decay_after, variable);
  }
};

// The slots: m, v and, with kAmsgrad, the largest v so far.
template <bool kAmsgrad>
struct AdamSteps {
  template <class C>
  struct UpdateStep {
    using Rule = update::Adam;
    static constexpr const char* kOp = kAmsgrad ? "ApplyAdamWithAmsgrad" : "ApplyAdam";
    static constexpr int kSlots = 2 + kAmsgrad;
    C rate, take_1, take_2, epsilon, keep, decay;
    explicit UpdateStep(const Rule& rule)
        : rate(C(rule.learning_rate * std::sqrt(correction_2(rule)) / correction_1(rule))),
          take_1(C(1.0 - rule.beta_1)),
          take_2(C(1.0 - rule.beta_2)),
          // m / (sqrt(v / c) + epsilon) = sqrt(c) * m / (sqrt(v) + sqrt(c) * epsilon)
          epsilon(C(rule.epsilon * (rule.corrected_epsilon ? std::sqrt(correction_2(rule)) : 1.0))),
          keep(C(kept_of(rule))),
          decay(C(rule.gradient_decay)) {}
    TANDEM_DEVICE C operator()(C variable, C gradient, C* slots) const {
      const C slope = with_decay(gradient, decay, variable);
      slots[0] += (slope - slots[0]) * take_1;
      slots[1] += (slope * slope - slots[1]) * take_2;
      // A v of NaN stays one.
      if constexpr (kAmsgrad) slots[2] = slots[1] < slots[2] ? slots[2] : slots[1];
      return variable * keep - rate * slots[0] / (prim::sqrt(slots[kSlots - 1]) + epsilon);
    }
  };
};

template <class C>
struct AdagradStep {
  using Rule = update::Adagrad;
  static constexpr const char* kOp = "ApplyAdagradV2";
  static constexpr int kSlots = 1;
  C rate, epsilon, outer, keep, decay;
  explicit AdagradStep(const Rule& rule)
      : rate(C(rule.learning_rate)),
        epsilon(C(rule.outer_epsilon ? 0.0 : rule.epsilon)),
        outer(C(rule.outer_epsilon ? rule.epsilon : 0.0)),
        keep(C(kept_of(rule))),
        decay(C(rule.gradient_decay)) {}
  TANDEM_DEVICE C operator()(C variable, C gradient, C* slots) const {
    const C slope = with_decay(gradient, decay, variable);
    slots[0] += slope * slope;
    return variable * keep - rate * slope / (prim::sqrt(slots[0] + epsilon) + outer);
  }
};

// The slots: the mean square, the mean gradient if centred, and the momentum if there is one.
template <bool kCentred, bool kMomentum>
struct RmsPropSteps {
  template <class C>
  struct UpdateStep {
    using Rule = update::RmsProp;
    static constexpr const char* kOp =
        kCentred ? (kMomentum ? "ApplyCenteredRMSPropMomentum" : "ApplyCenteredRMSProp")
                 : (kMomentum ? "ApplyRMSPropMomentum" : "ApplyRMSProp");
    static constexpr int kSlots = 1 + kCentred + kMomentum;
    // `rate_after` multiplies the step if `after`; `rate` multiplies the gradient.
    C rate, rate_after, after, take, epsilon, outer, momentum, keep, decay;
    explicit UpdateStep(const Rule& rule)
        : rate(C(rule.outer_epsilon ? 1.0 : rule.learning_rate)),
          rate_after(C(rule.learning_rate)),
          after(C(rule.outer_epsilon)),
          take(C(1.0 - rule.rho)),
          epsilon(C(rule.outer_epsilon ? 0.0 : rule.epsilon)),
          outer(C(rule.outer_epsilon ? rule.epsilon : 0.0)),
          momentum(C(rule.momentum)),
          keep(C(kept_of(rule))),
          decay(C(rule.gradient_decay)) {}
    TANDEM_DEVICE C operator()(C variable, C gradient, C* slots) const {
      const C slope = with_decay(gradient, decay, variable);
      slots[0] += (slope * slope - slots[0]) * take;
      C square = slots[0];
      if constexpr (kCentred) {
        slots[1] += (slope - slots[1]) * take;
        square -= slots[1] * slots[1];
      }
      C drop = rate * slope / (prim::sqrt(square + epsilon) + outer);
      if constexpr (kMomentum) {
        drop += momentum * slots[kSlots - 1];
        slots[kSlots - 1] = drop;
      }
      return variable * keep - (after != C(0) ? rate_after * drop : drop);
    }
  };
};

// LAMB: updates the moments first; then the norms of the variable and of direction() scale the
// step.
template <class C>
struct LambStep {
  using Rule = update::Lamb;
  static constexpr const char* kOp = "ApplyLamb";
  static constexpr int kSlots = 2;
  C take_1, take_2, correct_1, correct_2, share, epsilon, decay, gradient_decay, grad_scale;
  explicit LambStep(const Rule& rule)
      : take_1(C(1.0 - rule.beta_1)),
        take_2(C(1.0 - rule.beta_2)),
        correct_1(C(1.0 / correction_1(rule))),
        correct_2(C(1.0 / correction_2(rule))),
        share(C(rule.grad_averaging ? 1.0 : 1.0 / (1.0 - rule.beta_1))),
        epsilon(C(rule.epsilon)),
        decay(C(rule.weight_decay)),
        gradient_decay(C(rule.gradient_decay)),
        grad_scale(C(rule.grad_scale)) {}
  // The gradient that the moments follow.
  TANDEM_DEVICE C slope(C gradient, C variable) const {
    return with_decay(gradient * grad_scale, gradient_decay, variable);
  }
  TANDEM_DEVICE C first_moment(C m, C gradient) const {
    return m + (gradient * share - m) * take_1;
  }
  TANDEM_DEVICE C second_moment(C v, C gradient) const {
    return v + (gradient * gradient - v) * take_2;
  }
  TANDEM_DEVICE C direction(C variable, C m, C v) const {
    return m * correct_1 / (prim::sqrt(v * correct_2) + epsilon) + decay * variable;
  }
};

}  // namespace TANDEM_SIDE
}  // namespace tandem
