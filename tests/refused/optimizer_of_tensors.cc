// error: optimizers update variables
#include <tandem/tandem.h>

void f(tandem::Tensor w) { tandem::optim::SGD optimizer({w}, {.lr = 0.1}); }
