/// @file
/// Graphs and sessions: operations that are built first and run later. As tf.Graph and
/// tf.compat.v1.Session.
/// @code
/// td::Graph graph;
/// td::Tensor x, y;
/// {
///   td::GraphScope building(graph);
///   x = td::placeholder(td::float32, {-1, 2}, "x");
///   y = td::matmul(x, td::ones({2, 2}), {.name = "y"});
/// }
/// td::Session session(graph);
/// td::Tensor result = session.run({{x, value}}, y);
/// @endcode
/// The operations are the same as in eager code. Building a graph does not initialize devices.
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
class GraphScope;
class Session;
struct Node;
struct SerializeOptions;

/// A graph of operations. As tf.Graph. A shared handle: copies refer to the same graph. Not
/// thread-safe while operations are added.
class Graph {
 public:
  /// An operation (node) of a graph. Keeps the graph alive. As tf.Operation.
  class Operation {
   public:
    Operation() = default;
    /// False for a default-constructed operation.
    bool defined() const { return node_ != nullptr; }
    const std::string& name() const;  ///< for example "scope/MatMul_1"
    std::string_view type() const;    ///< for example "MatMul"
    /// The device scope in which it was created, as written; empty: none.
    const std::string& requested_device() const;
    std::vector<Tensor> inputs() const;  ///< its input tensors
    /// Operations that run before it without a data dependency.
    std::vector<Operation> control_inputs() const;
    std::vector<Tensor> outputs() const;  ///< its output tensors
    /// Whether both are the same operation.
    friend bool operator==(const Operation& a, const Operation& b) { return a.node_ == b.node_; }

    /// For Tandem's own code.
    Operation(RefPtr<RefCounted> graph, Node& node) : graph_(std::move(graph)), node_(&node) {}
    /// For Tandem's own code.
    Node& node() const;

   private:
    RefPtr<RefCounted> graph_;
    Node* node_ = nullptr;
  };

  /// Creates an empty graph.
  Graph();
  /// For Tandem's own code.
  explicit Graph(RefPtr<GraphImpl> impl);

  /// All operations in the order of creation, which is the order of execution.
  std::vector<Operation> operations() const;
  /// The operation of this name. Throws NotFoundError with the nearest name.
  Operation operation(std::string_view name) const;
  /// The tensor of this name: "y:0" is the first output of operation "y". Throws
  /// InvalidArgumentError for a name without an index and NotFoundError if there is no such tensor.
  Tensor tensor(std::string_view name) const;

  /// Groups updates of variables: calls `body`, which adds operations to this graph, and adds an
  /// operation that runs those of them that write variables (assignments, optimizer steps, moving
  /// averages). As tf.group.
  /// @code
  /// auto train = graph.updates("train", [&] { optimizer.minimize(loss, variables); });
  /// session.run({{x, batch}}, train);
  /// @endcode
  Operation updates(std::string_view name, const std::function<void()>& body);
  /// Adds an operation that assigns the initial values to all variables created so far, optimizer
  /// slots included. As tf.compat.v1.global_variables_initializer.
  Operation initializer(std::string_view name = "init");

  /// @{
  /// Serializes the graph: nodes, attributes, devices, constants (including captured tensors),
  /// bodies of branches and loops, and variables by name. A program that reads it gives the
  /// variables created in a GraphScope their initial values; other variables have no value. With
  /// freeze_variables the values of variables are included, to pass a trained model to another
  /// program:
  /// @code
  /// graph.serialize({.freeze_variables = true, .outputs = {y}})
  /// @endcode
  /// Learning rates are stored as numbers or as the formulas of optimizers::schedules.
  ///
  /// Throws UnimplementedError for learning rates that are C++ functions, for loops over a dataset,
  /// and for graphs of 2 GiB or more. Throws InvalidArgumentError if a variable cannot be frozen
  /// because an operation that is kept writes it or because its session was not given, and for
  /// outputs of another graph. Throws FailedPreconditionError for a variable without a value in the
  /// session.
  std::string serialize() const;
  std::string serialize(const SerializeOptions& options) const;
  /// @}
  /// Restores a serialized graph. Throws DataLossError for truncated or corrupt data and
  /// InvalidArgumentError for a graph that this version of Tandem does not support.
  static Graph deserialize(std::string_view bytes);
  /// Writes serialize() to a file, completely or not at all: an older file of that name remains
  /// until then, also for programs that read it. Throws as serialize(), ResourceExhaustedError for
  /// a full disk, NotFoundError without the directory and FailedPreconditionError without the
  /// right.
  void save(const std::string& path, const SerializeOptions& options) const;
  /// Restores the graph of a file, as deserialize(), in less time and memory: the elements of each
  /// constant are copied once, from the mapped file to their place, and the file is not used after
  /// the call. It initialises the devices. Throws as deserialize(), NotFoundError for a file that
  /// cannot be opened, and InvalidArgumentError for a directory or pipe. A file that save()
  /// replaces during the call does no harm; one that another program cuts off ends this one with
  /// SIGBUS.
  static Graph load(const std::string& path);

