// Runs one compiled region of a program.
#pragma once

#include <memory>

#include "device/pjrt/client.h"
#include "graph/compiled_region.h"
#include "graph/program_step.h"

namespace tandem {

// Compiles the module of a region for its devices. Throws the plug-in's errors.
std::unique_ptr<pjrt::Executable> compile_region(const CompiledRegion& region);

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

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
