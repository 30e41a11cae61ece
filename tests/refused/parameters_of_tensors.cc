// error: keep those of a module in std::vector<td::Variable>
#include <tandem/tandem.h>

void f(std::vector<tandem::Tensor> parameters) {
  tandem::optim::Adam optimizer(parameters, {.lr = 0.1});
}
