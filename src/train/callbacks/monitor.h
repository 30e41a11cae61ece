// Compares a monitored metric for callbacks.
#pragma once

#include <optional>
#include <string>

#include "tandem/callbacks.h"

namespace tandem::callbacks {

class Monitor {
 public:
  // `mode`: "min", "max" or "auto" (larger is better for accuracies, AUC, precision and recall).
  // Throws InvalidArgumentError for another. `callback` goes in messages.
  Monitor(std::string callback, std::string monitored, const std::string& mode,
          double min_delta = 0.0);

  // The metric's value. If the logs do not have it: none, with a warning the first time.
  std::optional<double> value(const Logs& logs);
  // Whether `value` is better than `best` by more than min_delta.
  bool improves(double value, double best) const;
  double worst() const;  // minus or plus infinity

 private:
  std::string callback_, monitored_;
  bool larger_is_better_;
  double min_delta_;
  bool warned_ = false;
};

}  // namespace tandem::callbacks
