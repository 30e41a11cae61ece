// custom_operation(): operations of the program's own.
#include "tandem/custom_operation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <limits>

#include "op/find_kernel.h"
#include "op/own_op.h"
#include "support/files.h"
#include "support/gradient_check.h"
#include "support/process_groups.h"
#include "support/strategies.h"
#include "support/tensors.h"
#include "tandem/tandem.h"
#include "tensor/tensor_impl.h"

namespace tandem::custom_operation_test {
namespace {

using namespace testing;

std::vector<InputSpec> same(const InferCall& call) { return {call.input(0)}; }

template <class T>
void cube(const KernelTensor& x, const KernelTensor& y, double factor, const KernelCall& call) {
  call.parallel_for(x.size(), 1'000, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T value = x.as<T>()[i];
      y.as<T>()[i] = static_cast<T>(factor) * value * value * value;
    }
  });
}

double factor_of(const OperationCall& call) {
  return call.has_attribute("factor") ? call.attribute("factor").toDouble() : 1.0;
}

void cube_kernel(const KernelCall& call) {
  const KernelTensor x = call.input(0), y = call.output(0);
  if (x.dtype == float64)
    cube<double>(x, y, factor_of(call), call);
  else
    cube<float>(x, y, factor_of(call), call);
}

// factor * x^3
const CustomOperation& cube_op() {
  static const CustomOperation op = custom_operation(
      {.name = "test.Cube",
       .infer = same,
       .cpu_kernel = cube_kernel,
       .gradient =
           [](const GradientCall& call) {
             return std::vector{3.0 * factor_of(call) * square(call.input(0)) * call.gradient()};
           },
       .saved_outputs = std::vector<int>()});
  return op;
}

// The rows of a next to those of b, and the number of columns of a.
const CustomOperation& join_op() {
  static const CustomOperation op = custom_operation(
      {.name = "test.Join",
       .infer =
           [](const InferCall& call) {
             const InputSpec a = call.input(0), b = call.input(1);
             if (a.shape.rank() != 2 || b.shape.rank() != 2)
               throw ShapeError("[test.Join] expected matrices");
             return std::vector<InputSpec>{{{a.shape[0], a.shape[1] + b.shape[1]}, a.dtype},
                                           {Shape::scalar(), int64}};
           },
       .cpu_kernel =
           [](const KernelCall& call) {
             const KernelTensor a = call.input(0), b = call.input(1), y = call.output(0);
             const std::int64_t n = a.shape[1], m = b.shape[1];
             const std::size_t size = size_of(a.dtype);
             for (std::int64_t row = 0; row < a.shape[0]; ++row) {
               auto* to = static_cast<char*>(y.data) + row * (n + m) * std::int64_t(size);
               std::memcpy(to, static_cast<char*>(a.data) + row * n * std::int64_t(size),
                           std::size_t(n) * size);
               std::memcpy(to + n * std::int64_t(size),
                           static_cast<char*>(b.data) + row * m * std::int64_t(size),
                           std::size_t(m) * size);
             }
             *call.output(1).as<std::int64_t>() = n;
           },
       .gradient =
           [](const GradientCall& call) {
             const Tensor g = call.gradient();
             const Dim n = call.input(0).shape()[1], m = call.input(1).shape()[1];
             return std::vector{slice(g, {0, 0}, {-1, n}), slice(g, {0, n}, {-1, m})};
           }});
  return op;
}

TEST(CustomOperation, RunsEagerlyAndTraced) {
  const Tensor x = constant({1.0, -2.0, 3.0});
  expect_tensor(cube_op()({x}), float32, {3}, {1, -8, 27});
  expect_tensor(cube_op()({x}, {{"factor", 2.0}}), float32, {3}, {2, -16, 54});
  expect_tensor(cube_op()({zeros({0, 3})}), float32, {0, 3}, {});
  const auto traced = function([&](const Tensor& v) { return cube_op()({v + 1.0}) * 2.0; });
  expect_tensor(traced(x), float32, {3}, {16, -2, 128});
  const auto branches = function([](const Tensor& v) {
    return cond(
        reduce_sum(v) > 0.0, [&] { return cube_op()({v}); }, [&] { return v; });
  });
  expect_tensor(branches(x), float32, {3}, {1, -8, 27});
  EXPECT_EQ(cube_op().name(), "test.Cube");
}

