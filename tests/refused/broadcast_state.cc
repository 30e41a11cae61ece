// error: to broadcast them would not change the model. Write broadcast_parameters(model, root_rank)
#include <tandem/tandem.h>

void f(const std::map<std::string, tandem::Tensor>& state) {
  tandem::hvd::broadcast_parameters(state, {.root_rank = 0});
}
