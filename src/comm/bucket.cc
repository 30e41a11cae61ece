#include "comm/bucket.h"

#include <cstring>

#include "core/clones.h"
#include "core/parallel.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kGrain = 32 << 10;  // elements worth a thread

template <class T>
TANDEM_CLONES void scale_range(T* to, const T* from, std::int64_t count, T scale) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] * scale;
}

// In float32, rounded once.
template <class T>
TANDEM_CLONES void scale_small(T* to, const T* from, std::int64_t count, float scale) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = static_cast<T>(static_cast<float>(from[i]) * scale);
}

template <class T>
void scale_into(void* to, const void* from, std::int64_t count, double scale) {
  auto* target = static_cast<T*>(to);
  const auto* source = static_cast<const T*>(from);
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_floating_point_v<T>)
      scale_range(target + begin, source + begin, end - begin, static_cast<T>(scale));
    else
      scale_small(target + begin, source + begin, end - begin, static_cast<float>(scale));
  });
}

}  // namespace

Bucket::Bucket(Communicator& communicator, std::span<const std::int64_t> counts, DType dtype)
    : communicator_(&communicator), dtype_(dtype), counts_(counts.begin(), counts.end()) {
  const std::int64_t line = kAlignment / static_cast<std::int64_t>(size_of(dtype));
  for (std::int64_t count : counts_) {
    offsets_.push_back(total_);
    total_ += (count + line - 1) / line * line;
  }
  renew();
}

void Bucket::renew() {
  const std::size_t bytes = whole().bytes();
  const MemoryTagScope tag(MemoryTag::kGradients);
  memory_ = communicator_->allocate(bytes);
  if (bytes == 0) return;
  if (device().host_accessible()) {
    std::memset(memory_.get(), 0, bytes);
    return;
  }
  const std::vector<std::byte> zeros(bytes);
  device().copy_from_host(memory_.get(), zeros.data(), bytes);
}

Buffer Bucket::array(std::size_t index) const {
  if (!memory_) return {nullptr, 0, dtype_};
  return {static_cast<std::byte*>(memory_.get()) +
              static_cast<std::size_t>(offsets_[index]) * size_of(dtype_),
          counts_[index], dtype_};
}

void Bucket::put(std::size_t index, const void* from, double scale) {
  const Buffer to = array(index);
  if (to.count == 0) return;
  if (!device().host_accessible()) {
    TANDEM_ASSERT(scale == 1.0);
    if (from != to.data) copy_between(device(), to.data, device(), from, to.bytes());
    return;
  }
  if (scale == 1.0) {
    if (from != to.data) std::memcpy(to.data, from, to.bytes());
    return;
  }
  switch (dtype_) {
    case DType::kFloat32: return scale_into<float>(to.data, from, to.count, scale);
    case DType::kFloat64: return scale_into<double>(to.data, from, to.count, scale);
    case DType::kFloat16: return scale_into<Half>(to.data, from, to.count, scale);
    case DType::kBFloat16: return scale_into<BFloat16>(to.data, from, to.count, scale);
    default: fail<InternalError>("[Bucket] {} elements cannot be scaled", name_of(dtype_));
  }
}

void Bucket::put_zeros(std::size_t index) {
  const Buffer to = array(index);
  if (to.count == 0) return;
  if (device().host_accessible()) {
    std::memset(to.data, 0, to.bytes());
    return;
  }
  const std::vector<std::byte> zeros(to.bytes());
  device().copy_from_host(to.data, zeros.data(), to.bytes());
}

void Bucket::take(std::size_t index, void* to) const {
  const Buffer from = array(index);
  if (from.count == 0 || to == from.data) return;
  if (device().host_accessible())
    std::memcpy(to, from.data, from.bytes());
  else
    copy_between(device(), to, device(), from.data, from.bytes());
}

}  // namespace tandem
