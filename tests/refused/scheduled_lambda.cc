// error: make the function once, const auto step = td::function(f)
#include "tandem/parameter_server.h"

void f(tandem::distribute::ClusterCoordinator& coordinator, const tandem::Tensor& x) {
  coordinator.schedule([](const tandem::Tensor& y) { return y; }, x);
}
