// error: declare the member as a td::Variable
#include <tandem/tandem.h>

struct Net : tandem::nn::Module {
  Net() { w = register_parameter("w", tandem::ones({3})); }
  tandem::Tensor w;
};
