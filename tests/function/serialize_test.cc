#include "function/serialize.h"

#include <gtest/gtest.h>

#include "function/changed_bytes.h"
#include "support/errors.h"
#include "support/files.h"
#include "tandem/tandem.h"

namespace tandem::serialize_test {
namespace {

using testing::error_of;

using Floats = std::vector<float>;

// Each graph has its own unknown sizes, with the same names.
std::string text_of(const Shape& shape) { return dim::text(shape.words().span(), ", "); }

// Their attributes are compared by the bytes of both graphs.
void expect_same_node(const Node& a, const Node& b) {
  const auto ids = [](const auto& nodes) {
    std::vector<int> ids;
    for (const Node* node : nodes) ids.push_back(node->id);
    return ids;
  };
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.op, b.op);
  EXPECT_EQ(a.requested, b.requested);
  EXPECT_EQ(a.requested_text, b.requested_text);
  EXPECT_EQ(ids(a.control_inputs), ids(b.control_inputs));
  EXPECT_EQ(ids(a.colocated_with), ids(b.colocated_with));
  ASSERT_EQ(a.inputs.size(), b.inputs.size());
  for (std::size_t i = 0; i < a.inputs.size(); ++i) {
    EXPECT_EQ(a.inputs[i].node->id, b.inputs[i].node->id);
    EXPECT_EQ(a.inputs[i].output, b.inputs[i].output);
  }
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (std::size_t i = 0; i < a.outputs.size(); ++i) {
    EXPECT_EQ(a.outputs[i].dtype, b.outputs[i].dtype);
    EXPECT_EQ(text_of(a.outputs[i].shape), text_of(b.outputs[i].shape));
  }
  ASSERT_EQ(static_cast<bool>(a.attrs), static_cast<bool>(b.attrs));
  EXPECT_EQ(a.initializer ? a.initializer->id : -1, b.initializer ? b.initializer->id : -1);
  EXPECT_EQ(a.counted ? a.counted->counter->id : -1, b.counted ? b.counted->counter->id : -1);
}

Graph copy_of(const Graph& graph) {
  const std::string bytes = graph.serialize();
  Graph copy = Graph::deserialize(bytes);
  const auto &a = graph.impl().nodes(), &b = copy.impl().nodes();
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) expect_same_node(*a[i], *b[i]);
  EXPECT_EQ(graph.impl().random_count, copy.impl().random_count);
  EXPECT_EQ(copy.serialize(), bytes);
  return copy;
}

TEST(SerializedGraph, RunsAsTheOriginal) {
  const Tensor captured = constant({{1.0, 2.0}, {3.0, 4.0}});
  Graph graph;
  {
    const GraphScope building(graph);
    const DeviceScope on("/cpu:0");
    const Tensor x = placeholder(float32, {-1, 2}, "x");
    const NameScope scope("layer");
    const Tensor h = matmul(x, captured, {.transpose_b = true});
    const ColocateWith with(h);
    const Tensor flat = reshape(h, {h.shape()[0], 2});
    reduce_sum(concat({flat, slice(flat, {0, 1}, {-1, 1})}, 1), {.axis = Dims{0}, .name = "y"});
    random::normal({3}, 0.0, 2.0, {.name = "noise"});
  }
  const Graph copy = copy_of(graph);
  const auto run = [](const Graph& which) {
    random::set_seed(4);
    Session session(which);
    const auto results = session.run({{"x:0", ones({3, 2})}}, {"layer/y:0", "layer/noise:0"});
    return std::pair(results[0].to_vector<float>(), results[1].to_vector<float>());
  };
  EXPECT_EQ(run(graph), run(copy));
  EXPECT_EQ(run(copy).first, (Floats{9, 21, 21}));
}

TEST(SerializedGraph, TrainsAsTheOriginal) {
  Graph graph;
  {
    const GraphScope building(graph);
    const Tensor x = placeholder(float32, {-1, 3}, "x");
    const Variable w(random::normal({3, 1}), {.name = "w"});
    const Tensor loss = reduce_mean(square(matmul(nn::dropout(x, 0.5), w) - 1.0), {.name = "loss"});
    optimizers::Optimizer adam = optimizers::Adam({.learning_rate = 0.1});
    graph.updates("train", [&] { adam.minimize(loss, {w}); });
    graph.initializer();
  }
  const Graph copy = copy_of(graph);
  const auto train = [](const Graph& which) {
    random::set_seed(4);
    Session session(which);
    session.run(which.operation("init"));
    for (int i = 0; i < 10; ++i) session.run({{"x:0", ones({4, 3})}}, which.operation("train"));
    return session.run("w:0").to_vector<float>();
  };
  EXPECT_EQ(train(graph), train(copy));
}

