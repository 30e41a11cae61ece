// Results must not depend on an operation's number of threads.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "support/processes.h"
#include "tandem/config.h"

namespace tandem::testing {

// Expects compute() to give the same bits with 1, 2, 3 and 4 threads per operation. A device's team
// is fixed by the first operation, so each number has its own process. REQUIRES: no operation ran
// in this process before; ctest runs each test in a process.
inline void expect_same_bits_with_any_team(const std::function<std::vector<double>()>& compute) {
  namespace fs = std::filesystem;
  ASSERT_EQ(std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()), 1)
      << "this process has threads already: run this test alone";
  constexpr std::string_view kValues = "values: ";
  std::vector<double> first;
  for (const int threads : {1, 2, 3, 4}) {
    ChildProcess child([&] {
      config::set_intra_op_parallelism_threads(threads);
      const std::vector<double> values = compute();
      std::string text(kValues);
      return text.append(reinterpret_cast<const char*>(values.data()),
                         values.size() * sizeof(double));
    });
    const std::string text = child.result();
    ASSERT_TRUE(text.starts_with(kValues)) << text;
    std::vector<double> values((text.size() - kValues.size()) / sizeof(double));
    std::memcpy(values.data(), text.data() + kValues.size(), values.size() * sizeof(double));
    if (threads == 1) first = values;
    ASSERT_EQ(values.size(), first.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint64_t>(values[i]), std::bit_cast<std::uint64_t>(first[i]))
          << "element " << i << " is " << values[i] << " with " << threads << " threads, "
          << first[i] << " with 1";
  }
}

}  // namespace tandem::testing
