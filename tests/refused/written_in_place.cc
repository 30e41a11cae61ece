// error: operations never change their inputs
#include <tandem/tandem.h>

void f(tandem::Tensor x) { x.add_(1.0); }
