// Shared by the programs that time training steps: options, timing, and the JSON lines.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace bench {

struct BenchOptions {
  std::string name = "mlp64";  // the case
  int threads = 1;             // of each replica
  int replicas = 1;
  int parts = 0;                  // config::set_replica_invariant_parts
  long batch = 0;                 // of a replica; 0: the case's
  std::string device = "cpu";     // "gpu": the first one
  std::string dtype = "float32";  // "tf32": where the device has it; "bfloat16": mixed_bfloat16
  bool tiny = false;
  double seconds = 2.0;
  bool traced = false;
  int check = 0;                 // steps whose losses are printed, before any is timed
  bool serve = false;            // each line of the standard input asks for a measurement
  std::string api;               // api_step: which API trains
  std::string backend = "auto";  // for communication
  int steps = 100;               // per measurement; the same in every process
  int cycles = 5;                // measurements
  std::string trace;             // file for a profile of eight more steps; empty: none
  std::string files;             // input: a folder
};

inline BenchOptions parse(int argc, char** argv) {
  BenchOptions options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    if (key == "--case") options.name = argv[i + 1];
    if (key == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (key == "--replicas") options.replicas = std::atoi(argv[i + 1]);
    if (key == "--parts") options.parts = std::atoi(argv[i + 1]);
    if (key == "--batch") options.batch = std::atol(argv[i + 1]);
    if (key == "--device") options.device = argv[i + 1];
    if (key == "--dtype") options.dtype = argv[i + 1];
    if (key == "--tiny") options.tiny = std::atoi(argv[i + 1]) != 0;
    if (key == "--seconds") options.seconds = std::atof(argv[i + 1]);
    if (key == "--traced") options.traced = std::atoi(argv[i + 1]) != 0;
    if (key == "--check") options.check = std::atoi(argv[i + 1]);
    if (key == "--serve") options.serve = std::atoi(argv[i + 1]) != 0;
    if (key == "--api") options.api = argv[i + 1];
    if (key == "--backend") options.backend = argv[i + 1];
    if (key == "--steps") options.steps = std::atoi(argv[i + 1]);
    if (key == "--cycles") options.cycles = std::atoi(argv[i + 1]);
    if (key == "--trace") options.trace = argv[i + 1];
    if (key == "--files") options.files = argv[i + 1];
  }
  return options;
}

// Milliseconds from the moment that scripts/bench started this process (TANDEM_BENCH_STARTED, on
// the monotonic clock), or NaN if it was started otherwise.
inline double since_start_ms() {
  const char* started = std::getenv("TANDEM_BENCH_STARTED");
  if (!started) return std::nan("");
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
          std::atof(started)) *
         1e3;
}

// The peak memory of this process.
inline double peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::atof(line.c_str() + 6) / 1024;
  return std::nan("");
}

// Calls `steps(count)`, which runs `count` steps and waits for them, until
// `enough(seconds, steps)`. Returns the milliseconds per step of the median call.
template <class Steps, class Enough>
double time_steps(int count, const Steps& steps, const Enough& enough) {
  using Seconds = std::chrono::duration<double>;
  std::vector<double> blocks;
  const auto begin = std::chrono::steady_clock::now();
  for (auto from = begin;;) {
    steps(count);
    const auto until = std::chrono::steady_clock::now();
    blocks.push_back(Seconds(until - from).count() / count * 1e3);
    from = until;
    if (enough(Seconds(until - begin).count(), count * static_cast<int>(blocks.size()))) break;
  }
  const auto middle = blocks.begin() + static_cast<std::ptrdiff_t>(blocks.size() / 2);
  std::nth_element(blocks.begin(), middle, blocks.end());
  return *middle;
}

template <class Steps>
double time_for(double seconds, int count, const Steps& steps) {
  return time_steps(count, steps, [&](double taken, int) { return taken >= seconds; });
}

// Values that are known before the timing starts.
struct RunFacts {
  double startup_ms = std::nan("");
  long parameters = 0;
  std::vector<float> losses;
  std::function<double()> device_peak_mib = [] { return std::nan(""); };
  // The peak of the framework's memory, and the peak of each purpose.
  std::function<std::vector<std::pair<const char*, double>>()> memory_mib = {};
};

