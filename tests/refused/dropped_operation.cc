// error: nodiscard
#include <tandem/tandem.h>

void f(const tandem::Tensor& x) { tandem::nn::relu(x); }
