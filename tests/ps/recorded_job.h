// The calls and journal records of a small job, from which tests and fuzzers make damaged ones.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/chief_watch.h"
#include "ps/in_process.h"
#include "ps/local_calls.h"
#include "ps/server_client.h"
#include "ps/server_service.h"
#include "ps/tensor_message.h"
#include "ps/worker_service.h"

namespace tandem::ps::testing {

// A parameter server, a worker and what they know of the chief.
struct LocalTasks {
  LocalTasks()
      : watch("ps", 0, {}),
        worker({std::make_shared<ServerClient>(std::make_shared<LocalChannel>(server),
                                               ServerClient::Limits())}) {
    serve(server, store);
    serve(server, watch);
    serve(server, worker);
  }

  ParameterStore store;
  ChiefWatch watch;
  LocalServer server;
  Worker worker;
};

// All that happens in the job, in its order.
class RecordedJob final : public ChangeLog {
 public:
  RecordedJob() {
    Variable v(ones({2}), {.name = "v"});
    optimizers::Optimizer sgd = optimizers::SGD({.learning_rate = 0.5});
    const auto traced = trace(
        [&](const auto& inputs) {
          GradientTape tape;
          const Tensor loss = reduce_sum(square(v.value() * inputs[0]));
          const std::vector<Variable> variables = {v};
          sgd.apply_gradients(tape.gradient(loss, variables), variables);
          return std::vector<Tensor>{loss};
        },
        {ones({2})});
    LocalTasks tasks;
    tasks.store.set_log(this);
    tasks.server.observe = [this](const std::string& method, const rpc::Message& request) {
      calls_.emplace_back(method, request);
    };
    run(tasks, *traced);
    tasks.store.set_log(nullptr);
    for (Record& record : tasks.store.capture([] {})) records_.push_back(std::move(record));
  }

  const std::vector<std::pair<std::string, rpc::Message>>& calls() const { return calls_; }
  const std::vector<Record>& records() const { return records_; }

  void append(const proto::JournalRecord& record,
              std::vector<rpc::Attachment> attachments) override {
    records_.push_back({record, std::move(attachments)});
  }

 private:
  void run(LocalTasks& tasks, const TracedFunction& traced) {
    const auto channel = std::make_shared<LocalChannel>(tasks.server);
    ServerClient server(channel, {});
    WorkerClient worker(channel);
    proto::AttachRequest attach;
    attach.set_type("ps");
    attach.set_run(7);
    channel->call(kAttach, message_of(attach), {});
    std::map<const void*, VariableId> ids;
    const SplitFunction function = split(traced, [&](const Resource& variable) {
      const auto [at, added] = ids.try_emplace(variable.identity(), ids.size());
      const ServerClient::NewVariable created{at->second, variable.name(),
                                              const_cast<Resource&>(variable).value()};
      if (added) server.create({&created, 1}).wait();
      return at->second;
    });
    std::vector<std::pair<std::uint32_t, const proto::Part*>> updates;
    for (const proto::Update& update : function.message.updates())
      updates.emplace_back(static_cast<std::uint32_t>(updates.size()), &update.part());
    server.add_updates(0, updates).wait();
    worker.add_function(0, function.message, {});
    FunctionRun one{.function = 0, .arguments = {ones({2})}};
    for (const Node* node : function.worker_attributes)
      one.worker_attributes.push_back(attributes_of_run(*node));
    for (const Node* node : function.update_attributes)
      if (node) one.update_attributes.push_back(attributes_of_run(*node));
    for (; one.closure < 3; ++one.closure) worker.run(one, worker.probe({}), {}).wait();
    server.assign(0, zeros({2})).wait();
    proto::EndRequest end;
    end.set_run(7);
    channel->call(kEnd, message_of(end), {});
  }

  std::vector<std::pair<std::string, rpc::Message>> calls_;
  std::vector<Record> records_;
};

}  // namespace tandem::ps::testing
