#include "graph/arena_parts.h"

namespace tandem {

ArenaParts::Part& ArenaParts::part_on(const DeviceImpl& device) {
  for (Part& part : parts_)
    if (part.device == &device) return part;
  const std::size_t arena = place_.arenas.of(const_cast<DeviceImpl&>(device));
  const std::size_t begin = arena < place_.begin.size() ? place_.begin[arena] : 0;
  return parts_.emplace_back(Part{.device = &device, .arena = arena, .begin = begin});
}

void ArenaParts::take(const DeviceImpl& device, std::size_t bytes) {
  Part& part = part_on(device);
  part.bytes = bytes;
  place_.arenas.need(part.arena, part.begin + bytes);
}

ArenaRegion ArenaParts::place_of_bodies() const {
  ArenaRegion place = place_;
  for (const Part& part : parts_) {
    if (place.begin.size() <= part.arena) place.begin.resize(part.arena + 1);
    place.begin[part.arena] = part.begin + part.bytes;
  }
  return place;
}

bool ArenaParts::bind() {
  bool moved = false;
  for (Part& part : parts_) {
    std::byte* const arena = place_.arenas.memory(part.arena);
    std::byte* const memory = arena ? arena + part.begin : nullptr;
    if (memory == part.bound) continue;
    moved = moved || part.bound;
    part.bound = memory;
    for (const Binding& binding : part.bindings) binding.set(memory);
  }
  return moved;
}

}  // namespace tandem
