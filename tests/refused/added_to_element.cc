// error: a part of a tensor cannot be assigned
#include <tandem/tandem.h>

void f(tandem::Tensor x) { x[0] += x[1]; }
