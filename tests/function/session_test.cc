#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/errors.h"
#include "support/gpus.h"
#include "tandem/tandem.h"

namespace tandem::session_test {
namespace {

using testing::error_of;

using Floats = std::vector<float>;

TEST(Session, RunsFetchesByTensorAndByName) {
  Graph graph;
  Tensor x, y, z;
  {
    const GraphScope building(graph);
    x = placeholder(float32, {-1, 2}, "x");
    y = matmul(x, constant({{1.0, 2.0}, {3.0, 4.0}}), {.name = "y"});
    z = reduce_sum(y, {.name = "z"});
  }
  Session session(graph);
  EXPECT_EQ(session.run({{x, ones({1, 2})}}, y).to_vector<float>(), (Floats{4, 6}));
  EXPECT_EQ(session.run({{"x:0", ones({3, 2})}}, "z:0").item<float>(), 30.0f);
  const std::vector<Tensor> both = session.run({{x, ones({2, 2})}}, {"y:0", z});
  EXPECT_EQ(both[0].shape(), Shape({2, 2}));
  EXPECT_EQ(both[1].item<float>(), 20.0f);
  EXPECT_EQ(session.run({{x, ones({1, 2})}}, std::vector<Fetch>{z}).size(), 1u);
}

TEST(Session, RunsFetchesWithTheFeedsAtTheEnd) {
  EXPECT_THROW(get_default_graph(), FailedPreconditionError);
  Graph graph;
  Tensor x, y;
  Graph::Operation init;
  {
    const auto scope = graph.as_default();
    x = placeholder(float32, {2}, "x");
    const Variable w(constant({1.0, 2.0}), {.name = "w"});
    y = x * w;
    init = global_variables_initializer();
    EXPECT_EQ(get_default_graph().operations().size(), graph.operations().size());
  }
  Session session(graph);
  session.run(init);
  const Tensor value = constant({3.0, 4.0});
  EXPECT_EQ(session.run(y, {{x, value}}).to_vector<float>(), (Floats{3, 8}));
}

TEST(Session, FeedsOverrideAnyTensor) {
  Graph graph;
  Tensor a, b, c;
  {
    const GraphScope building(graph);
    a = constant({1.0, 2.0}, {.name = "a"});
    b = multiply(a, placeholder(float32, {}, "factor"));
    c = add(b, 1.0);
  }
  Session session(graph);
  // `b` is fed, so neither the constant nor the placeholder is needed.
  EXPECT_EQ(session.run({{b, constant({5.0, 6.0})}}, c).to_vector<float>(), (Floats{6, 7}));
  EXPECT_EQ(session.run({{"a:0", constant({3.0, 4.0})}, {"factor:0", constant(2.0)}}, c)
                .to_vector<float>(),
            (Floats{7, 9}));
  EXPECT_EQ(session.run({{a, constant({3.0, 4.0})}}, a).to_vector<float>(), (Floats{3, 4}));
}

TEST(Session, RunsOnlyAncestors) {
  Graph graph;
  Variable v;
  Tensor unrelated;
  Graph::Operation bump;
  {
    const GraphScope building(graph);
    v = Variable(constant({1.0}), {.name = "v"});
    bump = graph.updates("bump", [&] { v.assign_add(constant({1.0})); });
    unrelated = constant({7.0});
  }
  Session session(graph, {.initialize_variables = true});
  EXPECT_EQ(session.run(unrelated).item<float>(), 7.0f);
  EXPECT_EQ(session.run(v).item<float>(), 1.0f);
  EXPECT_FALSE(session.run(bump).defined());
  EXPECT_EQ(session.run(v).item<float>(), 2.0f);
  session.run({bump, unrelated});
  EXPECT_EQ(session.run(v).item<float>(), 3.0f);
}

TEST(Session, InvalidFetchesAndFeedsAreRefused) {
  Graph graph;
  EXPECT_EQ(error_of<RuntimeError>([&] { Session(graph).run("x:0"); }),
            "The Session graph is empty.  Add operations to the graph before calling run().");
  Tensor x, y;
  {
    const GraphScope building(graph);
    x = placeholder(float32, {-1, 2}, "x");
    y = add(x, 1.0);
  }
  Session session(graph);
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { session.run(y); }),
            "You must feed a value for placeholder tensor 'x' with dtype float32 and shape (?, 2)");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              session.run({{x, ones({2, 3})}}, y);
            }),
            "[Session] cannot feed value of shape (2, 3) for tensor 'x:0', which has shape (?, 2)");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              session.run({{x, ones({1, 2}, {.dtype = int32})}}, y);
            }),
            "[Session] cannot feed a value of dtype int32 for tensor 'x:0' of dtype float32");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              session.run({{"x", ones({1, 2})}}, y);
            }).substr(0, 53),
            "The name 'x' refers to an Operation, not a Tensor. Te");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              session.run({{x, ones({1, 2})}, {"x:0", ones({1, 2})}}, y);
            }),
            "[Session] 'x:0' was fed more than once.");
  EXPECT_THROW(session.run(ones({1})), InvalidArgumentError);
  EXPECT_THROW(session.run({{x, y}}, y), InvalidArgumentError);
  Graph other;
  {
    const GraphScope building(other);
    EXPECT_EQ(error_of<InvalidArgumentError>([&] { session.run(constant({1.0}, {.name = "k"})); }),
              "[Session] fetch 'k:0' is not an element of this graph.");
  }
  session.close();
  EXPECT_EQ(error_of<RuntimeError>([&] { session.run(y); }), "Attempted to use a closed Session.");
}

