// error: operations never change their inputs
#include "tandem/tensor.h"

void f(tandem::Tensor x) { x.relu_(); }
