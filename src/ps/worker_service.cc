#include "ps/worker_service.h"

#include "ps/proto/worker_calls.pb.h"
#include "ps/tensor_message.h"
#include "ps/worker_methods.h"

namespace tandem::ps {
namespace {

void fill(proto::Position& message, const data::IterateOptions& position) {
  message.set_epoch(position.epoch);
  message.set_skip(position.skip);
}

data::IterateOptions position_of(const proto::Position& message) {
  return {.epoch = message.epoch(), .skip = message.skip()};
}

rpc::Message probe(Worker& worker, const rpc::Message&, const rpc::CallContext&) {
  proto::ProbeReply reply;
  reply.set_incarnation(worker.incarnation());
  return message_of(reply);
}

rpc::Message add_function(Worker& worker, const rpc::Message& request, const rpc::CallContext&) {
  const auto header = parse<proto::AddFunctionRequest>(request, kAddFunction);
  worker.add_function(header.id(), header.function());
  return {};
}

rpc::Message remove_functions(Worker& worker, const rpc::Message& request,
                              const rpc::CallContext&) {
  const auto header = parse<proto::RemoveFunctionsRequest>(request, kRemoveFunctions);
  for (const std::uint64_t id : header.ids()) worker.remove_function(id);
  return {};
}

rpc::Message add_iterator(Worker& worker, const rpc::Message& request, const rpc::CallContext&) {
  const auto header = parse<proto::AddIteratorRequest>(request, kAddIterator);
  AttachedTensors attached(request.attachments, kAddIterator);
  std::vector<Tensor> tensors;
  for (const tandem::proto::TensorSpec& spec : header.tensors())
    tensors.push_back(attached.next(spec));
  attached.end();
  const data::Dataset dataset = data::dataset_of(header.dataset(), tensors, {});
  worker.add_iterator(header.id(), dataset.iterate(position_of(header.start())));
  return {};
}

rpc::Message remove_iterators(Worker& worker, const rpc::Message& request,
                              const rpc::CallContext&) {
  const auto header = parse<proto::RemoveIteratorsRequest>(request, kRemoveIterators);
  for (const std::uint64_t id : header.ids()) worker.remove_iterator(id);
  return {};
}

rpc::Message run(Worker& worker, const rpc::Message& request, const rpc::CallContext& context) {
  const auto header = parse<proto::RunRequest>(request, kRun);
  proto::RunReply reply;
  if (header.incarnation() != worker.incarnation()) {
    reply.set_restarted(true);
    return message_of(reply);
  }
  FunctionRun run{
      .function = header.function(),
      .closure = header.closure(),
      .finished = header.finished(),
      .iterators = {header.iterators().begin(), header.iterators().end()},
      .settled = {header.settled().begin(), header.settled().end()},
      .random = {.seed = header.seed(), .offset = header.random_offset()},
      .worker_attributes = {header.worker_attributes().begin(), header.worker_attributes().end()},
      .update_attributes = {header.update_attributes().begin(), header.update_attributes().end()}};
  if (header.has_attempt()) run.attempt = header.attempt();
  AttachedTensors arguments(request.attachments, kRun);
  for (const tandem::proto::TensorSpec& spec : header.arguments())
    run.arguments.push_back(arguments.next(spec));
  arguments.end();
  rpc::Message message;
  const RunResult result = worker.run(run, [&context] { return context.cancelled(); });
  for (const Tensor& tensor : result.tensors) *reply.add_results() = attach(tensor, message);
  for (const TakenElements& elements : result.taken) {
    proto::RunReply::Taken& taken = *reply.add_taken();
    taken.set_iterator(elements.iterator);
    fill(*taken.mutable_before(), elements.before);
    fill(*taken.mutable_after(), elements.after);
  }
  reply.set_updates(result.staleness.updates);
  reply.set_measured(result.staleness.measured);
  reply.set_staleness_sum(result.staleness.sum);
  reply.set_staleness_max(result.staleness.max);
  for (const AppliedUpdates& updates : result.applied) {
    proto::RunReply::Applied& applied = *reply.add_applied();
    applied.set_server(static_cast<std::uint32_t>(updates.server));
    *applied.mutable_life() = updates.life;
    applied.mutable_numbers()->Add(updates.numbers.begin(), updates.numbers.end());
  }
  message.header = reply.SerializeAsString();
  return message;
}

}  // namespace

void serve(rpc::Server& server, Worker& worker) {
  const auto handle = [&](const char* method, auto function) {
    server.handle(method,
                  [&worker, function](const rpc::CallContext& context, rpc::Message request) {
                    return function(worker, request, context);
                  });
  };
  handle(kProbe, probe);
  handle(kAddFunction, add_function);
  handle(kRemoveFunctions, remove_functions);
  handle(kAddIterator, add_iterator);
  handle(kRemoveIterators, remove_iterators);
  handle(kRun, run);
}

std::uint64_t WorkerClient::probe(const rpc::CallOptions& options) {
  const rpc::Message reply = channel_->call(kProbe, {}, options);
  return parse<proto::ProbeReply>(reply, kProbe).incarnation();
}

void WorkerClient::add_function(std::uint64_t id, const proto::Function& function,
                                const rpc::CallOptions& options) {
  proto::AddFunctionRequest header;
  header.set_id(id);
  *header.mutable_function() = function;
  channel_->call(kAddFunction, message_of(header), options);
}

void WorkerClient::remove_functions(std::span<const std::uint64_t> ids,
                                    const rpc::CallOptions& options) {
  proto::RemoveFunctionsRequest header;
  header.mutable_ids()->Add(ids.begin(), ids.end());
  channel_->call(kRemoveFunctions, message_of(header), options);
}

void WorkerClient::add_iterator(std::uint64_t id, const data::DatasetDescription& dataset,
                                const data::IterateOptions& start,
                                const rpc::CallOptions& options) {
  proto::AddIteratorRequest header;
  rpc::Message request;
  header.set_id(id);
  *header.mutable_dataset() = dataset.message;
  for (const Tensor& tensor : dataset.tensors) *header.add_tensors() = attach(tensor, request);
  fill(*header.mutable_start(), start);
  request.header = header.SerializeAsString();
  channel_->call(kAddIterator, std::move(request), options);
}

void WorkerClient::remove_iterators(std::span<const std::uint64_t> ids,
                                    const rpc::CallOptions& options) {
  proto::RemoveIteratorsRequest header;
  header.mutable_ids()->Add(ids.begin(), ids.end());
  channel_->call(kRemoveIterators, message_of(header), options);
}

WorkerClient::Running WorkerClient::run(const FunctionRun& run, std::uint64_t incarnation,
                                        const rpc::CallOptions& options) {
  proto::RunRequest header;
  rpc::Message request;
  header.set_incarnation(incarnation);
  header.set_function(run.function);
  header.set_closure(run.closure);
  *header.mutable_finished() = run.finished;
  if (run.attempt) header.set_attempt(*run.attempt);
  header.mutable_settled()->Add(run.settled.begin(), run.settled.end());
  for (const Tensor& argument : run.arguments) *header.add_arguments() = attach(argument, request);
  header.mutable_iterators()->Add(run.iterators.begin(), run.iterators.end());
  header.set_seed(run.random.seed);
  header.set_random_offset(run.random.offset);
  for (const auto& attributes : run.worker_attributes) *header.add_worker_attributes() = attributes;
  for (const auto& attributes : run.update_attributes) *header.add_update_attributes() = attributes;
  request.header = header.SerializeAsString();
  return Running(channel_->start(kRun, std::move(request), options));
}

RunResult WorkerClient::Running::wait() {
  const rpc::Message message = call_->wait();
  const auto reply = parse<proto::RunReply>(message, kRun);
  if (reply.restarted())
    throw WorkerRestartedError("[Worker] was restarted since it got the function");
  AttachedTensors values(message.attachments, kRun);
  RunResult result;
  for (const tandem::proto::TensorSpec& spec : reply.results())
    result.tensors.push_back(values.next(spec));
  values.end();
  result.staleness = {.updates = reply.updates(),
                      .measured = reply.measured(),
                      .sum = reply.staleness_sum(),
                      .max = reply.staleness_max()};
  for (const proto::RunReply::Taken& taken : reply.taken())
    result.taken.push_back({.iterator = taken.iterator(),
                            .before = position_of(taken.before()),
                            .after = position_of(taken.after())});
  for (const proto::RunReply::Applied& applied : reply.applied())
    result.applied.push_back({.server = applied.server(),
                              .life = applied.life(),
                              .numbers = {applied.numbers().begin(), applied.numbers().end()}});
  return result;
}

}  // namespace tandem::ps
