// One training step of a case in Tandem, timed; prints a JSON line. The data is random and in
// memory, the step is forward, backward and SGD with momentum. With --replicas N, N replicas of
// --threads threads each take the case's batch EACH, under a MirroredStrategy. With --traced 1 the
// step is a traced function. With --device gpu, all of it, data included, is on the first GPU. With
// --device tpu, the replicas are devices of the PJRT plug-in in TANDEM_PJRT_PLUGIN, and --traced is
// 1. With --parts P sums are replica-invariant, over P parts of a batch. With --check K the line
// has the losses of the first K steps. With --serve 1 the program prepares itself, prints a line,
// and then measures once per line of input.
#include <tandem/tandem.h>

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "cases.h"
#include "report.h"

namespace {

using namespace bench;  // NOLINT: the program is the benchmark

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::vector<std::pair<const char*, double>> memory_of(const char* device) {
  const td::config::MemoryInfo info = td::config::get_memory_info(device);
  const td::config::MemoryByTag& peak = info.peak_by_tag;
  return {{"peak", mib(info.peak)},
          {"weights", mib(peak.weights)},
          {"activations", mib(peak.activations)},
          {"gradients", mib(peak.gradients)},
          {"optimizer", mib(peak.optimizer)},
          {"workspace", mib(peak.workspace)},
          {"other", mib(peak.other)}};
}

void run_alone(const bench::BenchOptions& options, const ModelCase& what, double startup_ms) {
  td::Model model = make_model(what);
  const auto variables = model.trainable_variables();
  auto optimizer = td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9});
  const std::vector<Example> pool = make_pool(what, what.batch);
  const auto step = [&](const Example& batch) {
    return td::distribute::for_each_part(batch, [&](const Example& part) {
      return train_step(model, optimizer, variables, part, what.batch);
    });
  };
  const auto measure = [&](const char* program, const auto& run) {
    const auto batch = [&](int i) -> const Example& {
      return pool[static_cast<std::size_t>(i) % pool.size()];
    };
    RunFacts facts{.startup_ms = startup_ms};
    for (const td::Variable& variable : variables)
      facts.parameters += static_cast<long>(variable.shape().num_elements());
    for (int i = 0; i < options.check; ++i)
      facts.losses.push_back(run(batch(i)).template item<float>());
    const char* device = options.device == "gpu" ? "GPU:0" : "CPU:0";
    td::config::reset_memory_stats(device);  // excludes the memory for timing algorithms
    facts.memory_mib = [device] { return memory_of(device); };
    if (options.device == "gpu")
      facts.device_peak_mib = [] { return mib(td::config::get_memory_info("GPU:0").peak); };
    bench::measure(program, options, facts, [&](int steps) {
      td::Tensor loss;
      for (int i = 0; i < steps; ++i) loss = run(batch(i));
      loss.item<float>();
    });
  };
  if (options.traced)
    measure("traced", td::function(step));
  else
    measure("tandem", step);
}

td::distribute::Strategy make_strategy(const bench::BenchOptions& options) {
  const bool tpu = options.device == "tpu";
  std::vector<std::string> devices;
  for (int i = 0; i < options.replicas; ++i)
    devices.push_back((tpu ? "/device:TPU:" : "/cpu:") + std::to_string(i));
  if (tpu) return td::distribute::TPUStrategy({.devices = devices});
  return td::distribute::MirroredStrategy({.devices = devices});
}

void run_replicas(const bench::BenchOptions& options, const ModelCase& what, double startup_ms) {
  const td::distribute::Strategy strategy = make_strategy(options);
  td::Model model;
  td::optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    model = make_model(what);
    optimizer = td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9});
  }
  const auto variables = model.trainable_variables();
  const std::int64_t global_batch = what.batch * options.replicas;
  const auto pool = make_pool(what, global_batch, strategy);
  const auto step = [&](const td::distribute::PerReplica<Example>& batch) {
    return strategy.run(
        [&](const Example& inputs) {
          return td::distribute::for_each_part(inputs, [&](const Example& part) {
            return train_step(model, optimizer, variables, part, global_batch);
          });
        },
        batch);
  };
  const auto measure = [&](const char* program, const auto& run) {
    bench::measure(program, options, {.startup_ms = startup_ms}, [&](int steps) {
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
  const bench::BenchOptions options = bench::parse(argc, argv);
  ModelCase what = find_case(options.name, options.tiny);
  if (options.batch > 0) what.batch = options.batch;
  setenv("TANDEM_ALLOW_TF32", options.dtype == "tf32" ? "true" : "false", 1);
  const auto gpus = td::config::list_physical_devices("GPU");
  if (options.device != "gpu") {
    td::config::set_visible_devices({}, "GPU");
  } else if (gpus.empty()) {
    std::fputs("train_step: there is no GPU here\n", stderr);
    return 1;
  } else {  // several programs share the GPU
    td::config::set_visible_devices({gpus[0]}, "GPU");
    td::config::set_memory_growth(gpus[0], true);
  }
  if (options.dtype == "bfloat16") td::mixed_precision::set_global_policy("mixed_bfloat16");
  td::config::set_replica_invariant_parts(options.parts);
  td::config::set_logical_cpus(options.replicas);
  td::config::set_intra_op_parallelism_threads(options.threads * options.replicas);
  (td::ones({1}) + td::ones({1})).item<float>();
  const double startup_ms = bench::since_start_ms();
  if (options.replicas == 1 && options.device != "tpu")
    run_alone(options, what, startup_ms);
  else
    run_replicas(options, what, startup_ms);
}
