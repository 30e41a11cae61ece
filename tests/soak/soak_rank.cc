// One rank of a job that scripts/soak breaks. It trains a small model until its configured fault
// occurs, or until another rank's failure reaches it.
//
//   soak_rank API BACKEND STEPS [FAULT RANK MILLISECONDS]
//
// API is ddp, hvd or mwms; or groups: sums in groups of the even and of the odd ranks; or sets: the
// same with process sets. FAULT happens on RANK after MILLISECONDS: kill, abort, segv, stop, exit
// (with 0), throw (from the training loop), leave (it ends training before the others, in good
// order), or sockets (it closes all its sockets). Writes "rank R: finished" or "rank R: KIND:
// MESSAGE" to stderr; exits with 0 or 7.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/tandem.h"

namespace td = tandem;

namespace {

using namespace std::chrono_literals;

// scripts/soak gives a job half as much again.
constexpr auto kTimeout = 60s;

std::atomic<bool> must_throw{false}, must_leave{false};

struct Arguments {
  std::string api, backend;
  int steps = 0;
  std::string fault;
  int fault_rank = -1;
  std::chrono::milliseconds fault_after{0};
};

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : -1;
}

int variable_of_launcher(const char* variable, const char* of_mpirun) {
  const int number = number_of(variable);
  return number >= 0 ? number : number_of(of_mpirun);
}
int rank_of_this_process() { return variable_of_launcher("RANK", "OMPI_COMM_WORLD_RANK"); }
int num_ranks() { return variable_of_launcher("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"); }

void close_sockets() {
  struct stat status = {};
  for (int descriptor = 3; descriptor < 1024; ++descriptor)
    if (fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode)) close(descriptor);
}

void break_later(const Arguments& arguments) {
  if (arguments.fault.empty() || arguments.fault_rank != rank_of_this_process()) return;
  std::thread([arguments] {
    std::this_thread::sleep_for(arguments.fault_after);
    if (arguments.fault == "kill") kill(getpid(), SIGKILL);
    if (arguments.fault == "segv") kill(getpid(), SIGSEGV);
    if (arguments.fault == "abort") std::abort();
    if (arguments.fault == "stop") kill(getpid(), SIGSTOP);
    if (arguments.fault == "exit") _exit(0);
    if (arguments.fault == "sockets") close_sockets();
    must_throw = arguments.fault == "throw";
    must_leave = arguments.fault == "leave";
  }).detach();
}

struct Batch {
  td::Tensor x, y;
};

Batch batch_of(int step) {
  td::random::set_seed(static_cast<std::uint64_t>(step));
  return {td::random::normal({16, 32}), td::random::normal({16, 8})};
}

td::Sequential small_model() {
  return td::Sequential({td::layers::Dense(64, {.activation = "relu", .input_shape = {32}}),
                         td::layers::Dense(64, {.activation = "relu"}), td::layers::Dense(8)});
}

// `step` trains on one batch.
template <class F>
void train(const Arguments& arguments, const F& step) {
  for (int i = 0; i < arguments.steps && !must_leave; ++i) {
    if (must_throw) throw std::runtime_error("the training loop of this rank threw");
    step(batch_of(i));
  }
}

void train_ddp(const Arguments& arguments) {
  td::comm::init_process_group({.backend = arguments.backend, .timeout = kTimeout});
  td::parallel::DistributedDataParallel model(small_model());
  auto optimizer = td::optimizers::SGD({.learning_rate = 0.01}, model.parameters());
  train(arguments, [&](const Batch& batch) {
    td::Tensor loss = td::reduce_mean(td::square(model(batch.x) - batch.y));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  });
  td::comm::destroy_process_group();
}

void train_hvd(const Arguments& arguments) {
  td::hvd::init({.backend = arguments.backend, .timeout = kTimeout});
  td::Sequential model = small_model();
  auto optimizer = td::hvd::DistributedOptimizer(td::optimizers::SGD({.learning_rate = 0.01}));
  train(arguments, [&](const Batch& batch) {
    td::GradientTape tape;
    const td::Tensor loss = td::reduce_mean(td::square(model(batch.x) - batch.y));
    optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                              model.trainable_variables());
  });
  td::hvd::shutdown();
}

