// error: operations never change their inputs
#include <tandem/tandem.h>

void f(tandem::Tensor x) { x.zero_(); }
