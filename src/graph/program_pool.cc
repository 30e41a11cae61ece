#include "graph/program_pool.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace tandem {
namespace {

// The cores of the machine: OMP_NUM_THREADS limits those that one caller uses.
std::size_t max_instances() {
  return std::max<std::size_t>(2, std::thread::hardware_concurrency());
}

}  // namespace

ProgramPool::ProgramPool(std::unique_ptr<Program> first)
    : concurrent_(first->concurrent()), instances_(concurrent_ ? max_instances() : 1) {
  instances_[0].program = std::move(first);
  begin();
}

// The first ones first, so that as few as possible are made.
ProgramPool::Instance* ProgramPool::try_take() {
  for (Instance& instance : instances_) {
    std::thread::id taken = instance.taken.load();
    if (taken == std::thread::id() &&
        instance.taken.compare_exchange_strong(taken, std::this_thread::get_id()))
      return &instance;
  }
  return nullptr;
}

ProgramPool::Instance& ProgramPool::take_instance() {
  if (Instance* const instance = try_take()) [[likely]]
    return *instance;
  std::unique_lock lock(mutex_);
  waiting_.fetch_add(1);
  Instance* instance = nullptr;
  given_back_.wait(lock, [&] { return (instance = try_take()) != nullptr; });
  waiting_.fetch_sub(1);
  return *instance;
}

// Sequentially consistent: either this sees the thread that waits, or that one sees the instance.
void ProgramPool::give_back(Instance& instance) {
  instance.taken.store({});
  if (waiting_.load() == 0) [[likely]]
    return;
  { const std::lock_guard lock(mutex_); }  // after which a thread that saw no instance waits
  given_back_.notify_one();
}

// Nothing gives back the instances of lost threads. Their programs are in the middle of a run, and
// are never destroyed.
void ProgramPool::forked(bool) {
  waiting_ = 0;
  for (Instance& instance : instances_) {
    const std::thread::id taken = instance.taken.load();
    if (taken == std::thread::id() || taken == std::this_thread::get_id()) continue;
    static_cast<void>(instance.program.release());
    instance.taken.store({});
  }
}

}  // namespace tandem
