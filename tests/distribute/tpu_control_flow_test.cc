// Steps of optimizers, and writes of variables, in branches and loops that a TPU runs: they do what
// they do on a CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "support/errors.h"
#include "support/expects.h"
#include "support/outcomes.h"
#include "support/pjrt.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::tpu_control_flow_test {
namespace {

using testing::error_of;
using testing::values_of;
using Tensors = std::vector<Tensor>;

class TpuControlFlow : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
    config::set_logical_cpus(2);
    config::load_pjrt_plugin(testing::first_plugin());
  }
};

Tensor number(std::int64_t value) { return constant(value, {.dtype = int64}); }

// Runs `body` as often as `count` says.
void repeat(const Tensor& count, const std::function<void()>& body,
            const WhileOptions& options = {.maximum_iterations = 4}) {
  while_loop([&](const Tensors& v) { return less(v[0], count); },
             [&](const Tensors& v) {
               body();
               return Tensors{v[0] + 1};
             },
             {number(0)}, options);
}

// --- steps of optimizers ---

struct Trainer {
  Variable w{constant({1.0f, -2.0f, 0.5f}), {.name = "w"}};
  optimizers::Optimizer optimizer;

  explicit Trainer(const std::function<optimizers::Optimizer(const Variable&)>& make)
      : optimizer(make(w)) {}
  void step(const Tensor& x) {
    optimizer.zero_grad();
    reduce_sum(square(w.value()) * x).backward();
    optimizer.step();
  }
};

using MakeOptimizer = std::function<optimizers::Optimizer(const Variable&)>;
using Program = std::function<void(Trainer&, const Tensor& x, const Tensor& count)>;

// The variable and the number of steps after each of some calls on the device.
std::vector<double> train(const char* device, const MakeOptimizer& make, const Program& program) {
  const DeviceScope there(device);
  Trainer trainer(make);
  const auto step = function([&](const Tensor& x, const Tensor& count) {
    const DeviceScope inside(device);
    program(trainer, x, count);
  });
  std::vector<double> numbers;
  for (const std::int64_t count : {1, 0, 3, 2}) {
    step(constant({0.3f, 0.7f, -0.2f}), number(count));
    for (const double value : values_of(trainer.w)) numbers.push_back(value);
    numbers.push_back(static_cast<double>(trainer.optimizer.iterations()));
  }
  return numbers;
}

