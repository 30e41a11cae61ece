// error: or y = broadcast(x, rank) for a result that leaves x unchanged
#include "tandem/comm.h"

void f(tandem::Tensor& x) { x = tandem::comm::broadcast(x, {.src = 0}); }
