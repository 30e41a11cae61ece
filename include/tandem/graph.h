// Graphs and sessions: operations that are described first and run later, after TensorFlow's
// tf.Graph and tf.compat.v1.Session.
//
//   td::Graph graph;
//   td::Tensor x, y;
//   {
//     td::GraphScope building(graph);
//     x = td::placeholder(td::float32, {-1, 2}, "x");
//     y = td::matmul(x, td::ones({2, 2}), {.name = "y"});
//   }
//   td::Session session(graph);
//   td::Tensor result = session.run({{x, value}}, y);
//
// The operations are the same ones that run eagerly. Building a graph initialises no device.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tandem/autodiff.h"
#include "tandem/config.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

class GraphImpl;
class Session;
struct Node;
struct SerializeOptions;

// A shared handle: copies refer to the same graph. Not thread-safe while operations are added.
class Graph {
 public:
  // One operation of a graph. Keeps the graph alive.
  class Operation {
   public:
    Operation() = default;
    bool defined() const { return node_ != nullptr; }
    const std::string& name() const;  // "scope/MatMul_1"
    std::string_view type() const;    // "MatMul"
    // The device scope that it was made in, as the user wrote it; empty: anywhere.
    const std::string& requested_device() const;
    std::vector<Tensor> inputs() const;
    std::vector<Operation> control_inputs() const;
    std::vector<Tensor> outputs() const;
    friend bool operator==(const Operation& a, const Operation& b) { return a.node_ == b.node_; }

    Operation(RefPtr<RefCounted> graph, Node& node) : graph_(std::move(graph)), node_(&node) {}
    Node& node() const;

   private:
    RefPtr<RefCounted> graph_;
    Node* node_ = nullptr;
  };

  Graph();
  explicit Graph(RefPtr<GraphImpl> impl);

  // In the order of their making, which is the order in which a run takes them.
  std::vector<Operation> operations() const;
  // Throws NotFoundError, with the nearest name.
  Operation operation(std::string_view name) const;
  // The tensor of that name: "y:0" is the first output of operation "y". Throws
  // InvalidArgumentError for a name without the index, NotFoundError where there is no such tensor.
  Tensor tensor(std::string_view name) const;

  // Calls `body`, which adds operations to this graph, and adds one that does nothing but run those
  // among them that write variables: assignments, an optimizer's step, the moving averages of a
  // normalisation layer.
  //
  //   auto train = graph.updates("train", [&] { optimizer.minimize(loss, variables); });
  //   session.run({{x, batch}}, train);
  Operation updates(std::string_view name, const std::function<void()>& body);
  // Adds an operation that gives the variables made so far (an optimizer's slots included) their
  // initial values.
  Operation initializer(std::string_view name = "init");

  // The graph in bytes: nodes, attributes, devices, constants (captured tensors included), what
  // branches and loops run, and variables by name: a program that reads it gives those that were
  // made in a GraphScope their initial values, and has no values for the others. With
  // freeze_variables the bytes hold the variables' values, which is how a trained model is handed
  // to a program that has not made it:
  //
  //   graph.serialize({.freeze_variables = true, .outputs = {y}})
  //
  // Learning rates travel as numbers or as the formulas of optimizers::schedules. Throws
  // UnimplementedError for one that is a function of the program, for loops over a dataset, which
  // is the program's, too, and for graphs of 2 GiB or more; InvalidArgumentError where a variable
  // cannot be frozen because an operation that is kept writes it, or because its values belong to a
  // session that was not given, and for outputs of another graph; FailedPreconditionError for a
  // variable that has no value in the session.
  std::string serialize() const;
  std::string serialize(const SerializeOptions& options) const;
  // Throws DataLossError for bytes that are truncated or corrupt, InvalidArgumentError for a graph
  // that this version of Tandem cannot have.
  static Graph deserialize(std::string_view bytes);

  GraphImpl& impl() const;

 private:
  RefPtr<RefCounted> impl_;
};

