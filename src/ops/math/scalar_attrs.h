// Attributes of operations on a tensor and a number.
#pragma once

#include "op/fields.h"

namespace tandem {

// Attributes of an operation on a tensor and a number.
struct ScalarAttrs {
  double scalar = 0.0;
  TANDEM_FIELDS(scalar)
};

struct ClipAttrs {
  double low = 0.0;
  double high = 0.0;
  TANDEM_FIELDS(low, high)
};

}  // namespace tandem
