// Finds the fusion threshold and the cycle time with which most bytes a second are brought
// together.
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

// Bayesian optimisation, as Horovod's: a Gaussian process over what was measured, and next the
// point that promises the greatest improvement. Points are in the unit square.
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

// Fusion thresholds of 0 to 64 MiB, cycle times of 1 to 100 ms.
class Autotune {
 public:
  using Clock = std::chrono::steady_clock;
  // `log`: a file for a line a sample; empty: none. Throws UnavailableError where it cannot be
  // written.
  Autotune(const Settings& settings, const std::string& log);

  // A cycle has brought `bytes` together. Whether other values hold from here on.
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
  std::int64_t steps_ = 0, bytes_ = 0;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace tandem::hvd