// Also once the session has a program for a feed of this shape.
TEST(Session, AFeedOfAnotherDtypeIsRefusedInEveryRun) {
  Graph graph;
  Tensor x, y, z;
  {
    const GraphScope building(graph);
    x = placeholder(float32, {4}, "x");
    y = x * 2.0;
    z = y + 1.0;
  }
  Session session(graph);
  session.run({{x, ones({4})}}, z);
  session.run({{y, ones({4})}}, z);
  for (const DType dtype : {float64, float16, bfloat16, int64, int32, uint8, bool_})
    for (const Tensor& fed : {x, y})
      EXPECT_NE(error_of<InvalidArgumentError>([&] {
                  session.run({{fed, ones({4}, {.dtype = dtype})}}, z);
                }).find(fmt::format("[Session] cannot feed a value of dtype {}", name_of(dtype))),
                std::string::npos);
  EXPECT_EQ(session.run({{x, ones({4})}}, z).to_vector<float>(), Floats(4, 3.0f));
}

TEST(Session, VariablesAreInitialisedExplicitly) {
  Graph graph;
  Variable v, doubled;
  Graph::Operation init;
  {
    const GraphScope building(graph);
    v = Variable(constant({1.0, 2.0}), {.name = "v"});
    doubled = Variable(v * 2.0, {.name = "doubled"});
    init = graph.initializer();
  }
  Session session(graph);
  EXPECT_EQ(error_of<FailedPreconditionError>([&] { session.run(v); }),
            "Attempting to use uninitialized value v. Run graph.initializer() first, or make the "
            "session with SessionOptions{.initialize_variables = true}.");
  session.run(init);
  EXPECT_EQ(session.run(doubled).to_vector<float>(), (Floats{2, 4}));
  EXPECT_EQ(session.run("v:0").to_vector<float>(), (Floats{1, 2}));
  // Each session has its own state.
  Session other(graph);
  EXPECT_THROW(other.run(v), FailedPreconditionError);
}

TEST(Session, VariablesAreInitialisedWhenNeededIfAsked) {
  Graph graph;
  Variable a, b, unused;
  {
    const GraphScope building(graph);
    a = Variable(constant({1.0}), {.name = "a"});
    b = Variable(a + 1.0, {.name = "b"});
    unused = Variable(placeholder(float32, {1}, "never"), {.name = "unused"});
  }
  Session session(graph, {.initialize_variables = true});
  EXPECT_EQ(session.run(b).item<float>(), 2.0f);
  EXPECT_THROW(session.run(unused), InvalidArgumentError);
}

