// A host that trains on some ranks of its own MPI, by hvd or MultiWorkerMirroredStrategy over a
// group of its communicator (tandem/mpi.h).
//   mpirun -n RANKS host_mpi_training LEVEL BACKEND hvd|strategy before|after|never
// The last two ranks train, in reversed order; others compute on. Counts the calls of MPI's
// functions by threads other than the main one, and those after MPI_Finalize.
#include <sys/syscall.h>
#include <tandem/mpi.h>
#include <tandem/tandem.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

namespace td = tandem;

namespace {

std::atomic<long> calls_elsewhere{0}, calls_after_finalize{0};
std::atomic<bool> finalized{false};

void count_call() {
  if (getpid() != static_cast<pid_t>(syscall(SYS_gettid))) ++calls_elsewhere;
  if (finalized) ++calls_after_finalize;
}

}  // namespace

// In front of the library's own functions.
extern "C" {
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  count_call();
  return PMPI_Test(request, flag, status);
}
int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  count_call();
  return PMPI_Isend(buffer, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
  count_call();
  return PMPI_Irecv(buffer, count, type, from, tag, comm, request);
}
}

namespace {

constexpr std::int64_t kExamples = 16;
int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  ++failures;
}

// The host's own traffic.
void sum_over(MPI_Comm comm, int expected) {
  int sum = 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
  expect(sum == expected, "the host's own messages are wrong");
}

td::Tensor inputs() { return td::reshape(td::sin(td::range(2.0 * kExamples)), {kExamples, 2}); }
td::Tensor targets(const td::Tensor& x) { return td::sum(x * x, {1}, true); }

td::Sequential make_model() {
  return td::Sequential(
      {td::layers::Dense(4, {.activation = "tanh", .input_shape = {2}}), td::layers::Dense(1)});
}

// The loss after ten steps on all examples.
double train_alone() {
  td::random::set_seed(1);
  td::Sequential model = make_model();
  model.compile({.optimizer = td::optimizers::SGD({.learning_rate = 0.1}),
                 .loss = td::losses::MeanSquaredError()});
  for (int step = 0; step < 10; ++step) model.train_on_batch(inputs(), targets(inputs()));
  return model.test_on_batch(inputs(), targets(inputs())).at("loss");
}

// Likewise on the halves of two ranks.
double train_by_hvd(MPI_Comm solver) {
  td::random::set_seed(td::hvd::rank() == 0 ? 1 : 77);
  td::Sequential model = make_model();
  td::hvd::broadcast_variables(model.variables(), 0);
  td::hvd::DistributedOptimizer optimizer(td::optimizers::SGD({.learning_rate = 0.1}));
  const td::Tensor x =
      td::slice(inputs(), {td::hvd::rank() * kExamples / 2, 0}, {kExamples / 2, 2});
  for (int step = 0; step < 10; ++step) {
    const td::losses::MeanSquaredError loss;
    optimizer.minimize(loss(targets(x), model(x, {.training = true})), model.trainable_variables());
    sum_over(solver, 2);
  }
  return td::losses::MeanSquaredError()(targets(inputs()), model(inputs())).item();
}

double train_by_strategy(const td::distribute::Strategy& strategy, int worker) {
  td::random::set_seed(worker == 0 ? 1 : 77);
  const auto scope = strategy.scope();
  td::Sequential model = make_model();
  model.compile({.optimizer = td::optimizers::SGD({.learning_rate = 0.1}),
                 .loss = td::losses::MeanSquaredError()});
  model.fit(td::data::Dataset::from_tensor_slices({inputs(), targets(inputs())}).batch(kExamples),
            {.epochs = 10, .verbose = 0});
  return td::losses::MeanSquaredError()(targets(inputs()), model(inputs())).item();
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int> levels{{"single", MPI_THREAD_SINGLE},
                                          {"funneled", MPI_THREAD_FUNNELED},
                                          {"serialized", MPI_THREAD_SERIALIZED},
                                          {"multiple", MPI_THREAD_MULTIPLE}};
  if (argc != 5) return 2;
  const bool hvd = std::string(argv[3]) == "hvd";
  const std::string order = argv[4];
  int provided = 0, rank = 0, size = 0;
  MPI_Init_thread(&argc, &argv, levels.at(argv[1]), &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm solver = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank >= size - 2 ? 0 : MPI_UNDEFINED, -rank, &solver);
  // Never destroyed, unless they are reset.
  static auto& group = *new std::optional<td::comm::ProcessGroup>;
  static auto& strategy = *new std::optional<td::distribute::MultiWorkerMirroredStrategy>;
  if (solver != MPI_COMM_NULL) {
    group = td::comm::from_mpi(solver, {.backend = argv[2], .timeout = std::chrono::seconds(60)});
    const int mine = size - 1 - rank;
    double loss = 0.0;
    if (hvd) {
      td::hvd::init({.timeout = std::chrono::seconds(60), .group = *group});
      expect(td::hvd::rank() == mine && td::hvd::size() == 2, "rank or size is wrong");
      loss = train_by_hvd(solver);
    } else {
      strategy.emplace(td::distribute::MultiWorkerMirroredOptions{
          .timeout = std::chrono::seconds(60), .group = *group});
      expect(strategy->worker() == mine && strategy->num_workers() == 2, "the worker is wrong");
      loss = train_by_strategy(*strategy, mine);
    }
    const double alone = train_alone();
    expect(std::abs(loss - alone) < 1e-5 * alone,
           "the loss is " + std::to_string(loss) + ", alone " + std::to_string(alone));
  }
  sum_over(MPI_COMM_WORLD, size);
  if (provided < MPI_THREAD_MULTIPLE)
    expect(calls_elsewhere == 0, "threads other than the main one have called MPI " +
                                     std::to_string(calls_elsewhere) + " times");
  const auto tear_down = [&] {
    if (hvd) td::hvd::shutdown();
    strategy.reset();
    group.reset();
  };
  if (order == "after") tear_down();
  MPI_Finalize();
  finalized = true;
  if (order == "before") tear_down();
  expect(calls_after_finalize == 0, "MPI was called after MPI_Finalize");
  return failures != 0;
}
