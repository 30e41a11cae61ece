// Which of the operations that are due travel together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hvd/negotiation.h"

namespace tandem::hvd {

// Tensors of one operation, of one dtype: they stay together.
struct FusionUnit {
  AgreementRef agreement;
  std::size_t place = 0;  // among those that are due
  std::vector<std::size_t> tensors;
  DType dtype = float32;
  std::int64_t bytes = 0;
  bool alone = false;
};

struct FusionOptions {
  std::int64_t threshold = 0;  // bytes; 0: nothing is fused
  bool separate_groups = false;
};

// Allreduces of one dtype and operation, in batches of at most `threshold` bytes, or of one unit.
// As Horovod fills them: in order, past what does not fit, as long as what was passed over stays
// within the threshold. REQUIRES: allreduces without errors.
std::vector<std::vector<FusionUnit>> fuse(std::span<const AgreementRef> due,
                                          const FusionOptions& options);

}  // namespace tandem::hvd
