// error: a td::nn module computes in a lower dtype under td::amp::autocast
#include "tandem/amp.h"
#include "tandem/module.h"
#include "tandem/optim.h"

void f() {
  const tandem::nn::Sequential net(tandem::nn::Linear(4, 2));
  const tandem::optim::SGD sgd(net.parameters(), 0.1);
  auto [model, optimizer] = tandem::amp::initialize(net, sgd, {.opt_level = "O1"});
}
