// One training step of a case in one of several processes, timed; rank 0 prints a JSON line. Each
// process takes the case's batch, with --threads threads. --face is ddp (DistributedDataParallel),
// mwms (MultiWorkerMirroredStrategy), hvd (the Horovod-like face), or barrier: each process trains
// for itself and waits for the others after each step, which is what being in step costs before a
// gradient is exchanged. With --traced 1 the step is a traced function, and --trace FILE adds a
// profile of rank 0's next steps. scripts/bench starts it through `tandem run`.
#include <tandem/tandem.h>

#include <functional>
#include <memory>
#include <vector>

#include "cases.h"
#include "report.h"

namespace {

using namespace bench;  // NOLINT: the program is the benchmark

// Steps of `step`, traced if asked for, with `after` behind each.
template <class Step, class Batches>
void measure_steps(
    const Options& options, double startup_ms, int rank, const Step& step, const Batches& pool,
    const std::function<void()>& after = [] {}) {
  const auto take = [&](const auto& run) {
    const auto steps = [&](int count) {
      for (int i = 0; i < count; ++i) {
        run(pool[static_cast<std::size_t>(i) % pool.size()]);
        after();
      }
    };
    measure_together(options.face.c_str(), options, startup_ms, rank, steps);
    if (options.trace.empty()) return;
    if (rank == 0) td::profiler::start({.file = options.trace});
    steps(8);
    if (rank == 0) td::profiler::stop();
  };
  if (options.traced)
    take(td::function(step));
  else
    take(step);
}

void run_ddp(const Options& options, const Case& what, double startup_ms) {
  td::comm::init_process_group();
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
    measure_steps(options, startup_ms, td::comm::get_rank(), step, make_pool(what, what.batch));
  }
  td::comm::destroy_process_group();
}

void run_mwms(const Options& options, const Case& what, double startup_ms) {
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
  const auto pool = make_pool(what, global_batch, strategy);
  const auto step = [&](const td::distribute::PerReplica<Example>& batch) {
    return strategy.run(
        [&](const Example& inputs) {
          return train_step(model, optimizer, variables, inputs, global_batch).detach();
        },
        batch);
  };
  measure_steps(options, startup_ms, strategy.worker(), step, pool);
}

void run_hvd(const Options& options, const Case& what, double startup_ms) {
  td::hvd::init();
  td::Model model = make_model(what);
  const auto variables = model.trainable_variables();
  auto optimizer =
      td::hvd::DistributedOptimizer(td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9}));
  td::hvd::broadcast_variables(model.variables());
  const auto step = [&](const Example& batch) {
    return train_step(model, optimizer, variables, batch, what.batch).detach();
  };
  measure_steps(options, startup_ms, td::hvd::rank(), step, make_pool(what, what.batch));
  td::hvd::shutdown();
}

void run_barrier(const Options& options, const Case& what, double startup_ms) {
  td::comm::init_process_group();
  {
    td::Model model = make_model(what);
    auto optimizer = td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9});
    const auto variables = model.trainable_variables();
    const auto step = [&](const Example& batch) {
      return train_step(model, optimizer, variables, batch, what.batch).detach();
    };
    measure_steps(options, startup_ms, td::comm::get_rank(), step, make_pool(what, what.batch),
                  [] { td::comm::barrier(); });
  }
  td::comm::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const Case what = find_case(options.name);
  td::config::set_intra_op_parallelism_threads(options.threads);
  const double startup_ms = since_start_ms();
  if (options.face == "ddp")
    run_ddp(options, what, startup_ms);
  else if (options.face == "mwms")
    run_mwms(options, what, startup_ms);
  else if (options.face == "hvd")
    run_hvd(options, what, startup_ms);
  else if (options.face == "barrier")
    run_barrier(options, what, startup_ms);
  else
    throw std::invalid_argument("no face " + options.face);
}
