// error: x is not changed: write x = broadcast(x, rank)
#include <tandem/tandem.h>

void f(tandem::Tensor& x) { tandem::comm::broadcast(x, 0); }
