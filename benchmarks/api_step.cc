// Times one training step of a case in each of several processes: alone, at once with the others,
// and in step with them under an API. Each process trains on the case's batch with --threads
// threads and prints a JSON line. --api is ddp (DistributedDataParallel), mwms
// (MultiWorkerMirroredStrategy), hvd (the Horovod-compatible API), or barrier. With barrier, each
// process trains its own model and waits for the others after each step: the cost of
// synchronisation without gradients. With --traced 1 the step is a traced function. --trace FILE
// writes a profile of eight more steps of rank 0. scripts/bench starts it through `tandem run`.
#include <tandem/tandem.h>

#include <functional>
#include <memory>
#include <vector>

#include "cases.h"
#include "report.h"

namespace {

using namespace bench;  // NOLINT: the program is the benchmark

// Runs `count` steps over a pool of batches, and calls `after` after each step.
using Steps = std::function<void(int count)>;

template <class Step, class Batches>
Steps steps_of(
    const BenchOptions& options, const Step& step, const Batches& pool,
    const std::function<void()>& after = [] {}) {
  const auto over = [&](auto run) -> Steps {
    return [run, pool, after](int count) mutable {
      for (int i = 0; i < count; ++i) {
        run(pool[static_cast<std::size_t>(i) % pool.size()]);
        after();
      }
    };
  };
  if (options.traced) return over(td::function(step));
  return over(step);
}

// The steps of a process that trains without the others.
Steps local_steps(
    const BenchOptions& options, const ModelCase& what,
    const std::function<void()>& after = [] {}) {
  td::Model model = make_model(what);
  auto optimizer = td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9});
  const auto step = [model, optimizer, variables = model.trainable_variables(),
                     batch = what.batch](const Example& inputs) mutable {
    return train_step(model, optimizer, variables, inputs, batch).detach();
  };
  return steps_of(options, step, make_pool(what, what.batch), after);
}

void measure(const BenchOptions& options, const ModelCase& what, int rank, int ranks,
             const Steps& together) {
  take_turns(options, rank, ranks, local_steps(options, what), together);
  if (options.trace.empty()) return;
  if (rank == 0) td::profiler::start({.file = options.trace});
  together(8);
  if (rank == 0) td::profiler::stop();
}

void run_ddp(const BenchOptions& options, const ModelCase& what) {
  td::comm::init_process_group({.backend = options.backend});
  {
    const td::parallel::DistributedDataParallel model(make_model(what));
    auto optimizer =
        td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9}, model.parameters());
    const auto step = [&](const Example& batch) {
      const td::Tensor loss = td::reduce_mean(
          td::nn::sparse_softmax_cross_entropy(batch[1], model(batch[0], {.training = true})));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      return loss.detach();
    };
    measure(options, what, td::comm::get_rank(), td::comm::get_world_size(),
            steps_of(options, step, make_pool(what, what.batch)));
  }
  td::comm::destroy_process_group();
}

void run_mwms(const BenchOptions& options, const ModelCase& what) {
  const td::distribute::MultiWorkerMirroredStrategy strategy;
  td::Model model;
  td::optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    model = make_model(what);
    optimizer = td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9});
  }
  const auto variables = model.trainable_variables();
  const std::int64_t global_batch = what.batch * strategy.num_replicas_in_sync();
  const auto step = [&](const td::distribute::PerReplica<Example>& batch) {
    return strategy.run(
        [&](const Example& inputs) {
          return train_step(model, optimizer, variables, inputs, global_batch).detach();
        },
        batch);
  };
  measure(options, what, strategy.worker(), strategy.num_replicas_in_sync(),
          steps_of(options, step, make_pool(what, global_batch, strategy)));
}

void run_hvd(const BenchOptions& options, const ModelCase& what) {
  td::hvd::init();
  td::Model model = make_model(what);
  const auto variables = model.trainable_variables();
  auto optimizer =
      td::hvd::DistributedOptimizer(td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9}));
  td::hvd::broadcast_variables(model.variables());
  const auto step = [&](const Example& batch) {
    return train_step(model, optimizer, variables, batch, what.batch).detach();
  };
  measure(options, what, td::hvd::rank(), td::hvd::size(),
          steps_of(options, step, make_pool(what, what.batch)));
  td::hvd::shutdown();
}

void run_barrier(const BenchOptions& options, const ModelCase& what) {
  td::comm::init_process_group({.backend = options.backend});
  measure(options, what, td::comm::get_rank(), td::comm::get_world_size(),
          local_steps(options, what, [] { td::comm::barrier(); }));
  td::comm::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  const BenchOptions options = parse(argc, argv);
  const ModelCase what = find_case(options.name);
  td::config::set_intra_op_parallelism_threads(options.threads);
  if (options.api == "ddp")
    run_ddp(options, what);
  else if (options.api == "mwms")
    run_mwms(options, what);
  else if (options.api == "hvd")
    run_hvd(options, what);
  else if (options.api == "barrier")
    run_barrier(options, what);
  else
    throw std::invalid_argument("unknown API " + options.api);
}
