// Runs one control flow operation of a program.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "graph/block.h"
#include "graph/program_step.h"

namespace tandem {

// The program of a body.
class BodyProgram {
 public:
  struct Destination {
    std::byte* memory = nullptr;
    DeviceImpl* device = nullptr;
  };

  virtual ~BodyProgram() = default;
  // Runs it with feeds at these addresses. The fetches are written to the given memory, which must
  // not overlap the feeds. Throws what a kernel throws.
  virtual void run_at(std::span<std::byte* const> feeds, std::span<const Destination> fetches) = 0;
};

// How the enclosing program builds the programs of its bodies. The enclosing program outlives them,
// and its threads run them.
struct BodyBuilder {
  // For a body that is built with the enclosing program and uses the same memory.
  std::function<std::unique_ptr<BodyProgram>(Block body)> build;
  // For a body that is built during a run of the enclosing program.
  std::function<std::unique_ptr<BodyProgram>(Block body, std::string name)> build_during_run;
};

// Carried values of a loop alternate between the operation's outputs and the extra buffers after
// them, or are kept for the gradient.
class ControlStep final : public LoneStep {
 public:
  // Builds the programs of the bodies. `step`: the operation's step, whose context has the
  // addresses of each run.
  ControlStep(const BlockOperation& operation, ProgramStep& step, BodyBuilder builder);
  ~ControlStep() override;
  ControlStep(const ControlStep&) = delete;
  ControlStep& operator=(const ControlStep&) = delete;

  const BlockOperation& operation() const override;
  // Throws what a body or the element source throws.
  void run() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
