// Finds the fusion threshold and the cycle time that reduce most bytes per second.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "hvd/settings.h"

namespace tandem::hvd {

// Bayesian optimisation, as in Horovod: fits a Gaussian process to the samples and next tries the
// point with the greatest expected improvement. Points lie in the unit square.
class BayesianSearch {
 public:
  using Point = std::array<double, 2>;

  explicit BayesianSearch(double noise) : noise_(noise) {}
  void add(const Point& point, double score);
  Point next() const;
  Point best() const;
  std::size_t size() const { return points_.size(); }

 private:
  double noise_;
  std::vector<Point> points_;
  std::vector<double> scores_;
};

// Tries fusion thresholds of 0 to 64 MiB and cycle times of 1 to 100 ms.
class Autotune {
 public:
  using Clock = std::chrono::steady_clock;
  // `log`: a file that receives one line per sample; empty for none. Throws UnavailableError
  // if it cannot be written.
  Autotune(const Settings& settings, const std::string& log);

  // Records a cycle that reduced `bytes`. Returns whether the parameters have changed.
  bool record(std::int64_t bytes, Clock::time_point now);
  std::int64_t fusion_threshold() const;
  std::int64_t cycle_microseconds() const;

 private:
  void take(const BayesianSearch::Point& point) { present_ = point; }

  Settings settings_;
  std::ofstream log_;
  BayesianSearch search_;
  BayesianSearch::Point present_;
  std::int64_t warmup_left_;
  bool done_ = false;
  std::int64_t pending_ = 0, bytes_ = 0;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace tandem::hvd