TEST(Session, ARunMayAssignAnUninitialisedVariable) {
  Graph graph;
  Variable v;
  Tensor read;
  Graph::Operation set;
  {
    const GraphScope building(graph);
    v = Variable(constant({0.0}), {.name = "v"});
    set = graph.updates("set", [&] {
      v.assign(constant({5.0}));
      read = v + 1.0;
    });
  }
  Session session(graph);
  const std::vector<Tensor> results = session.run({set, read});
  EXPECT_EQ(results[1].item<float>(), 6.0f);
  EXPECT_EQ(session.run(v).item<float>(), 5.0f);
}

TEST(Session, FetchedTensorsDoNotChange) {
  Graph graph;
  Variable v;
  Graph::Operation bump;
  {
    const GraphScope building(graph);
    v = Variable(constant({1.0}), {.name = "v"});
    bump = graph.updates("bump", [&] { v.assign_add(constant({1.0})); });
  }
  Session session(graph, {.initialize_variables = true});
  const Tensor before = session.run(v);
  session.run(bump);
  EXPECT_EQ(before.item<float>(), 1.0f);
  EXPECT_EQ(session.run(v).item<float>(), 2.0f);
}

TEST(Session, TheGraphMayGrowBetweenRuns) {
  Graph graph;
  Tensor a;
  {
    const GraphScope building(graph);
    a = constant({1.0, 2.0});
  }
  Session session(graph);
  EXPECT_EQ(session.run(a).to_vector<float>(), (Floats{1, 2}));
  Tensor b;
  {
    const GraphScope building(graph);
    b = a * 3.0;
  }
  EXPECT_EQ(session.run(b).to_vector<float>(), (Floats{3, 6}));
}

TEST(Session, CapturesTensorsAndVariablesFromOutside) {
  const Tensor outside = constant({1.0, 2.0});
  Variable v(constant({10.0, 20.0}));
  Graph graph;
  Tensor sum;
  Graph::Operation bump;
  {
    const GraphScope building(graph);
    sum = outside + v;
    bump = graph.updates("bump", [&] { v.assign_add(outside); });
  }
  Session session(graph);
  EXPECT_EQ(session.run(sum).to_vector<float>(), (Floats{11, 22}));
  session.run(bump);
  EXPECT_EQ(v.value().to_vector<float>(), (Floats{11, 22}));
}

TEST(Session, GeneratesTheRandomNumbersOfEagerCalls) {
  random::set_seed(5);
  const Tensor first = random::normal({4});
  const Tensor second = random::uniform({4});
  const Tensor third = random::uniform({4});
  random::set_seed(5);
  Graph graph;
  Tensor normal, uniform;
  {
    const GraphScope building(graph);
    normal = random::normal({4});
    uniform = random::uniform({4});
  }
  EXPECT_EQ(random::get_state().offset, 0u);
  Session session(graph);
  EXPECT_EQ(session.run(normal).to_vector<float>(), first.to_vector<float>());
  EXPECT_EQ(session.run(uniform).to_vector<float>(), second.to_vector<float>());
  EXPECT_EQ(session.run(uniform).to_vector<float>(), third.to_vector<float>());
}

TEST(Session, GpuOptionsTakeEffect) {
  TANDEM_EMULATION_ONLY("GPUs of so little memory are parts of real ones, which take no options");
  testing::use_gpus(3, 64);
  Graph graph;
  SessionOptions options;
  options.gpu_options.allow_growth = true;
  options.gpu_options.per_process_gpu_memory_fraction = 0.5;
  options.gpu_options.visible_device_list = "2,0";
  options.device_count = {{"CPU", 2}};
  const Session session(graph, options);
  const auto devices = config::list_logical_devices("GPU");
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(config::list_logical_devices("CPU").size(), 2u);
  EXPECT_EQ(config::get_memory_info("GPU:0").limit, 32 << 20);
  EXPECT_EQ(error_of<RuntimeError>([&] {
              config::set_memory_growth({"/physical_device:GPU:0", "GPU"}, false);
            }).find("Session") != std::string::npos,
            true);
  SessionOptions too_late;
  too_late.gpu_options.per_process_gpu_memory_fraction = 0.25;
  EXPECT_THROW(Session(graph, too_late), RuntimeError);
}

