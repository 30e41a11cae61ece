#include "ps/server_service.h"

#include <memory>

#include "core/status.h"
#include "ps/server_methods.h"
#include "ps/tensor_message.h"
#include "ps/update_calls.h"

namespace tandem::ps {
namespace {

rpc::Message create(ParameterStore& store, const rpc::Message& request) {
  const auto header = parse<proto::CreateRequest>(request, kCreate);
  AttachedTensors values(request.attachments, kCreate);
  for (const proto::CreateRequest::Variable& variable : header.variables())
    store.create(variable.id(), variable.name(), values.next(variable.spec()));
  values.end();
  return {};
}

rpc::Message reply_with(const std::vector<ParameterStore::Read>& all) {
  proto::ReadReply reply;
  rpc::Message message;
  for (const ParameterStore::Read& read : all) {
    *reply.add_specs() = attach(read.value, message);
    reply.add_versions(read.version);
  }
  message.header = reply.SerializeAsString();
  return message;
}

rpc::Message read(ParameterStore& store, const rpc::Message& request) {
  const auto header = parse<proto::ReadRequest>(request, kRead);
  std::vector<ParameterStore::Read> all;
  for (const std::uint64_t id : header.ids()) all.push_back(store.read(id));
  return reply_with(all);
}

rpc::Message read_rows(ParameterStore& store, const rpc::Message& request) {
  const auto header = parse<proto::ReadRowsRequest>(request, kReadRows);
  AttachedTensors numbers(request.attachments, kReadRows);
  std::vector<ParameterStore::Read> all;
  for (const proto::ReadRowsRequest::Rows& rows : header.variables())
    all.push_back(store.read_rows(rows.id(), numbers.next(rows.numbers())));
  numbers.end();
  return reply_with(all);
}

rpc::Message assign(ParameterStore& store, const rpc::Message& request) {
  const auto header = parse<proto::AssignRequest>(request, kAssign);
  AttachedTensors values(request.attachments, kAssign);
  const Tensor value = values.next(header.spec());
  values.end();
  store.assign(header.id(), value);
  return {};
}

rpc::Message remove(ParameterStore& store, const rpc::Message& request) {
  const auto header = parse<proto::RemoveRequest>(request, kRemove);
  for (const std::uint64_t id : header.ids()) store.remove(id);
  return {};
}

rpc::Message add_updates(ParameterStore& store, const rpc::Message& request) {
  const auto header = parse<proto::AddUpdatesRequest>(request, kAddUpdates);
  for (const proto::AddUpdatesRequest::Indexed& update : header.updates())
    store.add_update(header.function(), update.index(), update.part());
  return {};
}

rpc::Message remove_updates(ParameterStore& store, const rpc::Message& request) {
  const auto header = parse<proto::RemoveUpdatesRequest>(request, kRemoveUpdates);
  for (const std::uint64_t function : header.functions()) store.remove_updates(function);
  return {};
}

// A call that the caller does not wait for any more must not change anything: the caller has an
// error already, or sends the call again.
void check_wanted(const rpc::CallContext& context) {
  if (context.cancelled())
    throw AbortedError("[ParameterServer] the caller does not wait for the updates any more");
}

rpc::Message apply(UpdateCalls& calls, const rpc::Message& request,
                   const rpc::CallContext& context) {
  const auto header = parse<proto::ApplyRequest>(request, kApply);
  check_wanted(context);
  AttachedTensors values(request.attachments, kApply);
  UpdateCalls::Updates updates{.function = header.function(),
                               .closure = header.closure(),
                               .finished = header.finished(),
                               .updates = {}};
  for (const proto::ApplyRequest::Applied& message : header.updates()) {
    UpdateCalls::Update& update = updates.updates.emplace_back();
    update.index = message.index();
    for (const tandem::proto::TensorSpec& spec : message.inputs())
      update.inputs.push_back(values.next(spec));
    update.attributes.assign(message.attributes().begin(), message.attributes().end());
    if (message.has_read_version()) update.read_version = message.read_version();
  }
  values.end();
  proto::ApplyReply reply;
  if (header.has_attempt()) {
    calls.stage(std::move(updates), header.attempt());
    return message_of(reply);
  }
  for (const ParameterStore::Applied& applied : calls.apply(updates)) {
    proto::ApplyReply::Result& result = *reply.add_results();
    result.set_repeated_call(applied.repeated);
    result.set_staleness(applied.staleness);
    result.set_number(applied.number);
  }
  *reply.mutable_life() = calls.life();
  return message_of(reply);
}

rpc::Message commit(UpdateCalls& calls, const rpc::Message& request,
                    const rpc::CallContext& context) {
  const auto header = parse<proto::CommitRequest>(request, kCommit);
  check_wanted(context);
  UpdateCalls::Commit commit{.function = header.function(),
                             .closure = header.closure(),
                             .indices = {header.indices().begin(), header.indices().end()},
                             .contributions = {}};
  for (const proto::CommitRequest::Contribution& each : header.contributions())
    commit.contributions.push_back({.closure = each.closure(), .attempt = each.attempt()});
  const UpdateCalls::Committed committed = calls.commit(commit);
  calls.drop(header.finished(),
             std::vector<std::uint64_t>(header.waiting().begin(), header.waiting().end()));
  proto::CommitReply reply;
  reply.mutable_missing()->Add(committed.missing.begin(), committed.missing.end());
  reply.set_measured(committed.measured);
  reply.set_sum(committed.sum);
  reply.set_max(committed.max);
  reply.mutable_numbers()->Add(committed.numbers.begin(), committed.numbers.end());
  *reply.mutable_life() = calls.life();
  return message_of(reply);
}

rpc::Message close(UpdateCalls& calls, const rpc::Message& request,
                   const rpc::CallContext& context) {
  const auto header = parse<proto::CloseRequest>(request, kClose);
  const std::vector<std::uint64_t> applied = calls.close_below(
      header.below(),
      std::vector<std::uint64_t>(header.closures().begin(), header.closures().end()),
      [&] { return context.cancelled(); });
  proto::FinishedClosures finished;
  finished.set_below(header.below());
  calls.drop(finished,
             std::vector<std::uint64_t>(header.waiting().begin(), header.waiting().end()));
  proto::CloseReply reply;
  reply.mutable_applied()->Add(applied.begin(), applied.end());
  return message_of(reply);
}

}  // namespace

void serve(rpc::Server& server, ParameterStore& store, const LargeCallOptions& options) {
  LargeCallServer large(server, options);
  const auto handle = [&](const char* method, auto function) {
    large.handle(method, [&store, function](const rpc::CallContext&, rpc::Message request) {
      return function(store, request);
    });
  };
  handle(kCreate, create);
  handle(kRead, read);
  handle(kReadRows, read_rows);
  handle(kAssign, assign);
  handle(kRemove, remove);
  handle(kAddUpdates, add_updates);
  handle(kRemoveUpdates, remove_updates);
  const auto calls = std::make_shared<UpdateCalls>(store);
  const auto handle_updates = [&](const char* method, auto function) {
    large.handle(method, [calls, function](const rpc::CallContext& context, rpc::Message request) {
      return function(*calls, request, context);
    });
  };
  handle_updates(kApply, apply);
  handle_updates(kCommit, commit);
  handle_updates(kClose, close);
}

}  // namespace tandem::ps
