// error: x is not changed: write x = allreduce(x)
#include <tandem/hvd.h>

void f(const tandem::Tensor& x) { tandem::hvd::allreduce(x); }
