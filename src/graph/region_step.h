// Runs one compiled region of a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/pjrt/client.h"
#include "graph/compiled_region.h"
#include "graph/program_step.h"

namespace tandem {

// Compiles the module of a region, or a loop of `times` runs of it, for its devices. Throws the
// plug-in's errors.
std::unique_ptr<pjrt::Executable> compile_region(const CompiledRegion& region, int times = 1);

// A run of a region that has not started.
struct RegionRun {
  struct Replica {
    std::vector<std::shared_ptr<pjrt::Buffer>> feeds;  // in the order of their parameters
    std::vector<std::byte*> results;                   // the memory of the fetches
    std::vector<double> numbers, doubles;
    std::vector<std::int64_t> keys;
  };
  std::vector<Replica> replicas;
};

// The executable of the region's module, and what each run passes to it. Results stay in the
// memory of the devices; the memory of a written variable becomes that of its new elements.
class RegionStep final : public LoneStep {
 public:
  // Compiles the module. `step`: the operation's step, whose context has the addresses of each run.
  RegionStep(const BlockOperation& operation, ProgramStep& step);
  ~RegionStep() override;
  RegionStep(const RegionStep&) = delete;
  RegionStep& operator=(const RegionStep&) = delete;

  const BlockOperation& operation() const override;
  // Does not wait for the devices. Throws the plug-in's errors.
  void run() override;
  // Whether several runs may be one program: the host needs nothing of one for the next.
  bool can_loop() const;
  // The next run, which is not started: with the addresses, numbers and keys of now.
  RegionRun next_run() const;
  // Runs them in this order, as one program, which is compiled once per number of runs. The
  // variables have their addresses of now.
  void run(const std::vector<RegionRun>& runs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
