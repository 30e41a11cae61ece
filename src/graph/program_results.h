// The values of a program that leave it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "graph/arena_parts.h"
#include "graph/block.h"
#include "graph/control_step.h"
#include "graph/program_memory.h"
#include "graph/program_values.h"

namespace tandem {

// A computed value that is fetched. Its memory is reused if no tensor refers to it any more.
struct ProgramResult {
  External external;
  std::size_t arena = 0, number = 0;  // see ProgramMemory::Arena::result()
  std::byte* given = nullptr;         // during a run, the memory to write to
};

class ProgramResults {
 public:
  explicit ProgramResults(ProgramArenas& arenas) : arenas_(arenas) {}

  // --- While the program is made ---

  void add_fetches(const Block& block, ArenaParts& parts);
  // Null if the value does not leave the program.
  ProgramResult* find(const Value& value) const;

  // --- While it runs ---

  template <class F>
  void for_each_external(const F& call) {
    for (auto& [value, result] : by_value_) call(result->external);
  }
  // Lets the results of the next run write there: one address per fetch, and the device of it.
  void give(const Block& block, std::span<const BodyProgram::Destination> destinations);
  // Finds memory for all results.
  void bind();
  void copy_from_staging();
  // The tensors of the fetches. `feeds`: those of the run.
  void fetch(const Block& block, std::span<const Tensor> feeds, std::vector<Tensor>& fetches);
  // The elements of a fetch. `feeds`: the memory of those of the run.
  const std::byte* memory_of(const Value& fetch, std::span<std::byte* const> feeds) const;

 private:
  void bind(ProgramResult& result);
  Tensor& tensor_of(const ProgramResult& result) const {
    return arenas_.result(result.arena, result.number);
  }
  Tensor fetched(const Value& fetch, std::span<const Tensor> feeds) const;

  ProgramArenas& arenas_;
  std::unordered_map<const Value*, std::unique_ptr<ProgramResult>> by_value_;
};

}  // namespace tandem
