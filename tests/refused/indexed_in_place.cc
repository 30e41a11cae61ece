// error: operations never change their inputs
#include <tandem/tandem.h>

void f(tandem::Tensor x) { x.index_put_({tandem::Slice{0, 10}, 4}, tandem::full({10}, 1.0)); }
