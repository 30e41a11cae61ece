#include "train/callbacks/monitor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/log.h"
#include "core/status.h"
#include "train/model_impl.h"
#include "train/training_state.h"

namespace tandem::callbacks {
namespace {

std::optional<bool> larger_is_better(const std::string& callback, const std::string& mode) {
  if (mode == "max") return true;
  if (mode == "min") return false;
  if (mode != "auto")
    fail<InvalidArgumentError>("[{}] expected mode 'auto', 'min' or 'max', got '{}'", callback,
                               mode);
  return std::nullopt;
}

}  // namespace

Monitor::Monitor(std::string callback, std::string monitored, const std::string& mode,
                 double min_delta)
    : callback_(std::move(callback)),
      monitored_(std::move(monitored)),
      larger_is_better_(larger_is_better(callback_, mode)),
      min_delta_(std::abs(min_delta)) {}

void Monitor::begin(const Model& model) {
  const std::vector<std::string> names = log_names(model);
  warned_ = std::ranges::find(names, monitored_) != names.end();
  if (larger_is_better_) return;
  const std::string name = monitored_.starts_with("val_") ? monitored_.substr(4) : monitored_;
  if (name == "loss") larger_is_better_ = false;
  const Model::Impl& impl = compiled_impl_of(model, callback_.c_str());
  for (const std::string& output : impl.output_names)
    if (name == output + "_loss") larger_is_better_ = false;
  for (const OutputMetric& metric : impl.metrics)
    if (metric.name == name) larger_is_better_ = metric.metric.base().larger_is_better();
  if (!larger_is_better_)
    fail<InvalidArgumentError>(
        "[{}] cannot tell whether '{}' is better if it is larger: expected a mode of 'max' or "
        "'min', got 'auto'",
        callback_, monitored_);
}

std::optional<double> Monitor::value(const Logs& logs) {
  const auto found = logs.find(monitored_);
  if (found != logs.end()) return found->second;
  if (!warned_) {
    std::string known;
    for (const auto& [name, value] : logs)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
    logging::warn("[{}] metric '{}' is not available. Available metrics are: {}", callback_,
                  monitored_, known);
    warned_ = true;
  }
  return std::nullopt;
}

bool Monitor::improves(double value, double best) const {
  return *larger_is_better_ ? value - min_delta_ > best : value + min_delta_ < best;
}

double Monitor::worst() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return *larger_is_better_ ? -kInfinity : kInfinity;
}

}  // namespace tandem::callbacks
