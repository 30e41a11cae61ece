// One training step of a case in Tandem, timed; prints a JSON line. The data is random and in
// memory, the step is forward, backward and SGD with momentum. With --replicas N, N replicas of
// --threads threads each take the case's batch EACH, under a MirroredStrategy. With --traced 1 the
// step is a traced function. With --device gpu, all of it is on the first GPU.
#include <tandem/tandem.h>

#include <vector>

#include "cases.h"
#include "report.h"

namespace {

using namespace bench;  // NOLINT: the program is the benchmark

void run_alone(const bench::Options& options, const Case& what, double startup_ms) {
  td::Model model = what.make();
  const auto variables = model.trainable_variables();
  auto optimizer = td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9});
  const std::vector<Example> pool = make_pool(what, what.batch);
  const auto step = [&](const Example& batch) {
    return train_step(model, optimizer, variables, batch, what.batch);
  };
  const auto measure = [&](const char* program, const auto& run) {
    bench::measure(program, options, startup_ms, [&](int steps) {
      td::Tensor loss;
      for (int i = 0; i < steps; ++i) loss = run(pool[static_cast<std::size_t>(i) % pool.size()]);
      loss.item<float>();
    });
  };
  if (options.traced)
    measure("traced", td::function(step));
  else
    measure("tandem", step);
}

void run_mirrored(const bench::Options& options, const Case& what, double startup_ms) {
  std::vector<std::string> devices;
  for (int i = 0; i < options.replicas; ++i) devices.push_back("/cpu:" + std::to_string(i));
  td::distribute::MirroredStrategy strategy({.devices = devices});
  td::Model model;
  td::optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    model = what.make();
    optimizer = td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9});
  }
  const auto variables = model.trainable_variables();
  const std::int64_t global_batch = what.batch * options.replicas;
  const auto pool = make_pool(what, global_batch, strategy);
  const auto step = [&](const td::distribute::PerReplica<Example>& batch) {
    return strategy.run(
        [&](const Example& inputs) {
          return train_step(model, optimizer, variables, inputs, global_batch);
        },
        batch);
  };
  const auto measure = [&](const char* program, const auto& run) {
    bench::measure(program, options, startup_ms, [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        const auto losses = run(pool[static_cast<std::size_t>(i) % pool.size()]);
        if (i + 1 == steps) strategy.reduce(td::ReduceOp::kSum, losses).template item<float>();
      }
    });
  };
  if (options.traced)
    measure("traced", td::function(step));
  else
    measure("tandem", step);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  Case what = find_case(options.name);
  if (options.batch > 0) what.batch = options.batch;
  const bool on_gpu = options.device == "gpu";
  if (on_gpu && td::config::list_physical_devices("GPU").empty()) {
    std::fputs("train_step: there is no GPU here\n", stderr);
    return 1;
  }
  if (!on_gpu) td::config::set_visible_devices({}, "GPU");
  td::config::set_logical_cpus(options.replicas);
  td::config::set_intra_op_parallelism_threads(options.threads * options.replicas);
  (td::ones({1}) + td::ones({1})).item<float>();
  const double startup_ms = bench::since_start_ms();
  if (options.replicas == 1)
    run_alone(options, what, startup_ms);
  else
    run_mirrored(options, what, startup_ms);
}
