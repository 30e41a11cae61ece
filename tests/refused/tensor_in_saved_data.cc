// error: write context->save_for_backward({x}) for tensors
#include "tandem/autograd.h"

void f(tandem::autograd::Context* context, const tandem::Tensor& x) {
  context->saved_data["x"] = x;
}
