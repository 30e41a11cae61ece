// Finds the fusion threshold and the cycle time that reduce most bytes per second.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "hvd/settings.h"

namespace tandem::hvd {

// A compass search: tries the neighbours of the best point along both axes, at half the distance
// once all have been tried. Points lie in the unit square.
class CompassSearch {
 public:
  using Point = std::array<double, 2>;

  void add(const Point& point, double score);
  // REQUIRES: add() was called, as for best().
  Point next();
  const Point& best() const { return points_[best_]; }
  std::size_t size() const { return points_.size(); }

 private:
  std::vector<Point> points_;
  std::size_t best_ = 0;
  double best_score_ = 0.0, distance_ = 0.5;
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
  Settings settings_;
  std::ofstream log_;
  CompassSearch search_;
  CompassSearch::Point present_;
  std::int64_t warmup_left_;
  bool done_ = false;
  std::int64_t pending_ = 0, bytes_ = 0;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace tandem::hvd
