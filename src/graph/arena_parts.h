// The memory of one program within its arenas, and the tensor views that point there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "graph/program_memory.h"
#include "graph/program_step.h"

namespace tandem {

// A tensor view of a step whose memory is known only when the program runs.
struct Binding {
  ProgramStep* step;
  bool output;
  int index;
  std::int64_t offset;
  void set(std::byte* memory) const { view().data = memory + offset; }
  TensorView& view() const {
    return (output ? step->context.outputs : step->context.inputs)[index];
  }
};

// Where the values of a program begin in each arena: after those of the programs that contain it.
struct ArenaRegion {
  ProgramArenas& arenas;
  std::vector<std::size_t> begin;  // in each arena; 0 in those that are added later
};

class ArenaParts {
 public:
  explicit ArenaParts(ArenaRegion place) : place_(std::move(place)) {}

  // --- While the program is made ---

  // The index of the device's arena.
  std::size_t arena_on(const DeviceImpl& device) { return part_on(device).arena; }
  // Reserves `bytes` for the program's own values. Called once per device.
  void take(const DeviceImpl& device, std::size_t bytes);
  // `binding.offset` is relative to the beginning of the program's memory.
  void add(const DeviceImpl& device, const Binding& binding) {
    part_on(device).bindings.push_back(binding);
  }
  // The region of bodies. They run one after another and keep nothing there, so they share it.
  ArenaRegion place_of_bodies() const;

  // --- While it runs ---

  // Updates the bindings if the arenas are not those of the last run. Returns whether a view that
  // had pointed elsewhere has changed.
  bool bind();

 private:
  struct Part {
    const DeviceImpl* device = nullptr;
    std::size_t arena = 0;
    std::size_t begin = 0, bytes = 0;
    std::vector<Binding> bindings;
    std::byte* bound = nullptr;
  };
  Part& part_on(const DeviceImpl& device);

  ArenaRegion place_;
  std::vector<Part> parts_;
};

}  // namespace tandem
