// A bucket: several arrays packed into one buffer, which one collective reduces.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace tandem {

// Arrays of one dtype, packed one after the other into memory from the communicator. Each starts at
// a multiple of 64 bytes; the gaps are zero. All copies run on the stream of the communicator's
// device. One thread at a time.
class Bucket {
 public:
  // Allocates memory as Communicator::allocate() does.
  using Allocate = std::function<std::shared_ptr<void>(std::size_t bytes)>;

  // `counts`: the elements of each array. `communicator` must outlive the bucket.
  Bucket(Communicator& communicator, std::span<const std::int64_t> counts, DType dtype)
      : Bucket(
            communicator.device(),
            [&communicator](std::size_t bytes) { return communicator.allocate(bytes); }, counts,
            dtype) {}
  // The same, in memory of `device` that `allocate` returns.
  Bucket(DeviceImpl& device, Allocate allocate, std::span<const std::int64_t> counts, DType dtype);

  std::size_t size() const { return counts_.size(); }
  DType dtype() const { return dtype_; }
  DeviceImpl& device() const { return *device_; }
  // The bytes that an array occupies in a bucket, with its padding.
  static std::size_t array_bytes(std::int64_t count, DType dtype);
  // The whole bucket, as a collective takes it.
  Buffer whole() const { return {memory_.get(), total_, dtype_}; }
  // One array.
  Buffer array(std::size_t index) const;
  // Shared ownership of the memory, which may outlive the bucket and a replace_memory().
  const std::shared_ptr<void>& memory() const { return memory_; }
  // Whether anyone else owns the memory. If not, the last owner's use of it has ended.
  bool kept() const;
  std::size_t capacity() const { return capacity_; }  // bytes

  // Copies an array from `from`, in memory of the device, into the bucket and multiplies it by
  // `scale`. `from` may already be its position in the bucket. REQUIRES: scale == 1, or a floating
  // dtype in host-accessible memory.
  void put(std::size_t index, const void* from, double scale = 1.0) {
    put(index, from, dtype_, scale);
  }
  // The same, for elements of another dtype. REQUIRES: dtypes that copy_scaled() accepts;
  // host-accessible memory unless the dtype is the bucket's and `scale` is 1.
  void put(std::size_t index, const void* from, DType dtype, double scale);
  void put_zeros(std::size_t index);
  // Copies an array out of the bucket.
  void take(std::size_t index, void* to) const;
  // Switches to new memory of unspecified contents. Other owners may continue to read the old one.
  void replace_memory();
  // Switches to other arrays, of unspecified contents. Reuses the memory if it is large enough and
  // has no other owner.
  void assign(std::span<const std::int64_t> counts, DType dtype);

 private:
  void lay_out(std::span<const std::int64_t> counts, DType dtype);
  void clear_gaps();

  DeviceImpl* device_;
  Allocate allocate_;
  DType dtype_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> offsets_;  // elements
  std::int64_t total_ = 0;
  std::size_t capacity_ = 0;  // bytes
  std::shared_ptr<void> memory_;
};

}  // namespace tandem
