// What runs when a dataset is iterated over: streams of elements, or of row numbers where the
// source is a set of tensors in memory, so that choosing rows touches no data until it must.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "device/device_manager.h"
#include "graph/graph.h"
#include "runtime/placement.h"
#include "tandem/autodiff.h"
#include "tandem/data.h"

namespace tandem::data {

// Set while a stream runs on a thread whose consumer may go away: the consumer sets the flag, and
// loops that could keep its destructor waiting ask for it.
inline constinit thread_local const std::atomic<bool>* cancel_flag = nullptr;
struct Cancelled {};
inline void check_cancelled() {
  if (cancel_flag && cancel_flag->load(std::memory_order_relaxed)) throw Cancelled();
}

// Waits for a condition; a thread whose consumer goes away meanwhile throws Cancelled.
template <class Condition>
void wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
              const Condition& condition) {
  if (!cancel_flag) return changed.wait(lock, condition);
  while (!changed.wait_for(lock, std::chrono::milliseconds(20), condition)) check_cancelled();
}

// One pass over a sequence of items. Not thread-safe. After an exception it is at its end.
template <class Item>
class Stream {
 public:
  virtual ~Stream() = default;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The next item in `item`, or false at the end; then it stays there.
  virtual bool next(Item& item) = 0;
  // Passes over up to `count` items and returns how many there were: fewer only at the end.
  virtual std::int64_t skip(std::int64_t count) {
    Item item;
    std::int64_t skipped = 0;
    for (; skipped < count && next(item); ++skipped) check_cancelled();
    return skipped;
  }
};

template <class Item>
using StreamPtr = std::unique_ptr<Stream<Item>>;

// What everything in a pipeline runs under: at once, also where a graph is built; its placement,
// recording and accounting.
class PipelineScope {
  BuildingScope at_once_{nullptr};
  OnDevice device_{DeviceManager::get().host()};
  NoGradScope no_grad_;
  MemoryTagScope tag_{MemoryTag::kOther};
};

}  // namespace tandem::data
