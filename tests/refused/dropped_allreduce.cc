// error: nodiscard
#include <tandem/hvd.h>

void f(const tandem::Tensor& x) { tandem::hvd::allreduce(x); }