TEST(CustomOperation, HasGradientsOfAllOrders) {
  const auto f = [](const std::vector<Tensor>& in) {
    return cube_op()({in[0]}, {{"factor", 0.5}});
  };
  expect_gradients(f, {random_tensor({2, 3})});
  expect_second_order(f, {random_tensor({4})});
  const auto joined = [](const std::vector<Tensor>& in) {
    return square(join_op().call({in[0], in[1]})[0]);
  };
  expect_gradients(joined, {random_tensor({2, 3}), random_tensor({2, 2})});
  expect_second_order(joined, {random_tensor({2, 1}), random_tensor({2, 2})});
  const auto traced = function([&](const Tensor& v) {
    GradientTape tape;
    tape.watch(v);
    return tape.gradient(reduce_sum(f({v})), v);
  });
  const Tensor x = random_tensor({5});
  expect_tensor(traced(x), float64, {5}, values_of(1.5 * square(x)), 1e-12);
}

TEST(CustomOperation, HasSeveralOutputs) {
  const std::vector<Tensor> outputs = join_op().call({constant({{1.0, 2.0}}), constant({{3.0}})});
  ASSERT_EQ(outputs.size(), 2u);
  expect_tensor(outputs[0], float32, {1, 3}, {1, 2, 3});
  EXPECT_EQ(outputs[1].item<std::int64_t>(), 2);
  expect_error<InvalidArgumentError>(
      [] {
        static_cast<void>(join_op()({ones({1, 1}), ones({1, 1})}));
      },
      "[test.Join] expected one output, got 2: use call()");
}

TEST(CustomOperation, InfersUnknownSizes) {
  const auto f = function(
      [](const Tensor& a, const Tensor& b) {
        const Tensor y = join_op().call({a, b})[0];
        EXPECT_FALSE(y.shape().fully_defined());
        return cube_op()({y});
      },
      {.input_signature = {{.shape = {-1, -1}}, {.shape = {-1, 2}}}});
  for (const std::int64_t rows : {1, 3})
    for (const std::int64_t columns : {0, 2})
      expect_tensor(f(2.0 * ones({rows, columns}), 2.0 * ones({rows, 2})), float32,
                    {rows, columns + 2},
                    std::vector<double>(static_cast<std::size_t>(rows * (columns + 2)), 8.0));
}

TEST(CustomOperation, MovesDtypesOfStorage) {
  const Tensor a = cast(constant({{1.0, 2.0}}), int8), b = cast(constant({{3.0}}), int8);
  expect_tensor(join_op().call({a, b})[0], int8, {1, 3}, {1, 2, 3});
}

// Weights of a model after 5 steps, in one process or on two replicas.
std::vector<float> trained(const distribute::Strategy* strategy) {
  random::set_seed(3);
  Sequential model;
  const auto make = [&] {
    model = Sequential({layers::Dense(4, {.input_shape = {3}}),
                        layers::Lambda([](const Tensor& x) { return cube_op()({x}); }),
                        layers::Dense(1)});
    model.compile({.optimizer = optimizers::SGD(0.01), .loss = losses::MeanSquaredError()});
  };
  if (strategy) {
    const auto scope = strategy->scope();
    make();
  } else {
    make();
  }
  const Tensor x = constant(random_values(24, 5, -1.0, 1.0), {.dtype = float32, .shape = {8, 3}});
  model.fit(data::Dataset::from_tensor_slices({x, reduce_sum(x, {.axis = {1}, .keepdims = true})})
                .batch(4),
            {.epochs = 3, .verbose = 0});
  return model.trainable_variables()[0].value().to_vector<float>();
}

TEST(CustomOperation, TrainsUnderStrategies) {
  const distribute::MirroredStrategy strategy = cpus(2);
  const std::vector<float> alone = trained(nullptr), together = trained(&strategy);
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[i], alone[i], 1e-6);
}

