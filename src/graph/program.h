// A program: a block as lists of kernels, one a device, with every address but those of feeds,
// variables and results fixed beforehand. A run allocates nothing besides what it gives away.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/block.h"
#include "graph/program_memory.h"

namespace tandem {

class LaneTeam;
struct ArenaPlace;

struct ProgramOptions {
  std::string name;                       // in messages: of the function or model that it is from
  std::shared_ptr<ProgramMemory> memory;  // null: its own
};

class Program {
 public:
  // REQUIRES: the devices outlive the program.
  explicit Program(Block block, ProgramOptions options = {});
  // A body, run by the threads of the program around it. Both outlive it.
  Program(Block block, LaneTeam& team, const ArenaPlace& place);
  // The same for a body that is made during a run of the program around it.
  Program(Block block, LaneTeam& team, ProgramOptions options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Runs the operations, those of each device in order, the devices side by side, and sets the
  // fetches: in memory of an earlier run where nobody holds it any more. `feeds`: of the shapes and
  // on the devices that the block was lowered for. One run at a time. Throws what a kernel throws,
  // and ResourceExhaustedError before anything has run where its values do not fit.
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
