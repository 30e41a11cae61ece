// Failures of this process's file operations: write(), fsync(), rename() and remove() of the C
// library are replaced.
#pragma once

#include <atomic>
#include <functional>

namespace tandem::ps::testing {

enum class Fault { kNone, kKill, kError };

struct FileFaults {
  std::atomic<Fault> fault{Fault::kNone};
  std::atomic<int> steps_until{0};
  std::atomic<int> steps{0};
  std::function<void()> before_rename, before_write;

  void arm(Fault what, int step) {
    steps = 0;
    steps_until = step;
    fault = what;
  }
  void disarm() { fault = Fault::kNone; }
  // Counts an operation. Whether this one fails; `part` happens before the process is killed.
  bool fails(const std::function<void()>& part = [] {});
};
FileFaults& file_faults();

}  // namespace tandem::ps::testing
