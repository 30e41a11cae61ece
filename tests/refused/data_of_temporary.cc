// error: the elements are gone when the temporary tensor ends: keep the tensor in a variable
#include <tandem/tandem.h>

float f(const tandem::Tensor& a, const tandem::Tensor& b) {
  const float* p = (a + b).data<float>();
  return p[1];
}
