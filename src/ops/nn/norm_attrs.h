// Attributes of the normalisations.
#pragma once

#include "op/fields.h"

namespace tandem {

struct NormAttrs {
  double epsilon = 1e-3;
  TANDEM_FIELDS(epsilon)
};

}  // namespace tandem
