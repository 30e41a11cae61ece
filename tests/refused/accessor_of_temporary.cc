// error: the elements are gone when the temporary tensor ends: keep the tensor in a variable
#include <tandem/tandem.h>

float f(const tandem::Tensor& a) {
  const auto accessor = a.exp().accessor<float, 2>();
  return accessor[1][0];
}
