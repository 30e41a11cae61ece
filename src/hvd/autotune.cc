#include "hvd/autotune.h"

#include <algorithm>
#include <cmath>

#include "core/status.h"

namespace tandem::hvd {
namespace {

using Point = BayesianSearch::Point;

constexpr double kMostMib = 64.0, kLeastMs = 1.0, kMostMs = 100.0;
constexpr int kGrid = 32;  // candidates along each axis

double kernel(const Point& a, const Point& b) {
  constexpr double kLength = 0.3;
  const double x = a[0] - b[0], y = a[1] - b[1];
  return std::exp(-(x * x + y * y) / (2.0 * kLength * kLength));
}

// The lower triangle L of a positive definite matrix L L^T, stored by rows.
std::vector<double> cholesky(std::vector<double> a, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = i == j ? std::sqrt(sum) : sum / a[j * n + j];
    }
  return a;
}

// Solves L x = b.
std::vector<double> solve_lower(const std::vector<double>& l, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= l[i * n + k] * b[k];
    b[i] /= l[i * n + i];
  }
  return b;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Scales scores to mean 0 and standard deviation 1.
std::vector<double> standardised(const std::vector<double>& scores) {
  const auto n = static_cast<double>(scores.size());
  double mean = 0.0, square = 0.0;
  for (double score : scores) mean += score / n;
  for (double score : scores) square += (score - mean) * (score - mean) / n;
  const double deviation = square > 0.0 ? std::sqrt(square) : 1.0;
  std::vector<double> result;
  for (double score : scores) result.push_back((score - mean) / deviation);
  return result;
}

}  // namespace

void BayesianSearch::add(const Point& point, double score) {
  points_.push_back(point);
  scores_.push_back(score);
}

Point BayesianSearch::best() const {
  return points_[static_cast<std::size_t>(std::max_element(scores_.begin(), scores_.end()) -
                                          scores_.begin())];
}

Point BayesianSearch::next() const {
  const std::size_t n = points_.size();
  std::vector<double> covariance(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      covariance[i * n + j] =
          kernel(points_[i], points_[j]) + (i == j ? noise_ * noise_ + 1e-9 : 0.0);
  const std::vector<double> l = cholesky(std::move(covariance), n);
  const std::vector<double> scores = standardised(scores_);
  const std::vector<double> weights = solve_lower(l, scores);
  const double best_score = *std::max_element(scores.begin(), scores.end());
  Point chosen = {0.5, 0.5};
  double most = -1.0;
  for (int x = 0; x <= kGrid; ++x)
    for (int y = 0; y <= kGrid; ++y) {
      const Point point = {static_cast<double>(x) / kGrid, static_cast<double>(y) / kGrid};
      std::vector<double> near(n);
      for (std::size_t i = 0; i < n; ++i) near[i] = kernel(point, points_[i]);
      const std::vector<double> v = solve_lower(l, near);
      const double mean = dot(v, weights);
      const double deviation = std::sqrt(std::max(1e-12, 1.0 - dot(v, v)));
      const double z = (mean - best_score) / deviation;
      const double density = std::exp(-z * z / 2.0) / std::sqrt(2.0 * M_PI);
      const double improvement =
          (mean - best_score) * 0.5 * std::erfc(-z / std::sqrt(2.0)) + deviation * density;
      if (improvement > most) {
        most = improvement;
        chosen = point;
      }
    }
  return chosen;
}

Autotune::Autotune(const Settings& settings, const std::string& log)
    : settings_(settings),
      search_(settings.autotune_noise),
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
  take(done_ ? search_.best() : search_.next());
  return true;
}

}  // namespace tandem::hvd
