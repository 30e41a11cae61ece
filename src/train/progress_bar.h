// What fit() and evaluate() write to stderr while they run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/callbacks.h"

namespace tandem {

// The parts of a line, in their order; parts may be empty.
struct ProgressLine {
  std::string counter;               // "12/469"
  std::string bar;                   // "[>.............................]"
  std::string time;                  // "ETA: 3s"
  std::string step_time;             // "12ms/step"
  std::string rate;                  // "10453 samples/s"
  std::vector<std::string> metrics;  // "loss: 0.3521"
};

// A line of progress as Keras draws it, redrawn in place on a terminal:
//    12/469 [>.............................] - ETA: 3s - 12ms/step - 10453 samples/s - loss: 0.3521
// and otherwise a plain line now and then. On a narrow terminal the line omits parts: first
// the rate, then the step time, the bar, the time and the counter, loss and metrics last; an
// epoch's last line keeps all metrics, on several lines if need be. Reads the figures only when it
// writes.
class ProgressBar {
 public:
  using Figures = std::function<callbacks::Logs()>;
  // 0: nothing. 1: the bar, or lines where stderr is no terminal. 2: a line at the end.
  // `redraw`: the least time between two lines on a terminal.
  explicit ProgressBar(int verbose,
                       std::chrono::milliseconds redraw = std::chrono::milliseconds(100));

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
  bool redraws() const { return verbose_ == 1 && terminal_; }
  void add_speed(ProgressLine& line, double seconds) const;
  void write(ProgressLine line, bool last);

  int verbose_;
  bool terminal_;
  std::chrono::milliseconds redraw_;
  std::string title_;
  std::optional<std::int64_t> total_;
  std::int64_t first_ = 0;  // steps before this run's
  std::int64_t done_ = 0;
  std::int64_t examples_ = 0;
  Clock::time_point start_, written_;
  bool drawn_ = false;  // the terminal's line is one of this bar
};

}  // namespace tandem