inline void print_field(const char* name, double value, const char* format) {
  std::printf(", \"%s\": ", name);
  std::printf(std::isfinite(value) ? format : "null", value);
}

inline void print_list(const char* name, const std::vector<double>& values) {
  std::printf(", \"%s\": [", name);
  for (std::size_t i = 0; i < values.size(); ++i) std::printf("%s%.5f", i ? ", " : "", values[i]);
  std::printf("]");
}

inline void print_line(const char* program, const BenchOptions& options, const RunFacts& facts,
                       double ms) {
  std::printf(
      "{\"program\": \"%s\", \"case\": \"%s\", \"device\": \"%s\", \"dtype\": \"%s\", \"threads\": "
      "%d, \"replicas\": %d, \"parameters\": %ld, \"losses\": [",
      program, options.name.c_str(), options.device.c_str(), options.dtype.c_str(), options.threads,
      options.replicas, facts.parameters);
  for (std::size_t i = 0; i < facts.losses.size(); ++i)
    std::printf(std::isfinite(facts.losses[i]) ? "%s%.7g" : "%snull", i ? ", " : "",
                static_cast<double>(facts.losses[i]));
  std::printf("]");
  print_field("ms", ms, "%.5f");
  print_field("peak_mib", peak_mib(), "%.2f");
  print_field("device_peak_mib", facts.device_peak_mib(), "%.2f");
  print_field("startup_ms", facts.startup_ms, "%.3f");
  if (facts.memory_mib) {
    std::printf(", \"memory_mib\": {");
    const char* separator = "";
    for (const auto& [purpose, mib] : facts.memory_mib()) {
      std::printf("%s\"%s\": %.3f", separator, purpose, mib);
      separator = ", ";
    }
    std::printf("}");
  }
  std::printf("}\n");
  std::fflush(stdout);
}

// Warms up, measures for about `options.seconds`, and prints the line. With --serve it prints a
// line without a measurement when it is ready, and one with a measurement per line of input.
template <class Steps>
void measure(const char* program, const BenchOptions& options, const RunFacts& facts,
             const Steps& steps) {
  constexpr int kBlock = 4;
  const double ms = time_for(std::min(1.0, options.seconds / 2), kBlock, steps);
  // On a GPU a block is long, so that the wait at its end does not matter.
  const int blocks = options.device == "gpu" ? static_cast<int>(std::ceil(20 / (kBlock * ms))) : 1;
  const int count = kBlock * std::clamp(blocks, 1, 1000);
  if (!options.serve) {
    print_line(program, options, facts, time_for(options.seconds, count, steps));
    return;
  }
  print_line(program, options, facts, std::nan(""));
  for (std::string line; std::getline(std::cin, line);)
    print_line(program, options, facts, time_for(options.seconds, count, steps));
}

// The results of one process: milliseconds per step, one entry per cycle.
struct TurnTimes {
  std::vector<double> alone;     // while the other processes sleep
  std::vector<double> apart;     // while all run without synchronisation
  std::vector<double> together;  // in step
};

// Each process prints a line. In each cycle the processes run `local` steps one process after the
// other, then all at once, then `together` steps, in which they wait for each other. The three
// kinds alternate, so that all of them see the same machine load.
template <class Local, class Together>
void take_turns(const BenchOptions& options, int rank, int ranks, const Local& local,
                const Together& together) {
  const int block = std::clamp(options.steps / 4, 1, 4);
  const auto take = [&](const auto& steps) {
    steps(block);  // warms up the caches and synchronises the processes
    return time_steps(block, steps, [&](double, int taken) { return taken >= options.steps; });
  };
  TurnTimes turns;
  take(local);
  take(together);
  for (int cycle = 0; cycle < options.cycles; ++cycle) {
    for (int turn = 0; turn < ranks; ++turn) {
      if (turn == rank) turns.alone.push_back(take(local));
      together(1);
    }
    turns.apart.push_back(take(local));
    turns.together.push_back(take(together));
  }
  std::printf("{\"program\": \"%s\", \"case\": \"%s\", \"threads\": %d, \"rank\": %d",
              options.api.c_str(), options.name.c_str(), options.threads, rank);
  print_list("alone_ms", turns.alone);
  print_list("apart_ms", turns.apart);
  print_list("together_ms", turns.together);
  std::printf("}\n");
  std::fflush(stdout);
}

}  // namespace bench
