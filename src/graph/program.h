// A program: a block as lists of kernels, one a device, with every address but those of feeds,
// variables and results fixed beforehand. A run allocates nothing besides what it gives away.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "graph/block.h"

namespace tandem {

class LaneTeam;

class Program {
 public:
  // REQUIRES: the devices outlive the program. Throws ResourceExhaustedError.
  explicit Program(Block block);
  // The same for a body, run by the threads of the program around it, which outlive it.
  Program(Block block, LaneTeam& team);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Runs the operations, those of each device in order, the devices side by side, and sets the
  // fetches: in memory of an earlier run where nobody holds it any more. `feeds`: of the shapes and
  // on the devices that the block was lowered for. One run at a time. Throws what a kernel throws.
  void run(std::span<const Tensor> feeds, std::vector<Tensor>& fetches);
  std::vector<Tensor> run(std::span<const Tensor> feeds);

  struct Place {
    std::byte* memory = nullptr;
    Device* device = nullptr;
  };
  // The same with feeds at these addresses, and with the fetches put into memory that is given, of
  // which no part is fed.
  void run_at(std::span<std::byte* const> feeds, std::span<const Place> fetches);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
