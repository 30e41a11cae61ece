#include "device/mmap_memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace tandem {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHugeFrom = std::size_t{4} << 20;

char* map_pages(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

std::size_t whole_pages(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

void* map_memory(std::size_t bytes) {
  bytes = whole_pages(bytes);
  if (bytes < kHugeFrom) return map_pages(bytes);
  char* memory = map_pages(bytes + kHugePage);
  if (memory == nullptr) return nullptr;
  const std::size_t before =
      (kHugePage - reinterpret_cast<std::uintptr_t>(memory) % kHugePage) % kHugePage;
  if (before > 0) munmap(memory, before);
  if (before < kHugePage) munmap(memory + before + bytes, kHugePage - before);
  madvise(memory + before, bytes, MADV_HUGEPAGE);  // a hint: if it is refused, small pages are used
  return memory + before;
}

void unmap_memory(void* memory, std::size_t bytes) noexcept { munmap(memory, whole_pages(bytes)); }

std::int64_t physical_memory() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace tandem
