// Workers and parameter servers over gRPC: closures that one thread hands to the workers.
#include <gtest/gtest.h>

#include <thread>

#include "ps/in_process.h"
#include "ps/server_service.h"
#include "ps/worker_service.h"
#include "rpc/grpc/grpc_transport.h"
#include "support/grpc.h"
#include "support/tensors.h"

namespace tandem::ps::worker_test {
namespace {

using namespace std::chrono_literals;
using tandem::testing::expect_error;
using testing::trace;

constexpr rpc::CallOptions kLimit{.limit = 30s, .wait_for_server = true};

std::unique_ptr<rpc::Channel> channel_to(const rpc::Server& server, std::string task) {
  return rpc::make_grpc_channel({.host = "127.0.0.1",
                                 .port = server.port(),
                                 .task = std::move(task),
                                 .caller = "test",
                                 .token = "secret"});
}

// Two servers and two workers.
class Cluster {
 public:
  static constexpr std::size_t kServers = 2, kWorkers = 2;

  explicit Cluster(std::chrono::milliseconds server_limit = 20s) {
    for (std::size_t i = 0; i < kServers; ++i) {
      servers_.push_back(rpc::make_grpc_server({.token = "secret"}));
      serve(*servers_[i], stores[i]);
      servers_[i]->start();
      clients.push_back(client(i, server_limit));
    }
    for (std::size_t i = 0; i < kWorkers; ++i) {
      std::vector<std::shared_ptr<ServerClient>> of_worker;
      for (std::size_t server = 0; server < kServers; ++server)
        of_worker.push_back(client(server, server_limit));
      worker_states.push_back(std::make_unique<Worker>(std::move(of_worker)));
      worker_servers_.push_back(rpc::make_grpc_server({.token = "secret"}));
      serve(*worker_servers_[i], *worker_states[i]);
      worker_servers_[i]->start();
      workers.emplace_back(channel_to(*worker_servers_[i], fmt::format("worker:{}", i)));
    }
  }

  // Creates the function's variables on the servers in turns, and sends its parts.
  void add(std::uint64_t id, std::shared_ptr<const TracedFunction> traced) {
    traced_ = std::move(traced);
    std::uint32_t next = 0;
    function_ = split(*traced_, [&](const Resource& variable) {
      const Shape& shape = variable.spec().shape;
      const auto [at, added] = ids_.try_emplace(variable.identity(), 0);
      if (!added) return one_shard(at->second, shape);
      // Slots are with their variables: all variables of one layer are on one server.
      const std::uint32_t server = variable.name().find("b/") == std::string::npos ? 0 : 1;
      at->second = variable_id(server, next++);
      ids_by_name.emplace(variable.name(), at->second);
      const ServerClient::NewVariable made{.id = at->second,
                                           .name = variable.name(),
                                           .value = const_cast<Resource&>(variable).value()};
      clients[server]->create({&made, 1}).wait();
      return one_shard(at->second, shape);
    });
    for (int i = 0; i < function_.message.updates_size(); ++i) {
      const proto::Part& part = function_.message.updates(i).part();
      const std::pair<std::uint32_t, const proto::Part*> update{static_cast<std::uint32_t>(i),
                                                                &part};
      clients[server_of(function_.message.updates(i))]->add_updates(id, {&update, 1}).wait();
    }
    for (WorkerClient& worker : workers) worker.add_function(id, function_.message, kLimit);
  }

  // The run of a closure that starts now.
  FunctionRun closure(std::uint64_t function, std::uint64_t number,
                      std::vector<Tensor> arguments) const {
    FunctionRun run{.function = function,
                    .closure = number,
                    .arguments = std::move(arguments),
                    .random = {.seed = 7, .offset = number << 32}};
    for (const Node* node : function_.worker_attributes)
      run.worker_attributes.push_back(attributes_of_run(*node));
    for (const Node* node : function_.update_attributes)
      if (node) run.update_attributes.push_back(attributes_of_run(*node));
    traced_->graph->end_run();
    return run;
  }

  std::vector<Tensor> run(std::size_t worker, const FunctionRun& run) {
    return workers[worker].run(run, worker_states[worker]->incarnation(), kLimit).wait().tensors;
  }
  Tensor variable(const std::string& name) {
    const VariableId id = ids_by_name.at(name);
    return clients[server_of(id)]->read({&id, 1}).wait()[0].value;
  }
  void stop_server(std::size_t i) {
    servers_[i]->stop(0ms);
    servers_[i].reset();
  }

