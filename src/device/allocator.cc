#include "device/allocator.h"

#include <fmt/format.h>

namespace tandem {

constinit thread_local MemoryTag memory_tag = MemoryTag::kActivations;

namespace {

constexpr const char* kTagNames[kMemoryTags] = {"weights",   "activations", "gradients",
                                                "optimizer", "workspace",   "other"};

}  // namespace

const char* name_of(MemoryTag tag) { return kTagNames[static_cast<std::size_t>(tag)]; }

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1048576.0);
}

}  // namespace tandem
