// Decides which allreduces share one collective (tensor fusion).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hvd/negotiation.h"

namespace tandem::hvd {

// Tensors of one operation and one dtype, which are always reduced together.
struct FusionUnit {
  AgreementRef agreement;
  std::size_t index = 0;  // in the list of ready operations
  std::vector<std::size_t> tensors;
  DType dtype = float32;
  std::int64_t bytes = 0;
  bool alone = false;
};

struct FusionOptions {
  std::int64_t threshold = 0;  // bytes; 0: no fusion
  bool separate_groups = false;
};

// Groups allreduces of the same dtype and reduction into batches of at most `threshold` bytes, or
// of a single unit. Fills them as Horovod does: in order, skipping units that do not fit, as long
// as the skipped ones stay within the threshold. REQUIRES: allreduces without errors.
std::vector<std::vector<FusionUnit>> fuse(std::span<const AgreementRef> ready,
                                          const FusionOptions& options);

}  // namespace tandem::hvd