  ParameterStore stores[kServers];
  std::vector<std::shared_ptr<ServerClient>> clients;
  std::vector<std::unique_ptr<Worker>> worker_states;
  std::vector<WorkerClient> workers;
  std::map<std::string, VariableId> ids_by_name;

 private:
  std::shared_ptr<ServerClient> client(std::size_t server, std::chrono::milliseconds limit) {
    return std::make_shared<ServerClient>(
        channel_to(*servers_[server], fmt::format("ps:{}", server)),
        ServerClient::Limits{.call = limit});
  }

  std::vector<std::unique_ptr<rpc::Server>> servers_;
  std::vector<std::unique_ptr<rpc::Server>> worker_servers_;
  std::shared_ptr<const TracedFunction> traced_;
  SplitFunction function_;
  std::map<const void*, VariableId> ids_;
};

struct Training : testing::TrainedModel {
  Training() {
    random::set_seed(5);
    model = Sequential({layers::Dense(8, {.activation = "tanh", .input_shape = {4}, .name = "a"}),
                        layers::Dropout(0.25), layers::Dense(1, {.name = "b"})});
    model.build({-1, 4});
    optimizer = optimizers::Adam(0.02);
  }
};

std::vector<Tensor> batch(std::uint64_t number) { return testing::batch_of(number, 4); }

class Workers : public tandem::testing::GrpcTest {};

TEST_F(Workers, ClosuresOneByOneGiveTheBitsOfTheFunction) {
  constexpr std::uint64_t kSteps = 6;
  Training whole, parts;
  const auto function = tandem::function([&](const Tensor& x, const Tensor& y) {
    return whole.step({x, y})[0];
  });
  Cluster cluster;
  cluster.add(1, trace([&](const auto& inputs) { return parts.step(inputs); }, batch(0)));
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    Generator generator({.seed = 7, .offset = i << 32});
    const Scoped scope(context.generator, &generator);
    const std::vector<Tensor> inputs = batch(i);
    const float expected = function(inputs[0], inputs[1]).item<float>();
    const FunctionRun run = cluster.closure(1, i, inputs);
    EXPECT_EQ(cluster.run(i % 2, run)[0].item<float>(), expected);
  }
  for (const Variable& variable : whole.model.variables())
    EXPECT_EQ(cluster.variable(variable.name()).to_vector<float>(),
              variable.value().to_vector<float>())
        << variable.name();
  EXPECT_GT(cluster.stores[0].num_variables(), 0u);
  EXPECT_GT(cluster.stores[1].num_variables(), 0u);
}

TEST_F(Workers, TrainAtTheSameTime) {
  constexpr std::uint64_t kSteps = 400;
  Training training;
  Cluster cluster;
  cluster.add(1, trace([&](const auto& inputs) { return training.step(inputs); }, batch(0)));
  std::vector<FunctionRun> runs;
  for (std::uint64_t i = 0; i < kSteps; ++i) runs.push_back(cluster.closure(1, i, batch(i)));
  std::vector<float> losses(kSteps);
  std::vector<std::thread> threads;
  for (std::size_t worker = 0; worker < 2; ++worker)
    threads.emplace_back([&, worker] {
      for (std::uint64_t i = worker; i < kSteps; i += 2)
        losses[i] = cluster.run(worker, runs[i])[0].item<float>();
    });
  for (std::thread& thread : threads) thread.join();
  float first = 0, last = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    first += losses[i];
    last += losses[kSteps - 1 - i];
  }
  EXPECT_LT(last, 0.3f * first);
  for (const auto& [name, id] : cluster.ids_by_name)
    EXPECT_EQ(cluster.stores[server_of(id)].read(id).version, kSteps) << name;
}

TEST_F(Workers, RepeatedClosureUpdatesOnce) {
  Training training;
  Cluster cluster;
  cluster.add(1, trace([&](const auto& inputs) { return training.step(inputs); }, batch(0)));
  const FunctionRun run = cluster.closure(1, 0, batch(0));
  cluster.run(0, run);
  cluster.run(1, run);
  for (const auto& [name, id] : cluster.ids_by_name)
    EXPECT_EQ(cluster.stores[server_of(id)].read(id).version, 1u) << name;
}