  /// Opens a GraphScope: `auto scope = graph.as_default();`. As tf.Graph.as_default.
  [[nodiscard]] GraphScope as_default() const;

  GraphImpl& impl() const;  ///< for Tandem's own code

 private:
  RefPtr<RefCounted> impl_;
};

/// While it exists, operations of this thread are added to the graph instead of running. Variables
/// created in it belong to the graph; their values belong to each session. As tf.Graph.as_default.
class GraphScope {
 public:
  /// Opens the scope.
  explicit GraphScope(const Graph& graph);
  /// Closes the scope.
  ~GraphScope();
  GraphScope(const GraphScope&) = delete;
  GraphScope& operator=(const GraphScope&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};
inline GraphScope Graph::as_default() const { return GraphScope(*this); }
/// The graph that this thread builds. Throws FailedPreconditionError outside a GraphScope. As
/// tf.compat.v1.get_default_graph.
Graph get_default_graph();

/// Names of operations added while it exists begin with "name/"; if the name is in use, with
/// "name_1/". An empty name opens the root. Without a graph it has no effect. As tf.name_scope.
class NameScope {
 public:
  /// Opens the scope. Throws InvalidArgumentError for a name that TensorFlow does not allow.
  explicit NameScope(std::string_view name);
  /// Closes the scope.
  ~NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;

