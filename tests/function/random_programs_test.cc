// Random programs give the same bits eagerly, as traced functions, in sessions and on GPUs:
// results, variables and gradients.
//
// TANDEM_RANDOM_PROGRAMS=N runs N programs of each kind; TANDEM_RANDOM_PROGRAMS_FIRST=S begins with
// seed S. scripts/soak runs more of them.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "function/random_program.h"
#include "op/op.h"
#include "support/errors.h"
#include "support/gpus.h"
#include "support/outcomes.h"

namespace tandem::random_programs_test {
namespace {

using testing::RandomProgram;
using testing::Tensors;

// A program that runs in one way.
struct Run {
  std::function<Tensors(const Tensors&)> call;
  std::function<Tensors()> variables;
};
using Way = std::function<Run(std::uint32_t seed, const RandomProgram::Options&)>;

Run eager(std::uint32_t seed, const RandomProgram::Options& options) {
  const auto program = std::make_shared<RandomProgram>(seed, options);
  return {[program](const Tensors& inputs) { return (*program)(inputs); },
          [program] {
            Tensors values;
            for (const Variable& variable : program->variables())
              values.push_back(variable.value());
            return values;
          }};
}

Run traced(std::uint32_t seed, const RandomProgram::Options& options) {
  const Run run = eager(seed, options);
  return {tandem::function(run.call), run.variables};
}

Run run_in_session(bool deserialized, std::uint32_t seed, const RandomProgram::Options& options) {
  Graph graph;
  std::vector<Fetch> results;
  std::vector<std::string> feeds;
  {
    const GraphScope building(graph);
    RandomProgram program(seed, options);
    Tensors inputs;
    for (const Shape& shape : program.input_shapes()) {
      const std::string name = "input" + std::to_string(feeds.size());
      inputs.push_back(placeholder(options.dtype, shape, name));
      feeds.push_back(name + ":0");
    }
    graph.updates("step", [&] {
      for (const Tensor& result : program(inputs)) {
        const std::string name = "result" + std::to_string(results.size());
        identity(result, {.name = name});
        results.emplace_back(name + ":0");
      }
    });
    graph.initializer();
  }
  if (deserialized) graph = Graph::deserialize(graph.serialize());
  const auto session = std::make_shared<Session>(graph);
  session->run(graph.operation("init"));
  const std::size_t count = results.size();
  results.emplace_back(graph.operation("step"));
  return {[=](const Tensors& inputs) {
            Feeds fed;
            for (std::size_t i = 0; i < inputs.size(); ++i) fed.emplace_back(feeds[i], inputs[i]);
            Tensors fetched = session->run(fed, results);
            fetched.resize(count);
            return fetched;
          },
          [=] {
            return session->run(Feeds(), {"first:0", "second:0"});
          }};
}

Run on_device(const char* device, const Way& way, std::uint32_t seed,
              const RandomProgram::Options& options) {
  const DeviceScope scope(device);
  const Run run = way(seed, options);
  return {[=](const Tensors& inputs) {
            const DeviceScope inside(device);
            return run.call(inputs);
          },
          run.variables};
}

// The bits of the results and variables of each of several calls, or the error of one.
std::vector<std::string> bits_of_calls(const Run& run, const RandomProgram& program,
                                       bool backward) {
  std::vector<std::string> bits;
  for (std::uint32_t number = 0; number < 3; ++number) {
    random::set_seed(number + 11);
    const Tensors inputs = program.inputs(number);
    Tensors results;
    // All ways throw the same error.
    const std::string error = testing::any_error_of([&] {
      if (!backward) {
        results = run.call(inputs);
        return;
      }
      GradientTape tape;
      for (const Tensor& input : inputs) tape.watch(input);
      results = run.call(inputs);
      for (const Tensor& gradient :
           tape.gradient(program.total(results), inputs,
                         {.unconnected_gradients = UnconnectedGradients::kZero}))
        results.push_back(gradient);
    });
    bits.push_back(error);
    // An eager program runs up to the error, others do not run at all.
    if (error != "no error") return bits;
    for (const Tensor& result : results) bits.push_back(testing::bits_of(result));
    for (const Tensor& value : run.variables()) bits.push_back(testing::bits_of(value));
  }
  return bits;
}

struct Comparison {
  RandomProgram::Options options = {};
  std::uint32_t programs = 100;
  bool backward = false;  // with gradients that are computed outside of the program
  Way expected = eager;
};

void compare(const Comparison& what, const std::vector<Way>& ways) {
  std::uint32_t failed = 0;
  const std::uint32_t programs = testing::for_each_seed(what.programs, [&](std::uint32_t seed) {
    const RandomProgram program(seed, what.options);
    const auto bits = [&](const Way& way) {
      return bits_of_calls(way(seed, what.options), program, what.backward);
    };
    const std::vector<std::string> expected = bits(what.expected);
    std::vector<std::vector<std::string>> actual;
    for (const Way& way : ways) actual.push_back(bits(way));
    testing::expect_equal(seed, actual, expected);
    for (const std::string& outcome : expected) failed += outcome.find("Error: ") < 32;
  });
  // Programs that throw compare little.
  EXPECT_LE(failed, programs / 10);
}

const Way in_session = std::bind_front(run_in_session, false);
const Way deserialized = std::bind_front(run_in_session, true);

TEST(RandomPrograms, TracedEqualsEager) { compare({.programs = 120}, {traced}); }

TEST(RandomPrograms, GradientsComputedInsideAreEqual) {
  compare({.options = {.gradients_inside = true}, .programs = 120}, {traced});
}

TEST(RandomPrograms, SessionsEqualEager) {
  compare({.options = {.gradients_inside = true, .random_numbers = false}, .programs = 50},
          {in_session, deserialized});
  compare({.options = {.every_value = true}, .programs = 20}, {in_session, deserialized});
}

TEST(RandomPrograms, GradientsComputedOutsideAreEqual) {
  compare({.programs = 100, .backward = true}, {traced});
}

TEST(RandomPrograms, EveryFloatingDtypeIsEqual) {
  for (const DType dtype : {float64, float16, bfloat16})
    compare({.options = {.dtype = dtype, .gradients_inside = true}, .programs = 20}, {traced});
}

TEST(RandomPrograms, OperationsOnSeveralDevicesAreEqual) {
  testing::use_gpus(2);
  compare({.options = {.gradients_inside = true, .devices = {"/cpu:0", "/gpu:0", "/gpu:1"}},
           .programs = 30},
          {traced});
}

TEST(RandomPrograms, EmulatedGpusEqualCpus) {
  TANDEM_EMULATION_ONLY("their kernels round differently");
  config::set_emulated_gpus(1, 1024);
  const auto on = [](const char* device, Way way) {
    return Way(std::bind_front(on_device, device, std::move(way)));
  };
  compare({.options = {.gradients_inside = true}, .programs = 30, .expected = on("/cpu:0", eager)},
          {on("/gpu:0", eager), on("/gpu:0", traced)});
}

// Operations that random programs do not have, and why.
const std::map<std::string_view, std::string_view> kNotInPrograms = {
    {"AllFinite", "of loss scales, which have it without a public function"},
    {"ApplyAdagradV2", "optimizers are in random models"},
    {"ApplyAdam", "optimizers are in random models"},
    {"ApplyAdamWithAmsgrad", "compared with a plain loop in nn.Amsgrad"},
    {"ApplyCenteredRMSProp", "optimizers are in random models"},
    {"ApplyCenteredRMSPropMomentum", "optimizers are in random models"},
    {"ApplyGradientDescent", "optimizers are in random models"},
    {"ApplyKerasMomentum", "optimizers are in random models"},
    {"ApplyLamb", "optimizers are in random models"},
    {"ApplyMomentum", "optimizers are in random models"},
    {"ApplyRMSProp", "optimizers are in random models"},
    {"ApplyRMSPropMomentum", "optimizers are in random models"},
    {"AssignSlice", "of caches of keys and values, which have it without a public function"},
    {"BatchNormMoments", "of synchronised batch normalisation, which needs several replicas"},
    {"CTCLoss", "refuses labels that are blank; traced in nn.CtcLoss"},
    {"CTCLossGrad", "refuses labels that are blank; traced in nn.CtcLoss"},
    {"CastStorage", "between all pairs of dtypes in ops.StorageDtypes"},
    {"Cholesky", "refuses what is singular or not finite; traced in ops.Linalg"},
    {"ElementCount", "of unknown sizes"},
    {"EnsureShape", "of unknown sizes"},
    {"LogMatrixDeterminant", "refuses what is singular or not finite; traced in ops.Linalg"},
    {"LstmSteps", "of layers, on CPUs; traced in ops.LstmSteps"},
    {"LstmStepsGrad", "of layers, on CPUs; traced in ops.LstmSteps"},
    {"MatrixSolve", "refuses what is singular or not finite; traced in ops.Linalg"},
    {"MatrixTriangularSolve", "refuses what is singular or not finite; traced in ops.Linalg"},
    {"MaxPoolGradGrad", "a second derivative"},
    {"PseudoInverse", "refuses what is singular or not finite; traced in ops.Linalg"},
    {"Qr", "refuses what is singular or not finite; traced in ops.Linalg"},
    {"SelfAdjointEigV2", "refuses what is singular or not finite; traced in ops.Linalg"},
    {"StepScalar", "a number that only traced updates compute"},
    {"SumToShape", "of unknown sizes"},
    {"Svd", "refuses what is singular or not finite; traced in ops.Linalg"},
};

TEST(RandomPrograms, HaveEveryOperationThatHasNoReasonToBeLeftOut) {
  std::set<std::string_view> found;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    Graph graph;
    const GraphScope building(graph);
    RandomProgram program(seed, {.gradients_inside = true});
    testing::any_error_of([&] { program(program.inputs(0)); });
    for (const Graph::Operation& operation : graph.operations()) found.insert(operation.type());
  }
  for (const OpDef* op : all_ops())
    EXPECT_NE(found.contains(op->name), kNotInPrograms.contains(op->name))
        << op->name << " needs a step in random_steps.h or an entry in this test";
}

}  // namespace
}  // namespace tandem::random_programs_test
