// Attributes of the normalisations.
#pragma once

#include <limits>

#include "op/fields.h"

namespace tandem {

struct NormAttrs {
  double epsilon = 1e-3;
  bool given_moments = false;  // of FusedBatchNormGradV3: the moments do not depend on the data
  TANDEM_FIELDS(epsilon, given_moments)

  // By which sums over the data are divided where the moments depend on it.
  double divisor(double rows) const {
    return given_moments ? std::numeric_limits<double>::infinity() : rows;
  }
};

}  // namespace tandem