TEST(SerializedGraph, CapturedVariablesAreIdentifiedByName) {
  const Variable v(constant({1.0, 2.0}), {.name = "v"});
  Graph graph;
  {
    const GraphScope building(graph);
    add(v, 1.0);
  }
  const Graph copy = copy_of(graph);
  EXPECT_EQ(error_of<FailedPreconditionError>([&] { Session(copy).run("v:0"); }).substr(0, 61),
            "Attempting to use uninitialized value v. The graph was read f");
}

// A graph that trains `w` at this rate.
Graph training(const optimizers::LearningRate& rate) {
  Graph graph;
  const GraphScope building(graph);
  const Variable w(ones({2}), {.name = "w"});
  optimizers::Optimizer adam = optimizers::Adam({.learning_rate = rate});
  graph.updates("train", [&] { adam.minimize(reduce_sum(square(w)), {w}); });
  graph.initializer();
  return graph;
}

TEST(SerializedGraph, SchedulesAreSerialisedAsFormulas) {
  namespace schedules = optimizers::schedules;
  const auto train = [](const Graph& graph) {
    Session session(graph);
    session.run(graph.operation("init"));
    for (int i = 0; i < 8; ++i) session.run(graph.operation("train"));
    return session.run("w:0").to_vector<float>();
  };
  for (const auto& rate :
       {schedules::exponential_decay(0.1, 3, 0.5), schedules::exponential_decay(0.1, 3, 0.5, true),
        schedules::piecewise_constant({2, 5}, {0.1, 0.05, 0.01}),
        schedules::polynomial_decay(0.1, 4, 1e-3, 2.0, true),
        schedules::inverse_time_decay(0.1, 3, 0.5),
        schedules::cosine_decay(0.01, 5, {.warmup_target = 0.1, .warmup_steps = 2})}) {
    const Graph graph = training(rate);
    EXPECT_EQ(train(copy_of(graph)), train(graph));
  }
}

TEST(SerializedGraph, FunctionsOfTheProgramCannotBeSerialised) {
  const Graph graph = training(optimizers::LearningRate::Schedule(
      [](std::int64_t step) { return 0.1 / static_cast<double>(1 + step); }));
  EXPECT_EQ(
      error_of<UnimplementedError>([&] { graph.serialize(); }),
      "[Graph] the learning rate of 'adam' is a C++ function, which cannot be serialised; use "
      "one of optimizers::schedules");
}

TEST(SerializedGraph, ConcatOfUnknownSizesIsSerialisedWithItsGradients) {
  Graph graph;
  {
    const GraphScope building(graph);
    const Tensor a = placeholder(float32, {-1, 2}, "a"), b = placeholder(float32, {-1, 2}, "b");
    const Tensor joined = concat({a, b, a}, 0);
    const std::vector<Tensor> found = gradients(reduce_sum(square(joined)), std::vector<Tensor>{b});
    reduce_sum(found.front(), {.name = "gradient"});
  }
  const Graph copy = copy_of(graph);
  for (std::int64_t size : {1, 3})
    EXPECT_EQ(Session(copy)
                  .run({{"a:0", ones({2, 2})}, {"b:0", ones({size, 2})}}, "gradient:0")
                  .item<float>(),
              4.0f * static_cast<float>(size));
}

std::string small_graph() {
  Graph graph;
  const GraphScope building(graph);
  add(constant({1.0, 2.0}, {.name = "a"}), 1.0);
  return graph.serialize();
}

TEST(SerializedGraph, EveryTruncationIsFound) {
  const std::string bytes = small_graph();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(Graph::deserialize(bytes.substr(0, size)), DataLossError) << size;
}

TEST(SerializedGraph, EveryFlippedBitIsFound) {
  const std::string bytes = small_graph();
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      try {
        Graph::deserialize(flipped);
        ADD_FAILURE() << "byte " << at << " bit " << bit;
      } catch (const DataLossError&) {
      } catch (const InvalidArgumentError&) {  // the version
      }
    }
}

// Corruption without the checksum gives a graph or a typed error.
TEST(SerializedGraph, ChangedNodesAreReadOrRejected) {
  Graph graph;
  {
    const GraphScope building(graph);
    const Tensor x = placeholder(float32, {-1, 6}, "x");
    const Variable w(random::normal({6, 4}), {.name = "w"});
    const Tensor h = nn::dropout(matmul(reshape(x, {x.shape()[0], 6}), w), 0.5);
    const Tensor parts = concat({h, h}, 1);
    const Tensor loss = reduce_mean(parts, {.axis = Dims{1}});
    optimizers::Optimizer adam = optimizers::Adam();
    graph.updates("train", [&] { adam.minimize(reduce_sum(loss), {w}); });
  }
  const std::string bytes = serialize_nodes(graph.impl());
  testing::expect_read_or_refused(bytes, 3000);
}