TEST(CustomOperation, TrainsUnderDdp) {
  cube_op();
  expect_group({.size = 2}, [](int rank) {
    Sequential net({layers::Dense(2, {.kernel_initializer = "ones", .input_shape = {2}}),
                    layers::Lambda([](const Tensor& x) { return cube_op()({x}); })});
    const parallel::DistributedDataParallel model(net);
    const Tensor x = rank == 0 ? constant({{1.0, 0.0}}) : constant({{0.0, 2.0}});
    reduce_sum(model(x)).backward();
    // The mean of 3 (x0 + x1)^2 x over the ranks.
    expect_tensor(net.trainable_variables()[0].grad(), float32, {2, 2}, {1.5, 1.5, 12, 12});
  });
}

Graph graph_of_cube() {
  Graph graph;
  const GraphScope building(graph);
  const Tensor x = placeholder(float32, {-1}, "x");
  const double infinity = std::numeric_limits<double>::infinity();
  const OperationAttributes all = {{"factor", 0.1},
                                   {"count", std::int64_t{-3}},
                                   {"limit", infinity},
                                   {"text", "\"a\" \xc3\xa9"},
                                   {"list", std::vector<std::int64_t>{1, -2}}};
  identity(cube_op()({x}, all), {.name = "y"});
  return graph;
}

TEST(CustomOperation, IsSavedInGraphs) {
  const TemporaryDirectory folder;
  graph_of_cube().save(folder / "cube.graph", {});
  const Graph graph = Graph::load(folder / "cube.graph");
  Session session(graph);
  expect_tensor(session.run({{"x:0", constant({2.0})}}, {"y:0"})[0], float32, {1}, {0.8}, 1e-6);
  EXPECT_EQ(graph.serialize(), graph_of_cube().serialize());
}

// Another process has registered it, and saved the graph.
TEST(CustomOperation, OfAGraphMustBeRegistered) {
  const TemporaryDirectory folder;
  const std::string path = folder / "cube.graph";
  EXPECT_EQ(run_processes(1, [&](int) { graph_of_cube().save(path, {}); }), ExitCodes(1, 0));
  expect_error<InvalidArgumentError>([&] { Graph::load(path); },
                                     "unknown operation 'test.Cube': register an operation");
}

TEST(CustomOperation, KeepsAttributesInFiles) {
  static OperationAttributes seen;
  static const CustomOperation op = custom_operation(
      {.name = "test.Attributes", .infer = same, .cpu_kernel = [](const KernelCall& call) {
         std::memcpy(call.output(0).data, call.input(0).data, sizeof(float));
         for (const char* name : {"real", "count", "text", "list"})
           seen[name] = call.attribute(name);
         EXPECT_TRUE(call.has_attribute("flag"));
         EXPECT_FALSE(call.has_attribute("other"));
         expect_error<InvalidArgumentError>([&] { static_cast<void>(call.attribute("other")); },
                                            "[test.Attributes] expected the attribute 'other'");
       }});
  const double smallest = -std::numeric_limits<double>::denorm_min();
  const OperationAttributes attributes = {{"real", smallest},
                                          {"count", INT64_MIN},
                                          {"flag", true},
                                          {"text", "\"a\"\n\xc3\xa9"},
                                          {"list", std::vector<std::int64_t>{1, -2}}};
  const Tensor y = op({constant({1.0})}, attributes);
  y.to_vector<float>();
  EXPECT_EQ(seen.at("real").toDouble(), smallest);
  EXPECT_EQ(seen.at("count").toInt(), INT64_MIN);
  EXPECT_EQ(seen.at("text").toStringRef(), "\"a\"\n\xc3\xa9");
  EXPECT_EQ(seen.at("list").toIntVector(), (std::vector<std::int64_t>{1, -2}));
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(op({constant({1.0})}, {{"text", "\xff"}}));
      },
      "[test.Attributes] expected attributes in UTF-8");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(op({constant({1.0})}, {{"none", autograd::SavedValue()}}));
      },
      "[test.Attributes] the attribute 'none' has no value");
}

TEST(CustomOperation, HasNoLoweringToStableHlo) {
  const auto f = function([](const Tensor& x) { return cube_op()({x}); });
  expect_error<UnimplementedError>([&] { f.stablehlo(constant({1.0})); },
                                   "[test.Cube] 'test.Cube' in");
}

