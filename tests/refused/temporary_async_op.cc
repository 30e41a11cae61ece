// error: async_op is for reductions in place, and a temporary cannot be changed
#include <tandem/tandem.h>

void f(const tandem::Variable& w) {
  tandem::comm::all_reduce(w.grad(), {.op = tandem::ReduceOp::kSum, .async_op = true});
}
