// The values of a program whose memory is outside its arenas.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/device_memory.h"
#include "device/copy.h"
#include "graph/memory_plan.h"

namespace tandem {

// A feed, a result or a variable: its address may differ in each run.
struct External {
  const Value* value = nullptr;  // a feed or a result
  std::vector<Binding> bindings;
  std::byte* bound = nullptr;
  bool moves = false;             // whether its address has changed between runs
  std::shared_ptr<void> staging;  // a staging buffer, copied in or out in each run; may be null

  void bind(std::byte* memory) {
    if (staging) memory = static_cast<std::byte*>(staging.get());
    if (memory == bound) return;
    moves = bound != nullptr;
    bound = memory;
    for (const Binding& binding : bindings) binding.set(memory);
  }
  void copy(void* to, const void* from) const {
    copy_between(*value->device, to, *value->device, from, value->bytes());
  }
};

struct VariableUse {
  RefPtr<Resource> resource;
  bool written = false;
  std::uint64_t version = 0;  // in the bindings
  External external;
  Tensor value;  // during a run
};

}  // namespace tandem
