// error: the elements are gone when the temporary tensor ends: keep the tensor in a variable
#include <tandem/tandem.h>

float f(const tandem::Tensor& a, const tandem::Tensor& b) {
  float sum = 0;
  for (float value : (a + b).span<float>()) sum += value;
  return sum;
}
