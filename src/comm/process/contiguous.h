// Buffers as one piece of memory, for libraries that take nothing else.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace tandem {

// The memory of the buffers where they lie one behind the other and no `copy` is asked for, else a
// copy. REQUIRES: one dtype.
class Contiguous {
 public:
  explicit Contiguous(std::span<const Buffer> buffers, bool copy = false);

  std::byte* data() const { return data_; }
  std::int64_t count() const { return count_; }  // elements

  // Where there is a copy: what the buffers hold goes to it, or what it holds to them.
  void gather() const;
  void scatter() const;

 private:
  std::span<const Buffer> buffers_;
  std::byte* data_ = nullptr;
  std::int64_t count_ = 0;
  std::unique_ptr<std::byte[]> copy_;
};

}  // namespace tandem
