#include "train/callbacks/monitor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/log.h"
#include "core/status.h"

namespace tandem::callbacks {
namespace {

bool is_larger_better(const std::string& callback, const std::string& monitored,
                      const std::string& mode) {
  if (mode == "max") return true;
  if (mode == "min") return false;
  if (mode != "auto")
    fail<InvalidArgumentError>("[{}] expected mode 'auto', 'min' or 'max', got '{}'", callback,
                               mode);
  constexpr std::array<const char*, 4> kLargerIsBetter = {"acc", "auc", "precision", "recall"};
  return std::any_of(kLargerIsBetter.begin(), kLargerIsBetter.end(),
                     [&](const char* part) { return monitored.find(part) != std::string::npos; });
}

}  // namespace

Monitor::Monitor(std::string callback, std::string monitored, const std::string& mode,
                 double min_delta)
    : callback_(std::move(callback)),
      monitored_(std::move(monitored)),
      larger_is_better_(is_larger_better(callback_, monitored_, mode)),
      min_delta_(std::abs(min_delta)) {}

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
  return larger_is_better_ ? value - min_delta_ > best : value + min_delta_ < best;
}

double Monitor::worst() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return larger_is_better_ ? -kInfinity : kInfinity;
}

}  // namespace tandem::callbacks
