// A program: a block as one list of kernel calls per device. All addresses except those of feeds,
// variables and results are fixed when the program is built. A run allocates only its results.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/block.h"
#include "graph/program_memory.h"

namespace tandem {

struct ProgramOptions {
  std::string name;                       // of the function or model, for messages
  std::shared_ptr<ProgramMemory> memory;  // null for memory of its own
};

// One of several runs.
struct ProgramRun {
  std::span<const Tensor> feeds;
  std::vector<Tensor>* fetches = nullptr;
};

class Program {
 public:
  // REQUIRES: the devices outlive the program.
  explicit Program(Block block, ProgramOptions options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Runs the operations: those of each device in order, the devices in parallel. Sets the fetches,
  // which reuse memory of an earlier run if no tensor refers to it any more. `feeds`: of the shapes
  // and on the devices that the block was lowered for. Not thread-safe: one run at a time. Throws
  // what a kernel throws. Throws ResourceExhaustedError, before any operation has run, if its
  // values do not fit.
  void run(std::span<const Tensor> feeds, std::vector<Tensor>& fetches);
  std::vector<Tensor> run(std::span<const Tensor> feeds);
  // Whether other instances of the program may run at the same time: it writes no variables, has no
  // random numbers, control flow and collectives, and is on one CPU.
  bool concurrent() const { return concurrent_; }
  // Does as run() for each, and calls `after_each` after each. If the whole program is one compiled
  // region, its devices run all of them as one program: `after_each` is then called before that,
  // when the numbers of the next run may change.
  void run_in_order(std::span<ProgramRun> runs, const std::function<void()>& after_each);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  bool concurrent_ = false;
};

}  // namespace tandem
