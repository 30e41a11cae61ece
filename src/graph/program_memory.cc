#include "graph/program_memory.h"

#include <algorithm>
#include <utility>

#include "core/mutex.h"

namespace tandem {

std::shared_ptr<ProgramMemory> ProgramMemory::make() {
  const std::shared_ptr<ProgramMemory> memory(new ProgramMemory, [](ProgramMemory* ended) {
    forget_at_fork(ended->mutex_);
    delete ended;
  });
  hold_at_fork(memory->mutex_);
  register_idle_memory(memory);
  return memory;
}

bool ProgramMemory::Arena::fit(std::uint64_t program, std::size_t bytes, std::size_t results) {
  if (program_ != program) {
    results_.clear();
    results_.resize(results);
    program_ = program;
  }
  if (bytes <= bytes_) return true;
  free_block();  // first, so that both need not fit at the same time
  const Scoped tag(memory_tag, MemoryTag::kActivations);
  memory_ = static_cast<std::byte*>(device_.allocator().allocate(bytes));
  if (memory_) bytes_ = bytes;
  return memory_ != nullptr;
}

void ProgramMemory::Arena::free() {
  results_.clear();
  program_ = 0;
  free_block();
}

void ProgramMemory::Arena::free_block() {
  if (memory_) device_.allocator().deallocate(memory_);
  memory_ = nullptr;
  bytes_ = 0;
}

std::shared_ptr<ProgramMemory::Arena> ProgramMemory::take(DeviceImpl& device) {
  const std::lock_guard lock(mutex_);
  auto& arenas = arenas_[&device];
  for (const auto& arena : arenas)
    if (arena->try_take()) return arena;
  const auto& added = arenas.emplace_back(std::make_shared<Arena>(device));
  added->try_take();
  return added;
}

std::shared_ptr<ProgramMemory> ProgramMemory::inner() {
  const std::lock_guard lock(mutex_);
  if (!inner_) inner_ = make();
  return inner_;
}

void ProgramMemory::release(const DeviceImpl& device) {
  const std::lock_guard lock(mutex_);
  const auto found = arenas_.find(&device);
  if (found == arenas_.end()) return;
  for (const auto& arena : found->second) {
    if (!arena->try_take()) continue;
    arena->free();
    arena->give_back();
  }
}

namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

ProgramArenas::ProgramArenas(std::shared_ptr<ProgramMemory> memory)
    : memory_(std::move(memory)), program_(next_number()) {}

std::size_t ProgramArenas::of(DeviceImpl& device) {
  const auto found = std::find_if(arenas_.begin(), arenas_.end(), [&](const DeviceArena& arena) {
    return arena.device == &device;
  });
  if (found != arenas_.end()) return static_cast<std::size_t>(found - arenas_.begin());
  arenas_.push_back({.device = &device});
  return arenas_.size() - 1;
}

void ProgramArenas::need(std::size_t arena, std::size_t bytes) {
  arenas_[arena].bytes = std::max(arenas_[arena].bytes, bytes);
}

std::size_t ProgramArenas::bytes_on(const DeviceImpl& device) const {
  for (const DeviceArena& arena : arenas_)
    if (arena.device == &device) return arena.bytes;
  return 0;
}

DeviceImpl* ProgramArenas::take() {
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    DeviceArena& arena = arenas_[i];
    if (!arena.taken || !arena.taken->try_take()) arena.taken = memory_->take(*arena.device);
    if (arena.taken->fit(program_, arena.bytes, arena.results)) continue;
    give_back(i + 1);
    return arena.device;
  }
  return nullptr;
}

void ProgramArenas::give_back() { give_back(arenas_.size()); }

void ProgramArenas::give_back(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) arenas_[i].taken->give_back();
}

void ProgramArenas::free() {
  for (DeviceArena& arena : arenas_) arena.taken->free();
}

}  // namespace tandem
