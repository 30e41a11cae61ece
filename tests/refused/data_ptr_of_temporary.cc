// error: the elements are gone when the temporary tensor ends: keep the tensor in a variable
#include <tandem/tandem.h>

float f(const tandem::Variable& w) {
  const float* p(w.value().data_ptr<float>());
  return p[1];
}
