// error: a worker is one replica: write create_per_worker_dataset(dataset_fn)
#include "tandem/parameter_server.h"

void f(tandem::distribute::ClusterCoordinator& coordinator,
       const tandem::distribute::Strategy& strategy, const tandem::data::Dataset& data) {
  coordinator.create_per_worker_dataset(
      [&] { return strategy.experimental_distribute_dataset(data); });
}