void train_mwms(const Arguments& arguments) {
  const auto communication = arguments.backend == "shm"    ? td::distribute::Communication::kShm
                             : arguments.backend == "gloo" ? td::distribute::Communication::kGloo
                             : arguments.backend == "mpi"  ? td::distribute::Communication::kMpi
                                                           : td::distribute::Communication::kAuto;
  td::distribute::MultiWorkerMirroredStrategy strategy(
      {.communication_options = {communication}, .timeout = kTimeout});
  td::Sequential model;
  td::optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    model = small_model();
    optimizer = td::optimizers::SGD({.learning_rate = 0.01});
  }
  train(arguments, [&](const Batch& batch) {
    strategy.run([&] {
      td::GradientTape tape;
      const td::Tensor loss = td::reduce_mean(td::square(model(batch.x) - batch.y));
      optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                                model.trainable_variables());
    });
  });
}

// The ranks of this rank's group, and of the other one.
std::pair<std::vector<int>, std::vector<int>> separated_ranks() {
  std::pair<std::vector<int>, std::vector<int>> ranks;
  for (int rank = 0; rank < num_ranks(); ++rank)
    ((rank - rank_of_this_process()) % 2 == 0 ? ranks.first : ranks.second).push_back(rank);
  return ranks;
}

void train_groups(const Arguments& arguments) {
  td::comm::init_process_group({.backend = arguments.backend, .timeout = kTimeout});
  auto [mine, others] = separated_ranks();
  const bool even = rank_of_this_process() % 2 == 0;
  const td::comm::ProcessGroup first = td::comm::new_group(even ? mine : others);
  const td::comm::ProcessGroup second = td::comm::new_group(even ? others : mine);
  train(arguments, [&](const Batch& batch) {
    [[maybe_unused]] const td::Tensor sum =
        td::comm::all_reduce(batch.x, {.group = even ? first : second});
  });
  td::comm::destroy_process_group();
}

void train_sets(const Arguments& arguments) {
  td::hvd::init({.backend = arguments.backend, .timeout = kTimeout});
  auto [mine, others] = separated_ranks();
  const bool even = rank_of_this_process() % 2 == 0;
  const td::hvd::ProcessSet first = td::hvd::add_process_set(even ? mine : others);
  const td::hvd::ProcessSet second = td::hvd::add_process_set(even ? others : mine);
  train(arguments, [&](const Batch& batch) {
    [[maybe_unused]] const td::Tensor mean =
        td::hvd::allreduce(batch.x, {.name = "x", .process_set = even ? first : second});
  });
  td::hvd::shutdown();
}

void run(const Arguments& arguments) {
  if (arguments.api == "groups") return train_groups(arguments);
  if (arguments.api == "sets") return train_sets(arguments);
  if (arguments.api == "ddp") return train_ddp(arguments);
  if (arguments.api == "hvd") return train_hvd(arguments);
  if (arguments.api == "mwms") return train_mwms(arguments);
  throw std::invalid_argument("expected ddp, hvd, mwms, groups or sets, got " + arguments.api);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 7) {
    std::cerr << "usage: soak_rank API BACKEND STEPS [FAULT RANK MILLISECONDS]\n";
    return 2;
  }
  Arguments arguments{.api = argv[1], .backend = argv[2], .steps = std::atoi(argv[3])};
  if (argc == 7) {
    arguments.fault = argv[4];
    arguments.fault_rank = std::atoi(argv[5]);
    arguments.fault_after = std::chrono::milliseconds(std::atoi(argv[6]));
  }
  const std::string name = "rank " + std::to_string(rank_of_this_process()) + ": ";
  break_later(arguments);
  try {
    run(arguments);
    std::cerr << name + "finished\n";
    return 0;
  } catch (const td::Error& error) {
    std::cerr << name + error.kind() + ": " + error.what() + "\n";
  } catch (const std::exception& error) {
    std::cerr << name + "std::exception: " + error.what() + "\n";
  }
  return 7;
}
