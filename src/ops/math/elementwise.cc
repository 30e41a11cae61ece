#include "ops/math/elementwise.h"

namespace tandem {

void check_dtype(std::string_view op, DTypeSet set, DType dtype) {
  if ((set & set_of(dtype)) != 0) [[likely]]
    return;
  const char* wanted = set == kFloating       ? "a floating dtype"
                       : set == kSigned       ? "a floating or signed integer dtype"
                       : set == kNumeric      ? "a floating or integer dtype"
                       : set == set_of(bool_) ? "dtype bool"
                                              : "another dtype";
  fail<DTypeError>("[{}] expected {}, got {}", op, wanted, name_of(dtype));
}

}  // namespace tandem
