// The calls and records of a small job, from which tests and fuzzers make damaged ones.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/description.h"
#include "ps/chief_watch.h"
#include "ps/direct_channel.h"
#include "ps/in_process.h"
#include "ps/server_client.h"
#include "ps/server_service.h"
#include "ps/split.h"
#include "ps/task_meter.h"
#include "ps/tensor_message.h"
#include "ps/worker_service.h"

namespace tandem::ps::testing {

// A parameter server, a worker and what they know of the chief.
struct DirectTasks {
  DirectTasks()
      : watch("ps", 0, {}),
        worker({std::make_shared<ServerClient>(std::make_shared<DirectChannel>(server),
                                               ServerClient::Limits())}) {
    serve(server, store);
    serve(server, watch);
    serve(server, worker);
    serve_status(server, [this](proto::StatusReply& reply) { watch.describe(reply); });
  }

  ParameterStore store;
  ChiefWatch watch;
  DirectServer server;
  Worker worker;
};

// All that happens in the job, in its order.
class RecordedJob {
 public:
  RecordedJob() {
    DirectTasks tasks;
    tasks.store.set_keeper([this](StateRecord record) { records_.push_back(std::move(record)); });
    tasks.server.on_request = [this](const std::string& method, const rpc::Message& request) {
      calls_.emplace_back(method, request);
    };
    run(tasks);
    for (StateRecord& record : tasks.store.capture()) records_.push_back(std::move(record));
  }

  const std::vector<std::pair<std::string, rpc::Message>>& calls() const { return calls_; }
  // The chief's changes, then everything that the server held at the end.
  const std::vector<StateRecord>& records() const { return records_; }

 private:
  // Looks up rows of a table by the next element of the data, and trains them.
  class Training {
   public:
    Training() { table_(constant({{0}})); }
    std::shared_ptr<const TracedFunction> trace() {
      data::Iterator elements = data().iterate();
      detail::FunctionTraces traces({.name = "step"});
      detail::FunctionCall call;
      call.inputs = {ones({2})};
      call.passes = {elements.pass()};
      return traces.trace(call, [&](const std::vector<Tensor>& inputs) {
        GradientTape tape;
        const Tensor loss =
            reduce_sum(square(table_(elements.next()[0]) * inputs[0] - bias_.value()));
        const std::vector<Variable> variables = {table_.trainable_variables()[0], bias_};
        sgd_.apply_gradients(tape.gradient(loss, variables), variables);
        return std::vector<Tensor>{loss};
      });
    }
    static data::Dataset data() {
      return data::Dataset::from_tensor_slices({constant({{1, 2}, {3, 1}, {0, 2}})}).repeat();
    }

   private:
    Layer table_ = layers::Embedding(4, 2, {.name = "table"});
    Variable bias_ = Variable(zeros({2}), {.name = "bias"});
    optimizers::Optimizer sgd_ = optimizers::SGD({.learning_rate = 0.5, .momentum = 0.9});
  };

  static void run(DirectTasks& tasks) {
    const auto channel = std::make_shared<DirectChannel>(tasks.server);
    ServerClient server(channel, {});
    WorkerClient worker(channel);
    proto::AttachRequest attach;
    attach.set_type("ps");
    attach.set_run(7);
    channel->call(kAttach, message_of(attach), {});

    Training training;
    std::map<const void*, VariableId> ids;
    const auto traced = training.trace();
    const SplitFunction function = split(*traced, [&](const Resource& variable) {
      const auto [at, added] = ids.try_emplace(variable.identity(), ids.size());
      const ServerClient::NewVariable created{at->second, variable.name(),
                                              const_cast<Resource&>(variable).value()};
      if (added) server.create({&created, 1}).wait();
      return one_shard(at->second, variable.spec().shape);
    });
    std::vector<std::pair<std::uint32_t, const proto::Part*>> updates;
    for (const proto::Update& update : function.message.updates())
      updates.emplace_back(static_cast<std::uint32_t>(updates.size()), &update.part());
    server.add_updates(0, updates).wait();
    worker.add_function(0, function.message, {});
    worker.add_iterator(5, data::describe(Training::data()), {}, {});

    FunctionRun one{.function = 0, .arguments = {ones({2})}, .iterators = {5}};
    for (const Node* node : function.worker_attributes)
      one.worker_attributes.push_back(attributes_of_run(*node));
    for (const Node* node : function.update_attributes)
      if (node) one.update_attributes.push_back(attributes_of_run(*node));
    for (; one.closure < 3; ++one.closure) worker.run(one, worker.probe({}), {}).wait();
    one.attempt = 5;
    one.finished = finished_below(3, {1});
    worker.run(one, worker.probe({}), {}).wait();
    server
        .commit({.closure = one.closure,
                 .indices = {0},
                 .contributions = {{.closure = one.closure, .attempt = 5}}},
                one.finished, std::vector<std::uint64_t>{1})
        .wait();
    server.close(4, {}, {&one.closure, 1}, std::chrono::minutes(1)).wait();
    const VariableId first = 0;
    server.assign(first, server.read({&first, 1}).wait()[0].value).wait();
    const std::uint64_t iterator = 5;
    worker.remove_iterators({&iterator, 1}, {});
    channel->call(kStatus, {}, {});
    proto::EndRequest end;
    end.set_run(7);
    channel->call(kEnd, message_of(end), {});
  }

  std::vector<std::pair<std::string, rpc::Message>> calls_;
  std::vector<StateRecord> records_;
};

}  // namespace tandem::ps::testing
