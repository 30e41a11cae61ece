// error: a temporary cannot be reduced in place
#include <tandem/tandem.h>

void f(const tandem::Variable& w) { tandem::comm::all_reduce(w.grad(), tandem::ReduceOp::kSum); }
