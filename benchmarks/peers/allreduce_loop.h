// Shared by the peers of allreduce.cc: the sizes, the timing and the output.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

struct AllReducePeer {
  const char* name;
  int rank, ranks;
  std::function<void(float*, std::size_t)> all_reduce;  // sum, in place
  std::function<void()> barrier;
  std::function<int(int)> from_rank_0;
};

inline double option_of(int argc, char** argv, const std::string& name, double otherwise) {
  for (int i = 1; i + 1 < argc; i += 2)
    if (argv[i] == name) return std::atof(argv[i + 1]);
  return otherwise;
}

inline void measure_all_reduce(const AllReducePeer& peer, int argc, char** argv) {
  const double seconds = option_of(argc, argv, "--seconds", 0.5);
  std::vector<std::size_t> sizes = {std::size_t{4} << 10,  std::size_t{64} << 10,
                                    std::size_t{1} << 20,  std::size_t{4} << 20,
                                    std::size_t{25} << 20, std::size_t{100} << 20};
  if (const double bytes = option_of(argc, argv, "--bytes", 0); bytes > 0)
    sizes = {static_cast<std::size_t>(bytes)};
  for (const std::size_t bytes : sizes) {
    std::vector<float> values(bytes / sizeof(float));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) - 6;
    const auto run = [&](int times) {
      using Clock = std::chrono::steady_clock;
      peer.barrier();
      const auto begin = Clock::now();
      for (int i = 0; i < times; ++i) peer.all_reduce(values.data(), values.size());
      return std::chrono::duration<double>(Clock::now() - begin).count() / times;
    };
    run(3);
    const int times = peer.from_rank_0(std::max(3, static_cast<int>(seconds / 5 / run(3))));
    std::vector<double> stretches;
    for (int i = 0; i < 5; ++i) stretches.push_back(run(times));
    std::sort(stretches.begin(), stretches.end());
    const double us = stretches[2] * 1e6;
    if (peer.rank == 0)
      std::printf(
          "{\"program\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"plain_us\": %.2f, "
          "\"plain_gbps\": %.2f}\n",
          peer.name, peer.ranks, bytes, us, static_cast<double>(bytes) / us * 1e-3);
  }
}
