#include "comm/bucket.h"

#include <bit>
#include <cstring>
#include <utility>

#include "comm/scaled_copy.h"
#include "core/status.h"
#include "device/copy.h"

namespace tandem {

constexpr std::size_t kAlignment = 64;

std::size_t Bucket::array_bytes(std::int64_t count, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool Bucket::kept() const {
  const bool others = memory_.use_count() > 1;
  std::shared_ptr<void>(memory_).reset();  // acquires what the previous owner released
  return others;
}

Bucket::Bucket(DeviceImpl& device, Allocate allocate, std::span<const std::int64_t> counts,
               DType dtype)
    : device_(&device), allocate_(std::move(allocate)) {
  lay_out(counts, dtype);
  replace_memory();
}

void Bucket::lay_out(std::span<const std::int64_t> counts, DType dtype) {
  dtype_ = dtype;
  counts_.assign(counts.begin(), counts.end());
  offsets_.clear();
  total_ = 0;
  for (std::int64_t count : counts_) {
    offsets_.push_back(total_);
    total_ += static_cast<std::int64_t>(array_bytes(count, dtype) / size_of(dtype));
  }
  capacity_ = std::max(capacity_, whole().bytes());
}

void Bucket::replace_memory() {
  const Scoped tag(memory_tag, MemoryTag::kGradients);
  memory_ = allocate_(capacity_);
  clear_gaps();
}

void Bucket::assign(std::span<const std::int64_t> counts, DType dtype) {
  const std::size_t before = capacity_;
  lay_out(counts, dtype);
  const bool was_kept = kept();
  if (capacity_ == before && !was_kept) {
    clear_gaps();
    return;
  }
  memory_.reset();
  capacity_ = std::bit_ceil(std::max<std::size_t>(capacity_, 64 << 10));
  replace_memory();
}

// Zeroes the padding, so that uninitialised memory is never sent.
void Bucket::clear_gaps() {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const std::int64_t end = i + 1 < counts_.size() ? offsets_[i + 1] : total_;
    const auto gap = static_cast<std::size_t>(end - offsets_[i] - counts_[i]) * size_of(dtype_);
    if (gap == 0) continue;
    std::byte* at = static_cast<std::byte*>(memory_.get()) +
                    static_cast<std::size_t>(offsets_[i] + counts_[i]) * size_of(dtype_);
    if (device().host_accessible()) {
      std::memset(at, 0, gap);
    } else {
      const std::byte zeros[kAlignment] = {};
      device().copy_from_host(at, zeros, gap);
    }
  }
}

Buffer Bucket::array(std::size_t index) const {
  if (!memory_) return {nullptr, 0, dtype_};
  return {static_cast<std::byte*>(memory_.get()) +
              static_cast<std::size_t>(offsets_[index]) * size_of(dtype_),
          counts_[index], dtype_};
}

void Bucket::put(std::size_t index, const void* from, DType dtype, double scale) {
  const Buffer to = array(index);
  if (to.count == 0) return;
  if (!device().host_accessible()) {
    TANDEM_ASSERT(scale == 1.0 && dtype == dtype_);
    if (from != to.data) copy_between(device(), to.data, device(), from, to.bytes());
    return;
  }
  copy_scaled(to.data, dtype_, from, dtype, to.count, scale);
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
