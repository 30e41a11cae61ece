// Runs a function as a coordinator, a worker and servers would, in one thread.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "ps/direct_channel.h"
#include "ps/server_methods.h"
#include "ps/server_service.h"
#include "ps/split.h"
#include "ps/tensor_message.h"
#include "ps/worker.h"
#include "tandem/tandem.h"
#include "tensor/tensor_impl.h"

namespace tandem::ps::testing {

// The trace of a callable for these arguments.
template <class F>
std::shared_ptr<const TracedFunction> trace(F callable, const std::vector<Tensor>& arguments,
                                            const FunctionOptions& options = {.name = "step"}) {
  detail::FunctionTraces traces(options);
  detail::FunctionCall call;
  call.inputs = arguments;
  return traces.trace(
      call, [&](std::vector<Tensor> inputs) -> std::vector<Tensor> { return callable(inputs); });
}

// A model that a function trains by the mean squared error.
struct TrainedModel {
  std::vector<Tensor> step(const std::vector<Tensor>& inputs) {
    const Tensor loss = reduce_mean(losses::mse(inputs[1], model(inputs[0], true)));
    optimizer.minimize(loss, model.trainable_variables());
    return {loss};
  }
  Sequential model;
  optimizers::Optimizer optimizer;
};

// The inputs of step `number`: 16 examples, and the sums of their features.
inline std::vector<Tensor> batch_of(std::uint64_t number, std::int64_t features) {
  Generator generator({.seed = 11, .offset = number << 8});
  const Scoped scope(context.generator, &generator);
  const Tensor x = random::normal({16, features});
  return {x, reduce_sum(x, {.axis = {1}, .keepdims = true})};
}

inline proto::FinishedClosures finished_below(std::uint64_t closure,
                                              const std::vector<std::uint64_t>& open = {}) {
  proto::FinishedClosures finished;
  finished.set_below(closure);
  finished.mutable_open()->Add(open.begin(), open.end());
  return finished;
}

// Variable 3, not divided, for functions with one variable.
inline std::vector<Shard> variable_3(const Resource& variable) {
  return one_shard(3, variable.spec().shape);
}

// The update v += value; v is variable `id`.
inline proto::Part assign_add(std::int64_t size = 2, VariableId id = 3) {
  Variable v(zeros({size}), {.name = "v"});
  const auto traced = trace(
      [&](const auto& inputs) {
        v.assign_add(inputs[0]);
        return std::vector<Tensor>();
      },
      {zeros({size})});
  return split(*traced,
               [&](const Resource& variable) { return one_shard(id, variable.spec().shape); })
      .message.updates(0)
      .part();
}

class InProcess {
 public:
  static constexpr std::uint64_t kFunction = 1;

  // The variables move to the servers with their present elements. Those with at least as many rows
  // get `shards` shards, on the servers in turn. Function 1 is added.
  explicit InProcess(std::shared_ptr<const TracedFunction> traced, std::size_t num_servers = 1,
                     std::int64_t shards = 1)
      : stores(num_servers), servers(num_servers), traced_(std::move(traced)), shards_(shards) {
    std::vector<std::shared_ptr<ServerClient>> clients;
    for (std::size_t i = 0; i < num_servers; ++i) {
      serve(servers[i], stores[i]);
      servers[i].on_reply = [this](const std::string& method, const rpc::Message& reply) {
        if (method != kApply) return;
        const auto header = parse<proto::ApplyReply>(reply, kApply);
        for (const auto& result : header.results()) repeated += result.repeated_call();
      };
      clients.push_back(std::make_shared<ServerClient>(std::make_shared<DirectChannel>(servers[i]),
                                                       ServerClient::Limits()));
    }
    worker.emplace(std::move(clients));
    function_ = split(*traced_, [this](const Resource& variable) { return shards_of(variable); });
    for (int i = 0; i < function_.message.updates_size(); ++i) {
      const proto::Update& update = function_.message.updates(i);
      stores[server_of(update)].add_update(kFunction, static_cast<std::uint32_t>(i), update.part());
    }
    worker->add_function(kFunction, function_.message);
  }

  // Runs closure `closure`, `times` times. Returns the results.
  std::vector<Tensor> run(const std::vector<Tensor>& arguments, std::uint64_t closure,
                          int times = 1, const std::vector<std::uint64_t>& iterators = {}) {
    FunctionRun run{.function = kFunction,
                    .closure = closure,
                    .arguments = arguments,
                    .iterators = iterators,
                    .random = {.seed = 7, .offset = closure << 32}};
    for (const Node* node : function_.worker_attributes)
      run.worker_attributes.push_back(attributes_of_run(*node));
    for (const Node* node : function_.update_attributes)
      if (node) run.update_attributes.push_back(attributes_of_run(*node));
    traced_->graph->end_run();
    std::vector<Tensor> results;
    for (int time = 0; time < times; ++time) results = worker->run(run).tensors;
    return results;
  }

  // The elements of a variable.
  Tensor variable(const std::string& name) const {
    std::vector<Tensor> parts;
    for (const Shard& shard : variables_.at(name))
      parts.push_back(stores[server_of(shard.id)].read(shard.id).value);
    return parts.size() == 1 ? parts[0] : concat(parts, 0);
  }
  const proto::Function& message() const { return function_.message; }

  std::vector<ParameterStore> stores;
  std::vector<DirectServer> servers;
  std::optional<Worker> worker;
  int repeated = 0;  // updates that had been applied before

 private:
  std::vector<Shard> shards_of(const Resource& variable) {
    const auto [at, added] = by_identity_.try_emplace(variable.identity());
    if (!added) return at->second;
    const Tensor value = const_cast<Resource&>(variable).value();
    const std::int64_t rows = rows_of(value.shape());
    const std::int64_t count = value.rank() > 0 && rows >= shards_ ? shards_ : 1;
    std::int64_t row = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t size = rows / count + (i < rows % count ? 1 : 0);
      const auto server = static_cast<std::uint32_t>(i) % static_cast<std::uint32_t>(stores.size());
      const Shard shard{.id = variable_id(server, next_++), .first_row = row, .rows = size};
      stores[server].create(shard.id, variable.name(),
                            count == 1 ? value : slice_rows(value, row, row + size));
      at->second.push_back(shard);
      row += size;
    }
    variables_.emplace(variable.name(), at->second);
    return at->second;
  }

  std::shared_ptr<const TracedFunction> traced_;
  std::int64_t shards_;
  std::uint32_t next_ = 0;
  std::map<const void*, std::vector<Shard>> by_identity_;
  std::map<std::string, std::vector<Shard>> variables_;
  SplitFunction function_;
};

}  // namespace tandem::ps::testing
