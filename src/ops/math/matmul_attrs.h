// Attributes of MatMul.
#pragma once

#include "op/fields.h"

namespace tandem {

struct MatMulAttrs {
  bool transpose_a = false;
  bool transpose_b = false;
  TANDEM_FIELDS(transpose_a, transpose_b)
};

}  // namespace tandem
