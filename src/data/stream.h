// The streams that run when a dataset is iterated over. Their items are elements, or row indices if
// the source is tensors in memory: then selecting and shuffling rows moves no data.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "device/device_manager.h"
#include "graph/graph.h"
#include "runtime/placement.h"
#include "tandem/autodiff.h"
#include "tandem/data.h"

namespace tandem::data {

// Thrown by long loops and waits on a thread that runs a stream for a consumer that is destroyed:
// its destructor sets context.cancelled and joins the thread.
struct Cancelled {};
inline void check_cancelled() {
  if (context.cancelled && context.cancelled->load(std::memory_order_relaxed)) throw Cancelled();
}

// Waits for a condition. Throws Cancelled if the thread's consumer is destroyed meanwhile.
template <class Condition>
void wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
              const Condition& condition) {
  if (!context.cancelled) return changed.wait(lock, condition);
  while (!changed.wait_for(lock, std::chrono::milliseconds(20), condition)) check_cancelled();
}

struct Selection;

// One pass over a sequence of items. Not thread-safe. After an exception it has ended.
template <class Item>
class ItemStream {
 public:
  virtual ~ItemStream() = default;
  ItemStream() = default;
  ItemStream(const ItemStream&) = delete;
  ItemStream& operator=(const ItemStream&) = delete;

  // Stores the next item in `item`. Returns false at the end, and from then on.
  virtual bool next(Item& item) = 0;
  // Skips up to `count` items and returns how many it skipped: fewer only at the end.
  virtual std::int64_t skip(std::int64_t count) {
    Item item;
    std::int64_t skipped = 0;
    for (; skipped < count && next(item); ++skipped) check_cancelled();
    return skipped;
  }
  // From the start, yields the selected elements alone and makes no others. Called before the first
  // next() and skip(). Returns false, and changes nothing, if they cost as much as those skipped.
  virtual bool select(const Selection&) { return false; }
};

template <class Item>
using StreamPtr = std::unique_ptr<ItemStream<Item>>;

// The scopes under which pipelines run: eagerly, also while a function is traced; on the host;
// without gradients and casts, also on a consumer's thread; with memory accounted as kOther.
class PipelineScope {
  Scoped<GraphImpl*> eager_{context.graph, nullptr};
  OnDevice device_{DeviceManager::get().host()};
  NoGradScope no_grad_;
  Scoped<std::optional<AutocastSettings>> autocast_{context.autocast, std::nullopt};
  Scoped<std::optional<DType>> weight_dtype_{context.weight_dtype, std::nullopt};
  Scoped<MemoryTag> tag_{memory_tag, MemoryTag::kOther};
};

}  // namespace tandem::data
