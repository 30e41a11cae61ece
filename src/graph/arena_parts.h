// The parts of its arenas that one program has, and what points there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "graph/lanes.h"
#include "graph/program_memory.h"

namespace tandem {

// A view of a step into memory that is known at the run only.
struct Binding {
  Step* step;
  bool output;
  int index;
  std::int64_t offset;
  void set(std::byte* memory) const {
    auto& views = output ? step->context.outputs : step->context.inputs;
    views[index].data = memory + offset;
  }
};

// Where the values of a program are in the arenas: behind those of the programs around it.
struct ArenaPlace {
  ProgramArenas& arenas;
  std::vector<std::size_t> begin;  // in each arena; 0 in those that are added later
};

class ArenaParts {
 public:
  explicit ArenaParts(ArenaPlace place) : place_(std::move(place)) {}

  // --- While the program is made ---

  // Which arena is the device's.
  std::size_t arena_on(const Device& device) { return part_on(device).arena; }
  // The program's own values take that much. Once a device.
  void take(const Device& device, std::size_t bytes);
  // `binding.offset` counts from the beginning of the program's part.
  void add(const Device& device, const Binding& binding) {
    part_on(device).bindings.push_back(binding);
  }
  // Where bodies are, which run one after the other and leave nothing there.
  ArenaPlace place_of_bodies() const;

  // --- While it runs ---

  // Sets what points to the arenas, where they are not those of the last run. Whether something
  // had pointed elsewhere.
  bool bind();

 private:
  struct Part {
    const Device* device = nullptr;
    std::size_t arena = 0;
    std::size_t begin = 0, bytes = 0;
    std::vector<Binding> bindings;
    std::byte* bound = nullptr;
  };
  Part& part_on(const Device& device);

  ArenaPlace place_;
  std::vector<Part> parts_;
};

}  // namespace tandem