// While it lives, operations of this thread are added to the graph instead of running. Variables
// made meanwhile are part of the graph: their elements belong to each session.
class GraphScope {
 public:
  explicit GraphScope(const Graph& graph);
  ~GraphScope();
  GraphScope(const GraphScope&) = delete;
  GraphScope& operator=(const GraphScope&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

// Names of operations added while it lives begin with "name/"; a name that is taken becomes
// "name_1/". Without a graph it does nothing.
class NameScope {
 public:
  explicit NameScope(std::string_view name);
  ~NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;

 private:
  RefPtr<RefCounted> graph_;
};

// Operations added while it lives run on the device of the one that made `tensor`, whichever that
// will be; those that run at once, where the tensor is. Device scopes further out do not hold
// inside.
class ColocateWith {
 public:
  explicit ColocateWith(const Tensor& tensor);
  ~ColocateWith();
  ColocateWith(const ColocateWith&) = delete;
  ColocateWith& operator=(const ColocateWith&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

// A tensor that is fed at each run. -1 in `shape`: any size; an unset shape is a scalar's, as in
// zeros(): the number of axes is always known. Throws FailedPreconditionError outside
// a GraphScope.
Tensor placeholder(DType dtype, const Shape& shape, std::string_view name = "Placeholder");

// The gradients of `target` (summed over its elements) with respect to tensors of the same graph,
// inputs and results of operations alike, after TensorFlow's tf.gradients. They are added to the
// graph, which has to be the one that the thread builds (FailedPreconditionError otherwise);
// recording plays no part, and they may be asked for again.
std::vector<Tensor> gradients(const Tensor& target, const std::vector<Tensor>& sources,
                              const GradientOptions& options = {});
// The same with respect to variables of the graph, over all the places where they are read.
std::vector<Tensor> gradients(const Tensor& target, const std::vector<Variable>& sources,
                              const GradientOptions& options = {});

// --- sessions ---

struct SessionOptions {
  // Whether an operation asked onto a device that does not exist, or that has no kernel for it,
  // runs on another one instead. Job, replica and task are never given up.
  bool allow_soft_placement = false;
  // Writes the devices, and where each operation goes, to stdout and to the log.
  bool log_device_placement = false;
  // Those that are given take effect as the functions of tandem/config.h do: before the runtime is
  // initialised, which the first session does.
  config::GPUOptions gpu_options = {};
  std::map<std::string, int> device_count = {};
  // Cores that operations may use in all; 0: as before.
  int intra_op_parallelism_threads = 0;
  // Variables get their initial values when they are first needed, without running an initializer.
  bool initialize_variables = false;
};

// A tensor of a graph, itself or by name ("MatMul:0"), or an operation, which is run for what it
// does (by name: graph.operation("init")).
class Fetch {
 public:
  Fetch(Tensor tensor) : what_(std::move(tensor)) {}                  // NOLINT: implicit
  Fetch(const Variable& variable) : what_(variable) {}                // NOLINT: implicit
  Fetch(Graph::Operation operation) : what_(std::move(operation)) {}  // NOLINT: implicit
  Fetch(std::string name) : what_(std::move(name)) {}                 // NOLINT: implicit
  Fetch(const char* name) : what_(std::string(name)) {}               // NOLINT: implicit
  const auto& what() const { return what_; }

 private:
  std::variant<Tensor, Variable, Graph::Operation, std::string> what_;
};

struct SerializeOptions {
  // Stores the present values of variables, which become constants under the variables' names.
  // Their initializers are left out.
  bool freeze_variables = false;
  // The results to compute: these are kept, with all that they depend on. Empty: everything.
  std::vector<Fetch> outputs = {};
  // Whose values are those of the variables that were made in a GraphScope.
  Session* session = nullptr;
};

// A value for any tensor of the graph, which then is not computed. Throws InvalidArgumentError at
// the run where dtype or shape do not suit it.
struct Feed {
  Feed(Tensor tensor_, Tensor value_) : tensor(std::move(tensor_)), value(std::move(value_)) {}
  Feed(std::string name, Tensor value_) : tensor(std::move(name)), value(std::move(value_)) {}
  Feed(const char* name, Tensor value_) : Feed(std::string(name), std::move(value_)) {}

  std::variant<Tensor, std::string> tensor{};
  Tensor value{};
};
using Feeds = std::vector<Feed>;

// Runs parts of a graph, and holds the elements of its variables. The graph may grow between runs.
// Thread-safe: runs wait for each other.
class Session {
 public:
  // Initialises the runtime. Throws InvalidArgumentError and RuntimeError as the functions of
  // tandem/config.h do.
  explicit Session(const Graph& graph, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Runs what the fetches depend on and nothing else, in the order in which the operations were
  // added, and returns the elements: undefined tensors in the places of operations.
  //
  // Throws InvalidArgumentError: "Cannot assign a device for operation NAME: ...", "You must feed a
  // value for placeholder tensor 'x' ..."; FailedPreconditionError "Attempting to use uninitialized
  // value NAME"; RuntimeError for a closed session or an empty graph.
  std::vector<Tensor> run(const Feeds& feeds, const std::vector<Fetch>& fetches);
  std::vector<Tensor> run(const std::vector<Fetch>& fetches) { return run(Feeds(), fetches); }
  template <std::convertible_to<Fetch> F>
  Tensor run(const Feeds& feeds, const F& fetch) {
    return run(feeds, std::vector<Fetch>{Fetch(fetch)}).front();
  }
  template <std::convertible_to<Fetch> F>
  Tensor run(const F& fetch) {
    return run(Feeds(), std::vector<Fetch>{Fetch(fetch)}).front();
  }

  // Frees the variables and all that was made ready; later runs are RuntimeErrors.
  void close();

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