void expect_same_steps(const MakeOptimizer& make, const Program& program) {
  const std::vector<double> tpu = train("TPU:1", make, program),
                            cpu = train("/cpu:0", make, program);
  ASSERT_EQ(tpu.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(tpu[i], cpu[i], 1e-5) << i;
}

optimizers::LearningRate decaying() {
  return optimizers::schedules::exponential_decay(0.1, 1, 0.7);
}

void branch(const Tensor& when, const std::function<void()>& body) {
  cond(when, body, [] {});
}

TEST_F(TpuControlFlow, StepsCountInBranchesAndLoops) {
  const std::vector<std::pair<const char*, Program>> programs = {
      {"branch", [](Trainer& t, const Tensor& x,
                    const Tensor& count) { branch(greater(count, 0), [&] { t.step(x); }); }},
      {"loop",
       [](Trainer& t, const Tensor& x, const Tensor& count) { repeat(count, [&] { t.step(x); }); }},
      {"between others",
       [](Trainer& t, const Tensor& x, const Tensor& count) {
         t.step(x);
         branch(greater(count, 1), [&] {
           t.step(x);
           t.step(x * 2.0);
         });
         t.step(x);
         repeat(count, [&] { t.step(x); });
         t.step(x);
       }},
      {"one or two",
       [](Trainer& t, const Tensor& x, const Tensor& count) {
         cond(
             greater(count, 1), [&] { t.step(x); },
             [&] {
               t.step(x);
               t.step(x);
             });
         branch(less(count, 2), [&] { t.step(x); });
       }},
      {"branch in a loop in a branch",
       [](Trainer& t, const Tensor& x, const Tensor& count) {
         branch(greater(count, 0), [&] {
           t.step(x);
           repeat(count, [&] {
             t.step(x);
             branch(greater(reduce_sum(square(t.w.value())), 4.0), [&] { t.step(x * 0.5); });
           });
         });
       }},
  };
  const std::vector<std::pair<const char*, MakeOptimizer>> optimizers = {
      {"Adam", [](const Variable& w) { return optimizers::Adam(decaying(), {w}); }},
      {"SGD",
       [](const Variable& w) {
         return optimizers::SGD({.learning_rate = decaying(), .momentum = 0.9}, {w});
       }},
      {"LARC",
       [](const Variable& w) { return apex::parallel::LARC(optimizers::SGD(decaying(), {w})); }},
  };
  for (const auto& [name, make] : optimizers)
    for (const auto& [what, program] : programs) {
      SCOPED_TRACE(std::string(name) + ", " + what);
      expect_same_steps(make, program);
    }
}

// A later part of the program, on another device, has the number of the step that it takes.
TEST_F(TpuControlFlow, LaterStepsOnOtherDevicesKnowThem) {
  const auto train_on = [](const char* first, const char* second) {
    Variable a, b;
    {
      const DeviceScope there(first);
      a = Variable(constant({1.0f, 2.0f}), {.name = "a"});
    }
    {
      const DeviceScope there(second);
      b = Variable(constant({3.0f, 4.0f}), {.name = "b"});
    }
    auto optimizer = optimizers::Adam(decaying());
    const auto step = function([&](const Tensor& x, const Tensor& go) {
      {
        const DeviceScope there(first);
        branch(go, [&] { optimizer.apply_gradients({x}, {a}); });
      }
      const DeviceScope there(second);
      optimizer.apply_gradients({x * 2.0}, {b});
    });
    for (const bool go : {true, false, true}) step(constant({0.5f, -1.0f}), constant(go));
    std::vector<double> numbers = values_of(a);
    for (const double value : values_of(b)) numbers.push_back(value);
    numbers.push_back(static_cast<double>(optimizer.iterations()));
    return numbers;
  };
  const std::vector<double> cpu = train_on("/cpu:0", "/cpu:0");
  for (const auto& [first, second] :
       {std::pair{"TPU:0", "TPU:1"}, {"TPU:1", "/cpu:0"}, {"/cpu:0", "TPU:0"}}) {
    SCOPED_TRACE(std::string(first) + " " + second);
    const std::vector<double> tpu = train_on(first, second);
    for (std::size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(tpu[i], cpu[i], 1e-5) << i;
  }
}

TEST_F(TpuControlFlow, StepsInALoopNeedALimit) {
  const MakeOptimizer adam = [](const Variable& w) { return optimizers::Adam(decaying(), {w}); };
  for (const WhileOptions& options :
       {WhileOptions{}, WhileOptions{.maximum_iterations = std::int64_t{1} << 40}}) {
    const Program program = [&](Trainer& t, const Tensor& x, const Tensor& count) {
      repeat(
          count, [&] { t.step(x); }, options);
    };
    testing::expect_parts(error_of<UnimplementedError>([&] { train("TPU:0", adam, program); }),
                          {"[ApplyAdam] ",
                           "cannot be lowered to StableHLO: it depends on how often a loop runs: "
                           "expected a limit of iterations (WhileOptions::maximum_iterations)"});
  }
}

// --- variables of other devices ---

TEST_F(TpuControlFlow, VariablesOfAllDevicesAreWritten) {
  const std::vector<const char*> devices = {"/cpu:0", "/cpu:1", "TPU:0", "TPU:1"};
  for (const char* home : devices)
    for (const char* device : devices)
      for (const bool loops : {false, true}) {
        SCOPED_TRACE(std::string(home) + " " + device);
        Variable v;
        {
          const DeviceScope there(home);
          v = Variable(zeros({2}), {.trainable = false});
        }
        const auto step = function([&](const Tensor& count) {
          const Tensor before = v.value() * 1.0;
          {
            const DeviceScope there(device);
            if (loops)
              repeat(count, [&] { v.assign_add(ones({2})); });
            else
              branch(greater(count, 0), [&] { v.assign_add(ones({2}) * cast(count, float32)); });
          }
          const Tensor between = v.value() + 0.0;
          v.assign_add(full({2}, 10.0));
          {
            const DeviceScope there(device);
            branch(greater(count, 0), [&] { v.assign(v.value() * 2.0); });
          }
          return Tensors{before, between, v.value() + 0.0};
        });
        double value = 0.0;
        for (const std::int64_t count : {3, 0, 1}) {
          const Tensors results = step(number(count));
          EXPECT_EQ(values_of(results[0]), std::vector<double>(2, value));
          value += static_cast<double>(count);
          EXPECT_EQ(values_of(results[1]), std::vector<double>(2, value));
          value = (value + 10.0) * (count > 0 ? 2.0 : 1.0);
          EXPECT_EQ(values_of(results[2]), std::vector<double>(2, value));
          EXPECT_EQ(values_of(v), std::vector<double>(2, value));
        }
      }
}

// Programs on two devices write one variable, one after the other.
TEST_F(TpuControlFlow, BranchesOnTwoDevicesWriteOneVariable) {
  const Variable v(zeros({2}), {.trainable = false});
  const auto step = function([&](const Tensor& go) {
    for (const char* device : {"TPU:0", "TPU:1"}) {
      const DeviceScope there(device);
      branch(go, [&] { Variable(v).assign_add(ones({2})); });
    }
  });
  for (int i = 0; i < 3; ++i) step(constant(true));
  EXPECT_EQ(values_of(v), (std::vector<double>{6, 6}));
}

// A tensor that was read before a write keeps its elements, although the parts on TPUs run first.
TEST_F(TpuControlFlow, ReadsBeforeAWriteKeepTheirElements) {
  Variable v(ones({2}), {.trainable = false});
  for (const bool branches : {false, true}) {
    v.assign(ones({2}));
    const auto step = function([&](const Tensor& x, const Tensor& go) {
      const Tensor read = v.value();
      Tensor there;
      {
        const DeviceScope on("TPU:0");
        there = x * 2.0;
      }
      const Tensor sum = read + there;
      if (branches) {
        const DeviceScope on("TPU:0");
        branch(go, [&] { v.assign_add(full({2}, 100.0)); });
      } else {
        v.assign_add(full({2}, 100.0));
      }
      return sum;
    });
    EXPECT_EQ(values_of(step(ones({2}), constant(true))), (std::vector<double>{3, 3}));
    EXPECT_EQ(values_of(v), (std::vector<double>{101, 101}));
  }
}

TEST_F(TpuControlFlow, AConditionDoesNotWrite) {
  Variable v(zeros({}), {.trainable = false});
  const auto step = function([&] {
    const DeviceScope there("TPU:0");
    return while_loop(
        [&](const Tensors& x) {
          v.assign_add(ones({}));
          return less(x[0], 3.0);
        },
        [](const Tensors& x) { return Tensors{x[0] + 1.0}; }, {zeros({})})[0];
  });
  testing::expect_parts(error_of<UnimplementedError>([&] { step(); }),
                        {"cannot be lowered to StableHLO: its condition writes variables"});
}

TEST_F(TpuControlFlow, SessionsDoNotTrainThere) {
  const DeviceScope there("TPU:0");
  const Variable outside(ones({2}));
  auto adam = optimizers::Adam(0.1);
  Graph graph;
  Variable inside;
  Graph::Operation train;
  {
    const GraphScope building(graph);
    inside = Variable(ones({2}), {.name = "inside"});
    train = graph.updates("train", [&] { adam.minimize(reduce_sum(square(outside)), {outside}); });
  }
  Session session(graph, {.initialize_variables = true});
  testing::expect_parts(error_of<UnimplementedError>([&] { session.run(train); }),
                        {"a session counts its steps; use a function instead"});
  testing::expect_parts(error_of<UnimplementedError>([&] { session.run(inside); }),
                        {"[Session] variable 'inside' is used on ",
                         "TPU:0, which runs compiled programs: sessions "
                         "do not support it; use a function instead"});
}

TEST_F(TpuControlFlow, ReplicasOfTwoKindsAreRefused) {
  const distribute::MirroredStrategy strategy({.devices = {"TPU:0", "CPU:1"}});
  auto scope = strategy.scope();
  const Variable w(ones({2}), {.name = "w"});
  auto optimizer = optimizers::SGD(0.1, {w});
  const auto step = function(
      [&] { strategy.run([&] { optimizer.minimize(reduce_sum(square(w.value())), {w}); }); });
  const std::string error = error_of<UnimplementedError>([&] { step(); });
  testing::expect_parts(error, {"one replica is on ", "device:TPU:0 and another on ",
                                "device:CPU:1: expected all of them on devices that run compiled "
                                "programs, as TPUs do, or none"});
}

// --- random programs ---

// A program of operations, reads, writes, branches and loops, each on a device by chance. The seed
// decides all but the devices.
class RandomProgram {
 public:
  RandomProgram(std::uint64_t seed, std::vector<const char*> devices)
      : state_(seed * 2654435761u + 88172645463325252u), devices_(std::move(devices)) {
    for (int i = 0; i < 3; ++i) {
      const DeviceScope there(device());
      variables_.emplace_back(full({3}, 1.0 + i), VariableOptions{.trainable = false});
    }
  }

  // The results of some calls, and then the variables.
  std::vector<double> run() {
    const std::uint64_t start = state_;
    const auto step = function([&](const Tensor& x, const Tensor& count) {
      state_ = start;
      values_ = {x, x * 0.5};
      for (int i = 0; i < 10; ++i) add(count, 0);
      return values_;
    });
    std::vector<double> numbers;
    for (const std::int64_t count : {2, 0, 3})
      for (const Tensor& result : step(constant({0.5f, -1.0f, 2.0f}), number(count)))
        for (const double value : values_of(result)) numbers.push_back(value);
    for (const Variable& variable : variables_)
      for (const double value : values_of(variable)) numbers.push_back(value);
    return numbers;
  }

 private:
  std::size_t below(std::size_t end) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<std::size_t>(state_ >> 33) % end;
  }
  const char* device() { return devices_[below(60) % devices_.size()]; }
  const Tensor& value() { return values_[below(values_.size())]; }
  Variable& variable() { return variables_[below(variables_.size())]; }

  // A value between -2 and 2, so that nothing grows without bound.
  Tensor computed() {
    const Tensor a = value(), b = value();
    switch (below(4)) {
      case 0: return tanh(a + b * 0.5);
      case 1: return maximum(a, b) * 0.5;
      case 2: return tanh(a) * reduce_mean(b);
      default: return sin(a - b);
    }
  }

  void add(const Tensor& count, int depth) {
    const DeviceScope there(device());
    switch (below(depth < 2 ? 6 : 4)) {
      case 0: values_.push_back(computed()); break;
      case 1: values_.push_back(variable().value()); break;
      case 2: values_.push_back(sin(variable().value()) + value()); break;
      case 3: write(); break;
      case 4: add_branch(count, depth); break;
      default: add_loop(count, depth); break;
    }
  }

  // Operations that write run where the variable is.
  void write() {
    Variable& to = variable();
    const Tensor from = sin(value() + to.value());
    const DeviceScope there(to.device());
    to.assign(from);
  }

  void add_inside(const Tensor& count, int depth) {
    for (int i = 0; i < 3; ++i) add(count, depth + 1);
  }

  void add_branch(const Tensor& count, int depth) {
    const std::vector<Tensor> outside = values_;
    const auto body = [&] {
      values_ = outside;
      add_inside(count, depth);
      return values_.back() * 1.0;
    };
    const auto limit = static_cast<double>(below(3));
    const Tensor result = cond(greater(cast(count, float32), limit), body, body);
    values_ = outside;
    values_.push_back(result);
  }

  void add_loop(const Tensor& count, int depth) {
    const std::vector<Tensor> outside = values_;
    const Tensor start = value() * 1.0;
    const Tensor result = while_loop([&](const Tensors& v) { return less(v[0], count); },
                                     [&](const Tensors& v) {
                                       values_ = outside;
                                       values_.push_back(v[1]);
                                       add_inside(count, depth);
                                       return Tensors{v[0] + 1, tanh(values_.back() + v[1])};
                                     },
                                     {number(0), start}, {.maximum_iterations = 5})[1];
    values_ = outside;
    values_.push_back(result);
  }

  std::uint64_t state_;
  std::vector<const char*> devices_;
  std::vector<Variable> variables_;
  std::vector<Tensor> values_;
};

TEST_F(TpuControlFlow, RandomProgramsOnMixedDevicesComputeWhatACpuComputes) {
  testing::for_each_seed(12, [](std::uint32_t seed) {
    SCOPED_TRACE("TANDEM_RANDOM_PROGRAMS_FIRST=" + std::to_string(seed));
    const std::vector<double> cpu = RandomProgram(seed, {"/cpu:0"}).run(),
                              mixed = RandomProgram(seed, {"/cpu:0", "TPU:0", "TPU:1"}).run();
    ASSERT_EQ(mixed.size(), cpu.size());
    for (std::size_t i = 0; i < cpu.size(); ++i) ASSERT_NEAR(mixed[i], cpu[i], 1e-3) << i;
  });
}

}  // namespace
}  // namespace tandem::tpu_control_flow_test
