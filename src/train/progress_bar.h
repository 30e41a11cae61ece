// The progress that fit() and evaluate() print to stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/callbacks.h"

namespace tandem {

// The parts of a line, in order. A part may be empty.
struct ProgressLine {
  std::string counter;               // "12/469"
  std::string bar;                   // "[>.............................]"
  std::string time;                  // "ETA: 3s"
  std::string step_time;             // "12ms/step"
  std::string rate;                  // "10453 samples/s"
  std::vector<std::string> metrics;  // "loss: 0.3521"
};

// Prints a progress line as Keras does, updated in place on a terminal:
//    12/469 [>.............................] - ETA: 3s - 12ms/step - 10453 samples/s - loss: 0.3521
// If stderr is not a terminal, prints a plain line from time to time. On a narrow terminal the line
// omits the rate first, then the step time, the bar, the time, the counter, and the metrics last.
// The last line of an epoch keeps all metrics, on several lines if necessary. Metrics are only
// computed for lines that are printed.
class ProgressBar {
 public:
  using MetricsFunction = std::function<callbacks::Logs()>;
  // `verbose` 0: prints nothing. 1: the bar, or plain lines. 2: one line at the end. `interval`:
  // the least time between two lines on a terminal.
  explicit ProgressBar(int verbose,
                       std::chrono::milliseconds interval = std::chrono::milliseconds(100));

  // `title`: "Epoch 1/2", or empty. `total`: the number of steps, if it is known. `done`:
  // steps of an earlier run.
  void begin(std::string title, std::optional<std::int64_t> total, std::int64_t done);
  void step(std::int64_t done, std::int64_t examples, const MetricsFunction& metrics);
  void end(const callbacks::Logs& logs);
  // Ends an unfinished line, if training ends by an error.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  bool updates_in_place() const { return verbose_ == 1 && terminal_; }
  void add_speed(ProgressLine& line, double seconds) const;
  void write(ProgressLine line, bool last);

  int verbose_;
  bool terminal_;
  std::chrono::milliseconds interval_;
  std::string title_;
  std::optional<std::int64_t> total_;
  std::int64_t first_ = 0;  // steps of earlier runs
  std::int64_t done_ = 0;
  std::int64_t examples_ = 0;
  Clock::time_point start_, written_;
  bool line_open_ = false;  // the terminal's cursor is on an unfinished line
};

}  // namespace tandem