 private:
  RefPtr<RefCounted> graph_;
};

/// Operations added while it exists are placed on the device of the operation that made `tensor`;
/// eager ones on the device of `tensor`. Ignores the surrounding device scopes. As
/// tf.compat.v1.colocate_with.
class ColocateWith {
 public:
  /// Opens the scope.
  explicit ColocateWith(const Tensor& tensor);
  /// Closes the scope.
  ~ColocateWith();
  ColocateWith(const ColocateWith&) = delete;
  ColocateWith& operator=(const ColocateWith&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

/// A tensor that is fed in each run. A size of -1 in `shape` matches any size; an unset shape is a
/// scalar (the rank is always known). Throws FailedPreconditionError outside a GraphScope. As
/// tf.compat.v1.placeholder.
Tensor placeholder(DType dtype, const Shape& shape, std::string_view name = "Placeholder");

/// Adds the gradients of `target`, summed over its elements, with respect to tensors of the same
/// graph (inputs and results of operations). The graph must be the one that the thread builds
/// (throws FailedPreconditionError otherwise). Independent of tapes; may be called repeatedly. As
/// tf.gradients.
std::vector<Tensor> gradients(const Tensor& target, const std::vector<Tensor>& sources,
                              const GradientOptions& options = {});
/// The same with respect to variables, over all places where they are read.
std::vector<Tensor> gradients(const Tensor& target, const std::vector<Variable>& sources,
                              const GradientOptions& options = {});

// --- sessions ---

/// Options of Session. As tf.compat.v1.ConfigProto.
struct SessionOptions {
  /// Whether an operation whose device does not exist, or has no kernel for it, runs on another
  /// device. Its job, replica and task are kept.
  bool allow_soft_placement = false;
  /// Writes the devices and the placement of each operation to stdout and to the log.
  bool log_device_placement = false;
  /// As config::set_gpu_options(). Must come before the runtime is initialized, which the first
  /// session does.
  config::GPUOptions gpu_options = {};
  /// As config::set_device_count(). Must come before the runtime is initialized.
  std::map<std::string, int> device_count = {};
  /// Number of cores that operations use in total; 0: unchanged.
  int intra_op_parallelism_threads = 0;
  /// Initializes variables when they are first needed, without an initializer operation.
  bool initialize_variables = false;
};

/// An argument of Session::run(): a tensor, itself or by name ("MatMul:0"), a variable, or an
/// operation, which is run for its effect (by name: graph.operation("init")).
class Fetch {
 public:
  /// @{
  /// Converts from anything that can be fetched.
  Fetch(Tensor tensor);               // NOLINT: implicit
  Fetch(const Variable& variable);    // NOLINT: implicit
  Fetch(Graph::Operation operation);  // NOLINT: implicit
  Fetch(std::string name);            // NOLINT: implicit
  Fetch(const char* name);            // NOLINT: implicit
  /// @}
  const auto& what() const { return what_; }  ///< for Tandem's own code

 private:
  std::variant<Tensor, Variable, Graph::Operation, std::string> what_;
};

/// Options of Graph::serialize().
struct SerializeOptions {
  /// Stores the current values of variables as constants under the variables' names, without their
  /// initializers.
  bool freeze_variables = false;
  /// Keeps only these results and their dependencies. Default: everything.
  std::vector<Fetch> outputs = {};
  /// Session that holds the values of the variables created in a GraphScope.
  Session* session = nullptr;
};

/// A value for a tensor of the graph, which is then not computed. The run throws
/// InvalidArgumentError if dtype or shape do not match.
struct Feed {
  /// @{
  /// A value for a tensor, itself or by name.
  Feed(Tensor tensor_, Tensor value_);
  Feed(std::string name, Tensor value_);
  Feed(const char* name, Tensor value_);
  /// @}

  std::variant<Tensor, std::string> tensor{};  ///< tensor or name
  Tensor value{};                              ///< value
};
using Feeds = std::vector<Feed>;  ///< argument of Session::run()

/// Runs parts of a graph and holds the values of its variables. The graph may grow between runs.
/// Thread-safe: runs happen at the same time as calls of a Function do; others, such as runs that
/// write variables, happen alone. As tf.compat.v1.Session.
class Session {
 public:
  /// Initializes the runtime. Throws InvalidArgumentError and RuntimeError as the functions of
  /// tandem/config.h do.
  explicit Session(const Graph& graph, SessionOptions options = {});
  /// Closes the session.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// @{
  /// Runs the operations that the fetches depend on, in the order in which they were added, and
  /// returns the values of the fetches; operations give undefined tensors. As
  /// tf.compat.v1.Session.run.
  ///
  /// Throws InvalidArgumentError: "Cannot assign a device for operation NAME: ...", "You must feed
  /// a value for placeholder tensor 'x' ..."; FailedPreconditionError "Attempting to use
  /// uninitialized value NAME"; RuntimeError for a closed session or an empty graph.
  std::vector<Tensor> run(const Feeds& feeds, const std::vector<Fetch>& fetches);
  std::vector<Tensor> run(const std::vector<Fetch>& fetches);
  template <std::convertible_to<Fetch> F>
  Tensor run(const Feeds& feeds, const F& fetch) {
    return run_one(feeds, fetch);
  }
  template <std::convertible_to<Fetch> F>
  Tensor run(const F& fetch) {
    return run_one(Feeds(), fetch);
  }
  /// @}
  /// One fetch with the feeds at the end, as in Python: `session.run(loss, {{x, batch}})`.
  template <std::convertible_to<Fetch> F>
  Tensor run(const F& fetch, const Feeds& feeds) {
    return run(feeds, fetch);
  }

  /// Frees the variables and compiled programs; later runs throw RuntimeError.
  void close();

  /// For Tandem's own code.
  struct Impl;

 private:
  Tensor run_one(const Feeds& feeds, const Fetch& fetch);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
