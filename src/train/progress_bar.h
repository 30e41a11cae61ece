// What fit() and evaluate() write to stderr while they run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tandem/callbacks.h"

namespace tandem {

// A line of progress as Keras draws it, redrawn in place on a terminal:
//    12/469 [>.............................] - ETA: 3s - 12ms/step - 10453 samples/s - loss: 0.3521
// and otherwise a plain line now and then. Reads the figures only when it writes.
class ProgressBar {
 public:
  using Figures = std::function<callbacks::Logs()>;
  // 0: nothing. 1: the bar, or lines where stderr is no terminal. 2: a line at the end.
  explicit ProgressBar(int verbose);

  // `title`: "Epoch 1/2", or empty. `total`: steps, where they are known. `done`: steps that were
  // taken in an earlier run.
  void begin(std::string title, std::optional<std::int64_t> total, std::int64_t done);
  void step(std::int64_t done, std::int64_t examples, const Figures& figures);
  void end(const callbacks::Logs& logs);
  // Leaves the terminal on a new line when training breaks off.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  std::string rate(double seconds) const;
  void write(const std::string& line, bool last);

  int verbose_;
  bool terminal_;
  std::string title_;
  std::optional<std::int64_t> total_;
  std::int64_t first_ = 0;  // steps before this run's
  std::int64_t done_ = 0;
  std::int64_t examples_ = 0;
  Clock::time_point start_, written_;
  std::size_t drawn_ = 0;  // characters of the line on the terminal
};

}  // namespace tandem
