// TensorFlow: parameter server training with fit-less loop: cluster from TF_CONFIG, coordinator, schedule and join.
#include <cstdlib>
#include <iostream>
#include <tandem/tandem.h>
namespace tf = tandem;

int main() {
  tf::distribute::TFConfigClusterResolver resolver;
  if (resolver.task_type() == "worker" || resolver.task_type() == "ps") {
    tf::distribute::Server server(resolver.cluster_spec(), {.job_name = resolver.task_type(), .task_index = resolver.task_id()});
    server.join();
    return 0;
  }
  tf::distribute::ParameterServerStrategy strategy(resolver);
  tf::Sequential model;
  tf::optimizers::SGD optimizer(0.1);
  {
    auto scope = strategy.scope();
    model = tf::Sequential({tf::layers::Dense(1, {.input_shape = {4}})});
  }
  tf::distribute::ClusterCoordinator coordinator(strategy);
  auto dataset_fn = [] {
    auto x = tf::random::normal({128, 4});
    auto y = tf::reduce_sum(x, 1, true);
    return tf::data::Dataset::from_tensor_slices({x, y}).shuffle(128).repeat().batch(16);
  };
  auto per_worker_dataset = coordinator.create_per_worker_dataset(dataset_fn);
  auto step = tf::function([&](tf::data::Iterator& iterator) {
    auto [x, y] = iterator.next();
    tf::GradientTape tape;
    auto loss = tf::reduce_mean(tf::square(model(x, true) - y));
    auto grads = tape.gradient(loss, model.trainable_variables());
    optimizer.apply_gradients(tf::zip(grads, model.trainable_variables()));
    return loss;
  });
  tf::distribute::RemoteValue last;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int i = 0; i < 20; ++i) last = coordinator.schedule(step, per_worker_dataset);
    coordinator.join();
    std::cout << "epoch " << epoch << " loss " << last.fetch() << std::endl;
  }
}
