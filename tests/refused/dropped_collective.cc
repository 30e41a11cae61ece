// error: x is not changed: write x = all_reduce(x)
#include <tandem/tandem.h>

void f(const tandem::Tensor& x) { tandem::comm::all_reduce(x); }