TEST(Session, FeedsMayBeOnAnyDevice) {
  testing::use_gpus(2);
  Graph graph;
  Tensor x, y;
  {
    const GraphScope building(graph);
    x = placeholder(float32, {2}, "x");
    const DeviceScope on("/gpu:1");
    y = x * 2.0;
  }
  Session session(graph);
  Tensor value;
  {
    const DeviceScope on("/gpu:0");
    value = constant({1.0, 2.0});
  }
  const Tensor result = session.run({{x, value}}, y);
  EXPECT_EQ(result.device(), "/job:localhost/replica:0/task:0/device:GPU:1");
  EXPECT_EQ(result.to_vector<float>(), (Floats{2, 4}));
  EXPECT_EQ(session.run({{x, value.cpu()}}, y).to_vector<float>(), (Floats{2, 4}));
}

// The towers of the second API program.
struct Towers {
  Graph graph;
  Tensor sum;
  Towers() {
    const GraphScope building(graph);
    std::vector<Tensor> towers;
    for (const char* device : {"/gpu:2", "/gpu:3"}) {
      const DeviceScope on(device);
      const Tensor a = constant({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, {.shape = {2, 3}, .name = "a"});
      const Tensor b = constant({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, {.shape = {3, 2}, .name = "b"});
      towers.push_back(matmul(a, b));
    }
    const DeviceScope on("/cpu:0");
    sum = add_n(towers);
  }
};

TEST(SessionTowers, RunOnFourGpus) {
  testing::use_gpus(4);
  Towers towers;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Session session(towers.graph, {.log_device_placement = true});
  const Tensor sum = session.run(towers.sum);
  const std::string out = ::testing::internal::GetCapturedStdout();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(sum.to_vector<float>(), (Floats{44, 56, 98, 128}));
  const std::string gpu = "/job:localhost/replica:0/task:0/device:GPU:";
  EXPECT_EQ(out.substr(0, 15), "Device mapping:");
  // The last one of the machine's GPUs, of which use_gpus() makes four.
  const auto last = std::min<std::size_t>(config::list_physical_devices("GPU").size(), 4) - 1;
  EXPECT_NE(out.find(fmt::format("\n{}3 -> device: {}, name: ", gpu, last)), std::string::npos)
      << out;
  for (const std::string& line :
       {"\na: (Const): " + gpu + "2\n", "\nMatMul: (MatMul): " + gpu + "2\n",
        "\na_1: (Const): " + gpu + "3\n", "\nMatMul_1: (MatMul): " + gpu + "3\n",
        std::string("\nAddN: (AddN): /job:localhost/replica:0/task:0/device:CPU:0\n")})
    EXPECT_NE(out.find(line), std::string::npos) << line << " in " << out;
  EXPECT_NE(log.find("MatMul_1: (MatMul): " + gpu + "3"), std::string::npos) << log;
}

TEST(SessionTowers, RunOnOneGpuWithSoftPlacement) {
  testing::use_gpus(1);
  Towers towers;
  EXPECT_EQ(
      Session(towers.graph, {.allow_soft_placement = true}).run(towers.sum).to_vector<float>(),
      (Floats{44, 56, 98, 128}));
}

TEST(SessionTowers, FailOnOneGpuWithoutSoftPlacement) {
  testing::use_gpus(1);
  Towers towers;
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { Session(towers.graph).run(towers.sum); }),
            "Cannot assign a device for operation MatMul: MatMul was explicitly assigned to "
            "'/gpu:2' but available devices are [/job:localhost/replica:0/task:0/device:CPU:0, "
            "/job:localhost/replica:0/task:0/device:GPU:0]. Make sure the device specification "
            "refers to a valid device. The nearest is '/device:GPU:0'.");
}

}  // namespace
}  // namespace tandem::session_test
