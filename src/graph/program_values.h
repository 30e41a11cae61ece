// What a program takes from outside its arenas and gives out of them.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/device_memory.h"
#include "graph/memory_plan.h"

namespace tandem {

// A feed, a result or a variable: memory that may be elsewhere in each run.
struct External {
  const Value* value = nullptr;  // a feed or a result
  std::vector<Binding> bindings;
  std::byte* bound = nullptr;
  bool moves = false;           // it has been bound to other memory before
  std::shared_ptr<void> fixed;  // where it is in every run, copied in or out; null: as given

  void bind(std::byte* memory) {
    if (fixed) memory = static_cast<std::byte*>(fixed.get());
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
  External external;
  Tensor value;  // during a run
};

// A value that leaves the program. Its memory is kept from run to run while nobody else holds it.
struct Result {
  External external;
  std::size_t arena = 0, number = 0;  // where its tensor is kept
  std::byte* given = nullptr;         // during a run: where it goes
};

}  // namespace tandem
