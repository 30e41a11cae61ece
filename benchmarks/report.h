// What whole-step programs share: their options, the clock, and the JSON line that they end with.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace bench {

struct Options {
  std::string name = "mlp64";  // the case
  int threads = 1;             // of each replica
  int replicas = 1;
  long batch = 0;              // of a replica; 0: the case's
  std::string device = "cpu";  // "gpu": the first one
  double seconds = 2.0;
  bool traced = false;
  std::string face;   // of many processes
  int steps = 100;    // the same in every process
  std::string trace;  // a file for a profile of some more steps; empty: none
};

inline Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    if (key == "--case") options.name = argv[i + 1];
    if (key == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (key == "--replicas") options.replicas = std::atoi(argv[i + 1]);
    if (key == "--batch") options.batch = std::atol(argv[i + 1]);
    if (key == "--device") options.device = argv[i + 1];
    if (key == "--seconds") options.seconds = std::atof(argv[i + 1]);
    if (key == "--traced") options.traced = std::atoi(argv[i + 1]) != 0;
    if (key == "--face") options.face = argv[i + 1];
    if (key == "--steps") options.steps = std::atoi(argv[i + 1]);
    if (key == "--trace") options.trace = argv[i + 1];
  }
  return options;
}

// Milliseconds from the moment that scripts/bench started this process (TANDEM_BENCH_STARTED, on
// the monotonic clock); not a number when it did not.
inline double since_start_ms() {
  const char* started = std::getenv("TANDEM_BENCH_STARTED");
  if (!started) return std::nan("");
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
          std::atof(started)) *
         1e3;
}

// The most memory that this process has held.
inline double peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::atof(line.c_str() + 6) / 1024;
  return std::nan("");
}

// Runs `steps(n)`, which makes n steps and waits for them, for about `seconds`; milliseconds a
// step.
template <class Steps>
double time_steps(double seconds, const Steps& steps) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (long done = 0;;) {
    steps(4);
    done += 4;
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (elapsed >= seconds) return elapsed / static_cast<double>(done) * 1e3;
  }
}

inline void print_line(const char* program, const Options& options, double startup_ms, double ms) {
  std::printf(
      "{\"program\": \"%s\", \"case\": \"%s\", \"device\": \"%s\", \"threads\": %d, \"replicas\": "
      "%d, "
      "\"ms\": %.5f, \"peak_mib\": %.2f, \"startup_ms\": ",
      program, options.name.c_str(), options.device.c_str(), options.threads, options.replicas, ms,
      peak_mib());
  std::printf(std::isnan(startup_ms) ? "null}\n" : "%.3f}\n", startup_ms);
}

// Warms up, measures, and prints the line.
template <class Steps>
void measure(const char* program, const Options& options, double startup_ms, const Steps& steps) {
  time_steps(std::min(1.0, options.seconds / 2), steps);
  print_line(program, options, startup_ms, time_steps(options.seconds, steps));
}

// The same for one of several processes that take the same steps; rank 0 prints.
template <class Steps>
void measure_together(const char* program, const Options& options, double startup_ms, int rank,
                      const Steps& steps) {
  steps(std::max(4, options.steps / 2));
  const auto begin = std::chrono::steady_clock::now();
  steps(options.steps);
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  const double ms = std::chrono::duration<double, std::milli>(elapsed).count() / options.steps;
  if (rank == 0) print_line(program, options, startup_ms, ms);
}

}  // namespace bench