// Untrusted bytes may contain this.
TEST(SerializedGraph, OperationsWithTooFewInputsAreRejected) {
  Graph graph;
  const GraphScope building(graph);
  const Tensor x = placeholder(float32, {4, 6, 6, 2}, "x"), y = x * 2.0;
  const Variable w(random::normal({3, 3, 2, 2}), {.name = "w"});
  const Tensor h = nn::relu(nn::conv2d(x, w));
  const Tensor loss = reduce_sum(matmul(reshape(h, {4, -1}), ones({32, 3}))) +
                      reduce_sum(add_n({x, y, maximum(x, y)})) + reduce_sum(concat({x, y}, 0)) +
                      reduce_sum(where(greater(x, 0.0), x, y));
  optimizers::Optimizer adam = optimizers::Adam();
  graph.updates("train", [&] { adam.minimize(loss, {w}); });
  GraphImpl& impl = graph.impl();
  const std::size_t count = impl.nodes().size();
  for (std::size_t i = 0; i < count; ++i) {
    const Node& node = *impl.nodes()[i];
    if (node.inputs.empty()) continue;
    EXPECT_THROW(impl.restore(*node.op, node.attrs, {}, node.outputs, {.name = "short"}),
                 InvalidArgumentError)
        << node.op->name;
  }
  EXPECT_EQ(impl.nodes().size(), count);
}

TEST(SerializedGraph, OtherFormatsAreReported) {
  EXPECT_EQ(error_of<DataLossError>([] { Graph::deserialize(""); }),
            "[Graph] the 0 bytes are not a whole serialised graph: truncated or corrupt");
  EXPECT_EQ(error_of<DataLossError>([] { Graph::deserialize("no graph at all"); }),
            "[Graph] the 15 bytes are not a whole serialised graph: truncated or corrupt");
}

// --- files ---

// A graph of a large and a small constant, and a branch.
std::string graph_for_a_file(const std::string& path, float offset) {
  const Tensor weights = reshape(range(0.0, 4096.0), {64, 64}) * 0.01 + offset;
  Graph graph;
  {
    const GraphScope building(graph);
    const Tensor x = placeholder(float32, {-1, 64}, "x");
    const Tensor product = matmul(x, weights) + constant(std::vector<float>(64, offset));
    const Tensor y = cond(
        greater(reduce_sum(x), 0.0), [&] { return product + weights[0]; },
        [&] { return product * 2.0; });
    identity(y, {.name = "y"});
  }
  graph.save(path, {});
  return graph.serialize();
}

TEST(GraphFiles, AreReadAsTheBytesOfTheGraph) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder / "model.graph", bytes = graph_for_a_file(path, 0.5f);
  EXPECT_EQ(testing::read_file(path), bytes);
  const Graph loaded = Graph::load(path);
  EXPECT_EQ(loaded.serialize(), bytes);
  Session session(loaded), expected(Graph::deserialize(bytes));
  for (const double sign : {1.0, -1.0}) {
    const Tensor x = random::uniform({3, 64}) * sign;
    EXPECT_EQ(session.run({{"x:0", x}}, "y:0").to_vector<float>(),
              expected.run({{"x:0", x}}, "y:0").to_vector<float>());
  }
}

// The file is not used after load().
TEST(GraphFiles, MayBeReplacedAndCutOffLater) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder / "model.graph", bytes = graph_for_a_file(path, 0.5f);
  const Graph loaded = Graph::load(path);
  const std::string other = graph_for_a_file(path, 0.75f);
  EXPECT_EQ(Graph::load(path).serialize(), other);
  testing::write_file(path, "");
  EXPECT_EQ(loaded.serialize(), bytes);
  EXPECT_EQ(folder.count_files(), 1u);
}

TEST(GraphFiles, ErrorsNameTheFile) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder / "model.graph", bytes = graph_for_a_file(path, 0.5f);
  const auto expect_refused = [&](const std::string& changed, const std::string& why) {
    testing::write_file(path, changed);
    EXPECT_EQ(error_of<DataLossError>([&] { Graph::load(path); }),
              "[Graph] " + path + ": [Graph] " + why);
  };
  expect_refused("", "the 0 bytes are not a whole serialised graph: truncated or corrupt");
  for (std::size_t size = 1; size < bytes.size(); size += 1999)
    expect_refused(bytes.substr(0, size),
                   "the " + std::to_string(size) +
                       " bytes are not a whole serialised graph: truncated or corrupt");
  std::string flipped = bytes;
  flipped[bytes.size() / 2] ^= 1;
  expect_refused(flipped, "the checksum does not match: the bytes are corrupt");
  EXPECT_EQ(
      error_of<NotFoundError>([&] { Graph::load(folder / "none"); }),
      "[Graph] " + (folder / "none").string() + ": cannot be opened: No such file or directory");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { Graph::load(folder.path()); }),
            "[Graph] " + folder.path().string() + ": expected a file of a serialised graph");
  EXPECT_THROW(Graph().save(folder / "none" / "model.graph", {}), NotFoundError);
}

}  // namespace
}  // namespace tandem::serialize_test
