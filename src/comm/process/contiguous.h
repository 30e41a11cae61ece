// Contiguous memory for several buffers, for code that accepts one pointer.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace tandem {

// Uses the buffers' own memory if they are contiguous, otherwise a copy. REQUIRES: one dtype.
class Contiguous {
 public:
  explicit Contiguous(std::span<const Buffer> buffers);

  std::byte* data() const { return data_; }
  std::int64_t count() const { return count_; }  // elements

  // If there is a copy: copies from the buffers to it, or from it to the buffers.
  void gather() const;
  void scatter() const;

 private:
  std::span<const Buffer> buffers_;
  std::byte* data_ = nullptr;
  std::int64_t count_ = 0;
  std::unique_ptr<std::byte[]> copy_;
};

}  // namespace tandem
