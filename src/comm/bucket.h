// A bucket: several arrays as one buffer, which one collective combines.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace tandem {

// Arrays of one dtype behind each other in memory of the communicator's. Each starts at a multiple
// of 64 bytes; what lies between them is zero. Everything runs on the stream of the communicator's
// device. Belongs to one thread at a time.
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
  // The same in memory of `device` that `allocate` gives.
  Bucket(Device& device, Allocate allocate, std::span<const std::int64_t> counts, DType dtype);

  std::size_t size() const { return counts_.size(); }
  DType dtype() const { return dtype_; }
  Device& device() const { return *device_; }
  // What an array takes in a bucket.
  static std::size_t array_bytes(std::int64_t count, DType dtype);
  // Everything, as the collective takes it.
  Buffer whole() const { return {memory_.get(), total_, dtype_}; }
  // One array.
  Buffer array(std::size_t index) const;
  // Keeps the memory, also behind renew() and the bucket's end.
  const std::shared_ptr<void>& memory() const { return memory_; }
  // Whether somebody else keeps the memory. If not, what the last keeper did with it is over.
  bool kept() const;
  std::size_t capacity() const { return capacity_; }  // bytes

  // Copies an array's elements, in memory of the device, into the bucket, times `scale`; `from` may
  // be their place in it. REQUIRES: scale == 1, or a floating dtype in memory that the host
  // reaches.
  void put(std::size_t index, const void* from, double scale = 1.0) {
    put(index, from, dtype_, scale);
  }
  // The same for elements of another dtype. REQUIRES: dtypes as copy_scaled() takes them, and
  // memory that the host reaches unless the dtype is the bucket's and `scale` 1.
  void put(std::size_t index, const void* from, DType dtype, double scale);
  void put_zeros(std::size_t index);
  // Copies an array's elements out.
  void take(std::size_t index, void* to) const;
  // Goes on in other memory, whose arrays hold anything: whoever keeps the present one may go on
  // reading it.
  void renew();
  // Takes other arrays, which hold anything; in the memory that it has, where that is large enough
  // and nobody else keeps it.
  void assign(std::span<const std::int64_t> counts, DType dtype);

 private:
  void lay_out(std::span<const std::int64_t> counts, DType dtype);
  void clear_gaps();

  Device* device_;
  Allocate allocate_;
  DType dtype_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> offsets_;  // elements
  std::int64_t total_ = 0;
  std::size_t capacity_ = 0;  // bytes
  std::shared_ptr<void> memory_;
};

}  // namespace tandem
