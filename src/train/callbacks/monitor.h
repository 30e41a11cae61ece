// Compares a monitored metric for callbacks.
#pragma once

#include <optional>
#include <string>

#include "tandem/callbacks.h"

namespace tandem::callbacks {

class Monitor {
 public:
  // `mode`: "min", "max" or "auto" (as the metric says; a loss is better if it is smaller). Throws
  // InvalidArgumentError for another. `callback` goes in messages.
  Monitor(std::string callback, std::string monitored, const std::string& mode,
          double min_delta = 0.0);

  // At the start of training: asks the model's metric for the direction. Throws
  // InvalidArgumentError if the mode is "auto" and the metric does not know it.
  void begin(const Model& model);
  // The metric's value. If the logs do not have it: none, with a warning the first time unless
  // training has it in other epochs.
  std::optional<double> value(const Logs& logs);
  // Whether `value` is better than `best` by more than min_delta.
  bool improves(double value, double best) const;
  double worst() const;  // minus or plus infinity

 private:
  std::string callback_, monitored_;
  std::optional<bool> larger_is_better_;  // none: mode "auto", before begin()
  double min_delta_;
  bool warned_ = false;
};

}  // namespace tandem::callbacks