// Placement on emulated GPUs: the kernel without a CUDA kernel runs on the host.
TEST(CustomOperation, RunsOnGpusOrOnTheHost) {
  config::set_emulated_gpus(1, 64);
  static const CustomOperation on_gpu = custom_operation({.name = "test.OnGpu",
                                                          .infer = same,
                                                          .cpu_kernel = cube_kernel,
                                                          .cuda_kernel = [](const KernelCall&) {}});
  const Tensor x = constant({1.0, 2.0}, {.device = "/gpu:0"});
  const Tensor here = on_gpu({x}), host = cube_op()({x});
  EXPECT_NE(here.device().find("GPU:0"), std::string::npos) << here.device();
  EXPECT_NE(host.device().find("CPU:0"), std::string::npos) << host.device();
  expect_tensor(host, float32, {2}, {1, 8});
  // A CUDA GPU, or the fake of one, has run the other kernel.
  if (impl_of(here).device().backend() == DeviceBackend::kCuda) return;
  expect_tensor(here, float32, {2}, {1, 8});
  expect_tensor(function([](const Tensor& v) { return cube_op()({on_gpu({v})}); })(x), float32, {2},
                {1, 512});
}

TEST(CustomOperation, GivesTheStreamToTheCudaKernel) {
  static void* stream = nullptr;
  custom_operation({.name = "test.Stream",
                    .infer = same,
                    .cpu_kernel = cube_kernel,
                    .cuda_kernel = [](const KernelCall& call) { stream = call.stream(); }});
  const OpDef& op = *find_op("test.Stream");
  const OwnAttrs attrs;
  int handle = 0;
  KernelContext context;
  context.op = &op;
  context.attrs_data = &attrs;
  context.native_stream = &handle;
  find_kernel(op, DeviceBackend::kCuda)(context);
  EXPECT_EQ(stream, &handle);
  EXPECT_EQ(find_kernel(*find_op(cube_op().name()), DeviceBackend::kCuda), nullptr);
}

TEST(CustomOperation, RunsOncePerCallIfItIsStateful) {
  static std::atomic<int> calls = 0;
  const auto counting = [](std::string name, bool stateful) {
    return custom_operation({.name = std::move(name),
                             .infer = same,
                             .cpu_kernel =
                                 [](const KernelCall& call) {
                                   ++calls;
                                   cube_kernel(call);
                                 },
                             .stateful = stateful});
  };
  const CustomOperation pure = counting("test.Pure", false), stateful = counting("test.Step", true);
  for (const auto& [op, expected] : {std::pair(pure, 1), std::pair(stateful, 2)}) {
    const auto f = function([&op = op](const Tensor& x) {
      static_cast<void>(op({x * 2.0}));
      return op({x}) + op({x});
    });
    calls = 0;
    f(constant({1.0})).to_vector<float>();
    EXPECT_EQ(calls, expected) << op.name();
  }
}

TEST(CustomOperation, NamesWhatItsFunctionsThrow) {
  const auto throwing = [](std::string name, auto exception) {
    return custom_operation({.name = std::move(name),
                             .infer = same,
                             .cpu_kernel = [exception](const KernelCall&) { throw exception; }});
  };
  const CustomOperation own = throwing("test.Own", OutOfRangeError("[test.Own] no"));
  const CustomOperation other = throwing("test.Other", std::logic_error("no"));
  const Tensor x = ones({2});
  expect_error<OutOfRangeError>([&] { own({x}).to_vector<float>(); }, "[test.Own] no");
  expect_error<RuntimeError>([&] { other({x}).to_vector<float>(); },
                             "[test.Other] cpu_kernel threw: no");
  const auto f = function([&](const Tensor& v) { return other({v}) + 1.0; });
  expect_error<RuntimeError>([&] { f(x).to_vector<float>(); }, "[test.Other] cpu_kernel threw: no");
  const auto reads =
      custom_operation({.name = "test.Reads",
                        .infer = [](const InferCall& call) { return std::vector{call.input(1)}; },
                        .cpu_kernel = cube_kernel});
  expect_error<InvalidArgumentError>([&] { static_cast<void>(reads({x})); },
                                     "[test.Reads] asked for input 1 of 1");
  const auto types = custom_operation(
      {.name = "test.Types", .infer = same, .cpu_kernel = [](const KernelCall& call) {
         static_cast<void>(call.input(0).as<double>());
       }});
  expect_error<DTypeError>([&] { types({x}).to_vector<float>(); },
                           "expected float32, the dtype of the tensor, got float64");
}