TEST_F(Workers, TakeElementsFromTheirIterators) {
  Cluster cluster;
  data::Iterator numbers = data::Dataset::from_tensor_slices(constant({1.0f, 2.0f})).iterate();
  detail::FunctionTraces traces({.name = "step"});
  detail::FunctionCall call;
  call.passes = {numbers.pass()};
  cluster.add(1, traces.trace(call, [&](const std::vector<Tensor>&) {
    return std::vector<Tensor>{numbers.next()[0] * 10.0};
  }));
  for (std::size_t worker = 0; worker < 2; ++worker)
    cluster.worker_states[worker]->add_iterator(
        8, data::Dataset::from_tensor_slices(constant({1.0f, 2.0f}) + static_cast<double>(worker))
               .iterate());
  FunctionRun run = cluster.closure(1, 0, {});
  run.iterators = {8};
  const auto next = [&](std::size_t worker) { return cluster.run(worker, run)[0].item<float>(); };
  EXPECT_EQ(next(0), 10);
  EXPECT_EQ(next(1), 20);
  EXPECT_EQ(next(1), 30);
  EXPECT_EQ(next(0), 20);
  expect_error<OutOfRangeError>([&] { next(0); }, "[step] End of sequence");
  run.iterators = {9};
  expect_error<NotFoundError>([&] { next(0); }, "there is no iterator 9 here");
  run.iterators = {};
  expect_error<InvalidArgumentError>([&] { next(0); }, "expected more than 0 iterators");
}

TEST_F(Workers, ReportWhatIsWrong) {
  Training training;
  Cluster cluster(300ms);
  cluster.add(1, trace([&](const auto& inputs) { return training.step(inputs); }, batch(0)));
  FunctionRun run = cluster.closure(1, 0, batch(0));
  run.function = 5;
  expect_error<NotFoundError>([&] { cluster.run(0, run); }, "there is no function 5 here");
  run.function = 1;
  run.update_attributes.clear();
  expect_error<InvalidArgumentError>([&] { cluster.run(0, run); },
                                     "the attributes of an update are missing");
  run = cluster.closure(1, 0, {ones({16, 4})});
  expect_error<InvalidArgumentError>([&] { cluster.run(0, run); }, "expected 2 arguments, got 1");
  run = cluster.closure(1, 0, batch(0));
  cluster.stop_server(1);
  try {
    cluster.run(0, run);
    ADD_FAILURE() << "expected an error";
  } catch (const rpc::PeerUnavailableError& error) {
    ADD_FAILURE() << "the worker is there: " << error.what();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ps:1"), std::string::npos) << error.what();
  }
}

TEST(Worker, ACancelledCallSendsNoUpdate) {
  Variable v(ones({}), {.name = "v"});
  testing::InProcess run(testing::trace(
      [&](const auto& inputs) {
        v.assign_add(inputs[0]);
        return std::vector<Tensor>{inputs[0] + 0.0};
      },
      {ones({})}));
  const FunctionRun call{.function = testing::InProcess::kFunction, .arguments = {ones({})}};
  for (const int cancelled_at : {1, 2}) {  // before it computes, and after
    int asked = 0;
    tandem::testing::expect_error<AbortedError>(
        [&] { run.worker->run(call, [&] { return ++asked == cancelled_at; }); },
        "[step] the call was cancelled");
  }
  EXPECT_EQ(run.variable("v").item<float>(), 1);
}

// With an attempt the servers keep the updates, and the next attempt has the same elements.
TEST(Worker, AnotherAttemptHasTheSameElements) {
  data::Iterator numbers =
      data::Dataset::from_tensor_slices(constant({1.0f, 2.0f, 3.0f})).iterate();
  Variable v(zeros({}), {.name = "v"});
  detail::FunctionTraces traces({.name = "step"});
  detail::FunctionCall call;
  call.passes = {numbers.pass()};
  testing::InProcess run(traces.trace(call, [&](const std::vector<Tensor>&) {
    const Tensor next = numbers.next()[0];
    v.assign_add(next);
    return std::vector<Tensor>{next * 1.0};
  }));
  run.worker->add_iterator(
      8, data::Dataset::from_tensor_slices(constant({1.0f, 2.0f, 3.0f})).iterate());
  const auto next = [&](std::uint64_t closure, std::uint64_t attempt,
                        std::vector<std::uint64_t> settled = {}) {
    return run.worker
        ->run({.function = testing::InProcess::kFunction,
               .closure = closure,
               .iterators = {8},
               .attempt = attempt,
               .settled = std::move(settled)})
        .tensors[0]
        .item<float>();
  };
  EXPECT_EQ(next(0, 1), 1);
  EXPECT_EQ(next(1, 2), 2);
  EXPECT_EQ(next(0, 3), 1);
  EXPECT_EQ(next(1, 4, {0, 1}), 3);  // its elements were forgotten
  EXPECT_EQ(run.variable("v").item<float>(), 0);
}

}  // namespace
}  // namespace tandem::ps::worker_test
