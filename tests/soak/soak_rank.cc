// One rank of a job that scripts/soak breaks. It trains a small model until its configured fault
// occurs, or until another rank's failure reaches it.
//
//   soak_rank API BACKEND STEPS [FAULT RANK MILLISECONDS]
//
// API is ddp, hvd or mwms. FAULT happens on RANK after MILLISECONDS: kill, stop, exit (with 0) or
// throw (from the training loop). Writes "rank R: finished" or "rank R: KIND: MESSAGE" to stderr;
// exits with 0 or 7.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

#include "tandem/tandem.h"

namespace td = tandem;

namespace {

using namespace std::chrono_literals;

constexpr auto kTimeout = 120s;

std::atomic<bool> must_throw{false};

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

int rank_of_this_process() {
  const int rank = number_of("RANK");
  return rank >= 0 ? rank : number_of("OMPI_COMM_WORLD_RANK");
}

void break_later(const Arguments& arguments) {
  if (arguments.fault.empty() || arguments.fault_rank != rank_of_this_process()) return;
  std::thread([arguments] {
    std::this_thread::sleep_for(arguments.fault_after);
    if (arguments.fault == "kill") raise(SIGKILL);
    if (arguments.fault == "stop") raise(SIGSTOP);
    if (arguments.fault == "exit") _exit(0);
    must_throw = true;
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
  for (int i = 0; i < arguments.steps; ++i) {
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
                                                           : td::distribute::Communication::kMpi;
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

void run(const Arguments& arguments) {
  if (arguments.api == "ddp") return train_ddp(arguments);
  if (arguments.api == "hvd") return train_hvd(arguments);
  if (arguments.api == "mwms") return train_mwms(arguments);
  throw std::invalid_argument("expected ddp, hvd or mwms, got " + arguments.api);
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