TEST(CustomOperation, RefusesShapesThatAreNone) {
  const auto with = [](std::string name, std::vector<InputSpec> specs) {
    return custom_operation({.name = std::move(name),
                             .infer = [specs](const InferCall&) { return specs; },
                             .cpu_kernel = cube_kernel});
  };
  const Tensor x = ones({2});
  expect_error<ShapeError>([&] { static_cast<void>(with("test.Open", {{.shape = {-1}}})({x})); },
                           "[test.Open] expected infer to return shapes of sizes");
  expect_error<ShapeError>([&] { static_cast<void>(with("test.NoRank", {{}})({x})); },
                           "got <unknown>");
  expect_error<InvalidArgumentError>([&] { with("test.None", {}).call({x}); },
                                     "[test.None] expected infer to return one or more outputs");
}

TEST(CustomOperation, RefusesGradientsThatDoNotFit) {
  const auto with = [](std::string name, std::function<std::vector<Tensor>(const GradientCall&)> g,
                       std::optional<std::vector<int>> saved = {}) {
    return custom_operation({.name = std::move(name),
                             .infer = same,
                             .cpu_kernel = cube_kernel,
                             .gradient = std::move(g),
                             .saved_inputs = std::move(saved)});
  };
  const auto backward = [](const CustomOperation& op) {
    const Tensor x = ones({2}, {.requires_grad = true});
    reduce_sum(op({x})).backward();
  };
  expect_error<UnimplementedError>([&] { backward(with("test.NoGradient", {})); },
                                   "[test.NoGradient] has no gradient: register it with one");
  expect_error<InvalidArgumentError>(
      [&] {
        backward(with("test.Two", [](const GradientCall& c) {
          return std::vector{c.gradient(), c.gradient()};
        }));
      },
      "[test.Two] expected the gradient to return a tensor for each of 1 inputs, got 2");
  expect_error<InvalidArgumentError>(
      [&] {
        backward(with("test.Shape", [](const GradientCall&) { return std::vector{ones({3})}; }));
      },
      "[test.Shape] expected a gradient of shape (2,) and dtype float32 for input 0, got (3,)");
  expect_error<InvalidArgumentError>(
      [&] {
        backward(with(
            "test.Unsaved", [](const GradientCall& c) { return std::vector{c.input(0)}; },
            std::vector<int>()));
      },
      "[test.Unsaved] the gradient reads input 0, which is not in saved_inputs");
  expect_error<InvalidArgumentError>(
      [&] {
        with(
            "test.Far", [](const GradientCall& c) { return std::vector{c.input(0)}; },
            std::vector<int>{32});
      },
      "expected numbers from 0 to 31 of tensors that 'test.Far'");
}

TEST(CustomOperation, RefusesNames) {
  const auto named = [](std::string name) {
    return custom_operation({.name = std::move(name), .infer = same, .cpu_kernel = cube_kernel});
  };
  named("test.Once");
  expect_error<AlreadyExistsError>([&] { named("test.Once"); },
                                   "[custom_operation] 'test.Once' is registered already");
  for (const char* built_in : {"MatMul", "Placeholder", "While", "ForEach"})
    expect_error<AlreadyExistsError>([&] { named(built_in); }, "is an operation of Tandem");
  for (const char* name : {"", "1", "a b", "a/b", "\xc3\xa9"})
    expect_error<InvalidArgumentError>([&] { named(name); }, "expected a name of letters");
  expect_error<InvalidArgumentError>([] { custom_operation({.name = "test.Empty"}); },
                                     "expected 'test.Empty' to have infer and cpu_kernel");
}

}  // namespace
}  // namespace tandem::custom_operation_test
