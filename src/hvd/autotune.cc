#include "hvd/autotune.h"

#include <algorithm>
#include <cmath>

#include "core/status.h"

namespace tandem::hvd {
namespace {

constexpr double kMostMib = 64.0, kLeastMs = 1.0, kMostMs = 100.0;
constexpr double kLeastDistance = 1.0 / 1024.0;

}  // namespace

void CompassSearch::add(const Point& point, double score) {
  if (points_.empty() || score > best_score_) {
    best_ = points_.size();
    best_score_ = score;
  }
  points_.push_back(point);
}

CompassSearch::Point CompassSearch::next() {
  for (; distance_ >= kLeastDistance; distance_ /= 2.0)
    for (const std::size_t axis : {0, 1})
      for (const double step : {distance_, -distance_}) {
        Point point = best();
        point[axis] = std::clamp(point[axis] + step, 0.0, 1.0);
        if (std::find(points_.begin(), points_.end(), point) == points_.end()) return point;
      }
  return best();
}

Autotune::Autotune(const Settings& settings, const std::string& log)
    : settings_(settings),
      present_({std::clamp(static_cast<double>(settings.fusion_threshold) / (kMostMib * 0x1p20),
                           0.0, 1.0),
                std::clamp((static_cast<double>(settings.cycle_microseconds) / 1000.0 - kLeastMs) /
                               (kMostMs - kLeastMs),
                           0.0, 1.0)}),
      warmup_left_(settings.autotune_warmup_samples) {
  if (log.empty()) return;
  log_.open(log);
  log_ << "cycle_time_ms,tensor_fusion_threshold_mb,score_bytes_per_us\n" << std::flush;
  if (!log_) fail<UnavailableError>("[hvd] cannot write HOROVOD_AUTOTUNE_LOG '{}'", log);
}

std::int64_t Autotune::fusion_threshold() const {
  return std::llround(present_[0] * kMostMib * 0x1p20);
}
std::int64_t Autotune::cycle_microseconds() const {
  return std::llround((kLeastMs + present_[1] * (kMostMs - kLeastMs)) * 1000.0);
}

bool Autotune::record(std::int64_t bytes, Clock::time_point now) {
  if (done_ || bytes == 0) return false;
  bytes_ += bytes;
  if (++pending_ < settings_.autotune_steps) return false;
  const double score =
      static_cast<double>(bytes_) /
      std::max(1e-3, std::chrono::duration<double, std::micro>(now - begin_).count());
  pending_ = bytes_ = 0;
  begin_ = now;
  if (warmup_left_ > 0) {
    --warmup_left_;
    return false;
  }
  search_.add(present_, score);
  if (log_.is_open())
    log_ << fmt::format("{:.3f},{:.3f},{:.4f}\n",
                        static_cast<double>(cycle_microseconds()) / 1000.0, present_[0] * kMostMib,
                        score)
         << std::flush;
  done_ = static_cast<std::int64_t>(search_.size()) >= settings_.autotune_samples;
  present_ = done_ ? search_.best() : search_.next();
  return true;
}

}  // namespace tandem::hvd
