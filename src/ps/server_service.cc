#include "ps/server_service.h"

#include <algorithm>

#include "ps/server_methods.h"
#include "ps/tensor_message.h"

namespace tandem::ps {
namespace {

rpc::Message create(ParameterStore& store, const rpc::Message& request) {
  const auto header = parse<proto::CreateRequest>(request, kCreate);
  AttachedTensors values(request.attachments, kCreate);
  for (const proto::CreateRequest::Variable& variable : header.variables())
    store.create(variable.id(), variable.name(), values.next_to_keep(variable.spec()));
  values.end();
  return message_of(proto::CreateReply());
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
  const Tensor value = values.next_to_keep(header.spec());
  values.end();
  store.assign(header.id(), value);
  return message_of(proto::AssignReply());
}

rpc::Message remove(ParameterStore& store, const rpc::Message& request) {
  const auto header = parse<proto::RemoveRequest>(request, kRemove);
  for (const std::uint64_t id : header.ids()) store.remove(id);
  return message_of(proto::RemoveReply());
}

rpc::Message add_updates(ParameterStore& store, const rpc::Message& request) {
  const auto header = parse<proto::AddUpdatesRequest>(request, kAddUpdates);
  for (const proto::AddUpdatesRequest::Indexed& update : header.updates())
    store.add_update(header.function(), update.index(), update.part());
  return message_of(proto::AddUpdatesReply());
}

rpc::Message remove_updates(ParameterStore& store, const rpc::Message& request) {
  const auto header = parse<proto::RemoveUpdatesRequest>(request, kRemoveUpdates);
  for (const std::uint64_t function : header.functions()) store.remove_updates(function);
  return message_of(proto::RemoveUpdatesReply());
}

rpc::Message apply(ParameterStore& store, const rpc::Message& request) {
  const auto header = parse<proto::ApplyRequest>(request, kApply);
  store.finish_below(header.finished_below());
  ApplyOptions options{.contributions = std::max(header.contributions(), 1u)};
  if (header.has_max_staleness()) options.max_staleness = header.max_staleness();
  AttachedTensors values(request.attachments, kApply);
  proto::ApplyReply reply;
  for (const proto::ApplyRequest::Applied& update : header.updates()) {
    std::vector<Tensor> inputs;
    for (const proto::TensorSpec& spec : update.inputs()) inputs.push_back(values.next(spec));
    const std::vector<proto::RunAttributes> attributes(update.attributes().begin(),
                                                       update.attributes().end());
    options.read_version.reset();
    if (update.has_read_version()) options.read_version = update.read_version();
    const ParameterStore::Applied applied = store.apply(
        header.function(), update.index(), header.closure(), inputs, attributes, options);
    proto::ApplyReply::Result& result = *reply.add_results();
    result.set_repeated_call(applied.repeated);
    result.set_version(applied.version);
    result.set_stale(applied.stale);
    result.set_staleness(applied.staleness);
  }
  values.end();
  return message_of(reply);
}

}  // namespace

void serve(rpc::Server& server, ParameterStore& store) {
  const auto handle = [&](const char* method, auto function) {
    server.handle(method, [&store, function](const rpc::CallContext&, rpc::Message request) {
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
  handle(kApply, apply);
}

}  // namespace tandem::ps
