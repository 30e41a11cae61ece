// Training a surrogate inside a C++ solver, whose field is of its own type.   mpirun -n 2 ./18_simulation   (or more)
//
// u_t + a . grad u = nu lap u, periodic, in slabs of rows over all ranks. A network learns the change of a cell over 10
// steps from its 5 x 5 neighbours, in a thread beside the solver, on the ranks' own communicator and memory. Exits with 1
// if the error at the end is above 0.02.
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include <tandem/mpi.h>
#include <tandem/tandem.h>

namespace td = tandem;

// A field with ghost cells and a leading dimension, as those of Eigen, Kokkos or std::mdspan have.
class Field {
 public:
  static constexpr int kGhosts = 2;
  Field(int rows, int columns)
      : rows_(rows), columns_(columns), leading_(columns + 2 * kGhosts + 3), values_((rows + 2 * kGhosts) * leading_) {}
  double& operator()(int row, int column) { return values_[(row + kGhosts) * leading_ + column + kGhosts]; }
  int rows() const { return rows_; }
  int columns() const { return columns_; }
  int leading() const { return leading_; }

 private:
  int rows_, columns_, leading_;
  std::vector<double> values_;
};

// The field's cells as [cells, 1]: read where they are.
td::Tensor cells_of(Field& u) {
  const td::Tensor cells = td::from_blob(&u(0, 0), {u.rows(), u.columns()}, {.strides = {u.leading(), 1}});
  return td::reshape(cells, {-1, 1});
}

// The 5 x 5 neighbours of each cell, [cells, 5, 5]: the strides overlap.
td::Tensor neighbours_of(Field& u) {
  const int at = u.leading();
  const td::Tensor all = td::from_blob(&u(-2, -2), {u.rows(), u.columns(), 5, 5}, {.strides = {at, 1, at, 1}});
  return td::reshape(all, {-1, 5, 5});
}

class Solver {
 public:
  static constexpr int kCells = 60;  // for 2 and 3 ranks
  explicit Solver(MPI_Comm comm) : comm_(comm), rank_(of(MPI_Comm_rank)), ranks_(of(MPI_Comm_size)),
                                   u_(kCells / ranks_, kCells), next_(u_) {
    const double h = 1.0 / kCells, pi = std::acos(-1.0);
    for (int i = 0; i < u_.rows(); ++i)
      for (int j = 0; j < kCells; ++j) {
        const double y = (rank_ * u_.rows() + i) * h, x = j * h;
        u_(i, j) = std::sin(2 * pi * (y + 2 * x)) + 0.5 * std::cos(2 * pi * (3 * y - x)) + 0.3 * std::sin(10 * pi * x);
      }
    exchange();
  }

  Field& field() { return u_; }

  void advance() {
    const double h = 1.0 / kCells, dt = 2e-4, nu = 4e-3, ax = 0.6, ay = 1.0;
    for (int i = 0; i < u_.rows(); ++i)
      for (int j = 0; j < kCells; ++j) {
        const double n = u_(i + 1, j), s = u_(i - 1, j), e = u_(i, j + 1), w = u_(i, j - 1);
        next_(i, j) = u_(i, j) + dt * (-ay * (n - s) / (2 * h) - ax * (e - w) / (2 * h) +
                                       nu * (n + s + e + w - 4 * u_(i, j)) / (h * h));
      }
    std::swap(u_, next_);
    exchange();
  }

 private:
  int of(int (*ask)(MPI_Comm, int*)) const {
    int number = 0;
    ask(comm_, &number);
    return number;
  }

  // Fills the ghost cells.
  void exchange() {
    constexpr int kGhosts = Field::kGhosts;
    const int up = (rank_ + 1) % ranks_, down = (rank_ + ranks_ - 1) % ranks_, count = kGhosts * u_.leading();
    const int last = u_.rows() - kGhosts;
    MPI_Sendrecv(&u_(last, -kGhosts), count, MPI_DOUBLE, up, 0, &u_(-kGhosts, -kGhosts), count, MPI_DOUBLE, down, 0, comm_,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u_(0, -kGhosts), count, MPI_DOUBLE, down, 1, &u_(u_.rows(), -kGhosts), count, MPI_DOUBLE, up, 1, comm_,
                 MPI_STATUS_IGNORE);
    for (int i = -kGhosts; i < u_.rows() + kGhosts; ++i)
      for (int j = 1; j <= kGhosts; ++j) {
        u_(i, -j) = u_(i, kCells - j);
        u_(i, kCells + j - 1) = u_(i, j - 1);
      }
  }

  MPI_Comm comm_;
  int rank_, ranks_;
  Field u_, next_;
};

td::Model make_model() {
  td::Sequential model({td::layers::Flatten({.input_shape = {5, 5}}), td::layers::Dense(48, {.activation = "tanh"}),
                        td::layers::Dense(1)});
  model.compile({.optimizer = td::optimizers::Adam({.learning_rate = 3e-3}), .loss = td::losses::MeanSquaredError()});
  return model;
}

double sum_over(MPI_Comm comm, const td::Tensor& values) {
  double sum = td::reduce_sum(td::cast(values * values, td::float64)).item();
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
  return sum;
}

double run(MPI_Comm comm) {
  td::random::set_seed(1);
  Solver solver(comm);
  // Two models of one kind: one predicts, the other is trained in a thread, over a communicator of its own.
  const td::online::Learner learner(make_model(), {.group = td::comm::from_mpi(comm), .normalize = {{}}});
  const td::online::Learner trained(make_model(), {.group = td::comm::from_mpi(comm), .normalize = {{}}});
  const td::online::Window window({.capacity = 20 * solver.field().rows() * Solver::kCells, .batch_size = 64, .seed = 1});
  const td::online::Trainer trainer(learner, trained, window, {.max_lag = 2, .steps_per_push = 10});
  double error = 0.0;
  for (int step = 0; step < 150; ++step) {
    const td::Tensor x = td::cast(neighbours_of(solver.field()), td::float32);
    const td::Tensor before = cells_of(solver.field());
    for (int i = 0; i < 10; ++i) solver.advance();
    const td::Tensor change = cells_of(solver.field()) - before;
    trainer.update();
    const td::Tensor wrong = td::cast(learner.predict(x), td::float64) - change;  // before it has seen them
    error = std::sqrt(sum_over(comm, wrong) / sum_over(comm, change));
    const td::Tensor y = td::cast(change, td::float32);
    learner.observe(x, y);
    trainer.push(x, y);
  }
  const td::online::Report report = trainer.stop();
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  if (rank == 0)
    std::printf("relative error of the change %.3f, %lld steps\n", error, static_cast<long long>(report.step));
  return error;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);  // any thread level: the ranks are on one host
  const double error = run(MPI_COMM_WORLD);
  MPI_Finalize();
  return error <= 0.02 ? 0 : 1;
}
