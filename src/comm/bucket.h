// A bucket: several arrays as one buffer, which one collective combines.
#pragma once

#include <cstdint>
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
  // `counts`: the elements of each array.
  Bucket(Communicator& communicator, std::span<const std::int64_t> counts, DType dtype);

  std::size_t size() const { return counts_.size(); }
  DType dtype() const { return dtype_; }
  Device& device() const { return communicator_->device(); }
  // Everything, as the collective takes it.
  Buffer whole() const { return {memory_.get(), total_, dtype_}; }
  // One array.
  Buffer array(std::size_t index) const;
  // Keeps the memory, also behind renew() and the bucket's end.
  const std::shared_ptr<void>& memory() const { return memory_; }

  // Copies an array's elements, in memory of the device, into the bucket, times `scale`; `from` may
  // be their place in it. REQUIRES: scale == 1, or a floating dtype in memory that the host reaches.
  void put(std::size_t index, const void* from, double scale = 1.0);
  void put_zeros(std::size_t index);
  // Copies an array's elements out.
  void take(std::size_t index, void* to) const;
  // Goes on in other memory, whose arrays hold anything: whoever keeps the present one may go on
  // reading it.
  void renew();

 private:
  Communicator* communicator_;
  DType dtype_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> offsets_;  // elements
  std::int64_t total_ = 0;
  std::shared_ptr<void> memory_;
};

}  // namespace tandem
