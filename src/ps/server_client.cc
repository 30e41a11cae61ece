#include "ps/server_client.h"

#include <algorithm>
#include <thread>

#include "core/status.h"
#include "ps/server_methods.h"
#include "ps/tensor_message.h"

namespace tandem::ps {
namespace {

using Clock = std::chrono::steady_clock;

// Sends a call until it is answered. A lost connection leaves open whether it has run. The channel
// does not wait for the server, so that the error after the limit says why it was not reached.
class RepeatedCall {
 public:
  RepeatedCall(std::shared_ptr<rpc::Channel> channel, const char* method, rpc::Message request,
               std::chrono::milliseconds limit, std::function<bool()> cancelled)
      : channel_(std::move(channel)),
        method_(method),
        request_(std::move(request)),
        cancelled_(std::move(cancelled)),
        end_(Clock::now() + limit),
        call_(channel_->start(method_, request_, {.limit = limit})) {}

  rpc::Message wait() {
    for (;;) {
      try {
        return call_->wait();
      } catch (const rpc::PeerUnavailableError&) {
        if (left() <= kPause) throw;
        if (cancelled_()) fail<AbortedError>("[{}] the call was cancelled", method_);
        std::this_thread::sleep_for(kPause);
        call_ = channel_->start(method_, request_, {.limit = left()});
      }
    }
  }

 private:
  static constexpr std::chrono::milliseconds kPause{20};  // the channel's own pauses are longer

  // At least a millisecond.
  std::chrono::milliseconds left() const {
    const auto left = std::chrono::floor<std::chrono::milliseconds>(end_ - Clock::now());
    return std::max(left, std::chrono::milliseconds(1));
  }

  std::shared_ptr<rpc::Channel> channel_;
  const char* method_;
  rpc::Message request_;
  std::function<bool()> cancelled_;
  Clock::time_point end_;
  std::unique_ptr<rpc::Call> call_;
};

}  // namespace

std::function<rpc::Message()> ServerClient::start(const char* method, rpc::Message request,
                                                  std::chrono::milliseconds limit,
                                                  Cancelled cancelled) const {
  const auto call = std::make_shared<RepeatedCall>(channel_, method, std::move(request), limit,
                                                   std::move(cancelled));
  return [call] { return call->wait(); };
}

Pending<void> ServerClient::create(std::span<const NewVariable> variables) {
  proto::CreateRequest header;
  rpc::Message request;
  for (const NewVariable& variable : variables) {
    proto::CreateRequest::Variable& made = *header.add_variables();
    made.set_id(variable.id);
    made.set_name(variable.name);
    *made.mutable_spec() = attach(variable.value, request);
  }
  request.header = header.SerializeAsString();
  return Pending<void>([wait = start(kCreate, std::move(request))] { wait(); });
}

namespace {

// The variables of a reply, in the order of the request.
std::vector<ParameterStore::Read> values_of(const rpc::Message& message, const char* method,
                                            std::size_t count) {
  const auto reply = parse<proto::ReadReply>(message, method);
  if (reply.specs_size() != reply.versions_size() ||
      static_cast<std::size_t>(reply.specs_size()) != count)
    fail_parsing(method, message.header.size());
  AttachedTensors values(message.attachments, method);
  std::vector<ParameterStore::Read> read;
  for (int i = 0; i < reply.specs_size(); ++i)
    read.push_back({values.next(reply.specs(i)), reply.versions(i)});
  values.end();
  return read;
}

}  // namespace

Pending<std::vector<ParameterStore::Read>> ServerClient::read(std::span<const VariableId> ids) {
  proto::ReadRequest header;
  header.mutable_ids()->Add(ids.begin(), ids.end());
  return Pending<std::vector<ParameterStore::Read>>(
      [wait = start(kRead, message_of(header)), count = ids.size()] {
        return values_of(wait(), kRead, count);
      });
}

Pending<std::vector<ParameterStore::Read>> ServerClient::read_rows(
    std::span<const RowsOfVariable> variables) {
  proto::ReadRowsRequest header;
  rpc::Message request;
  for (const RowsOfVariable& variable : variables) {
    proto::ReadRowsRequest::Rows& made = *header.add_variables();
    made.set_id(variable.id);
    *made.mutable_numbers() = attach(variable.rows, request);
  }
  request.header = header.SerializeAsString();
  return Pending<std::vector<ParameterStore::Read>>(
      [wait = start(kReadRows, std::move(request)), count = variables.size()] {
        return values_of(wait(), kReadRows, count);
      });
}

Pending<void> ServerClient::assign(VariableId id, const Tensor& value) {
  proto::AssignRequest header;
  rpc::Message request;
  header.set_id(id);
  *header.mutable_spec() = attach(value, request);
  request.header = header.SerializeAsString();
  return Pending<void>([wait = start(kAssign, std::move(request))] { wait(); });
}

Pending<void> ServerClient::remove(std::span<const VariableId> ids) {
  proto::RemoveRequest header;
  header.mutable_ids()->Add(ids.begin(), ids.end());
  return Pending<void>([wait = start(kRemove, message_of(header))] { wait(); });
}

Pending<void> ServerClient::add_updates(
    std::uint64_t function, std::span<const std::pair<std::uint32_t, const proto::Part*>> updates) {
  proto::AddUpdatesRequest header;
  header.set_function(function);
  for (const auto& [index, part] : updates) {
    proto::AddUpdatesRequest::Indexed& made = *header.add_updates();
    made.set_index(index);
    *made.mutable_part() = *part;
  }
  return Pending<void>([wait = start(kAddUpdates, message_of(header))] { wait(); });
}

Pending<void> ServerClient::remove_updates(std::span<const std::uint64_t> functions) {
  proto::RemoveUpdatesRequest header;
  header.mutable_functions()->Add(functions.begin(), functions.end());
  return Pending<void>([wait = start(kRemoveUpdates, message_of(header))] { wait(); });
}

namespace {

rpc::Message message_of_updates(const UpdateCalls::Updates& updates,
                                std::optional<std::uint64_t> attempt) {
  proto::ApplyRequest header;
  rpc::Message request;
  header.set_function(updates.function);
  header.set_closure(updates.closure);
  *header.mutable_finished() = updates.finished;
  if (attempt) header.set_attempt(*attempt);
  for (const UpdateCalls::Update& update : updates.updates) {
    proto::ApplyRequest::Applied& made = *header.add_updates();
    made.set_index(update.index);
    for (const Tensor& input : update.inputs) *made.add_inputs() = attach(input, request);
    for (const proto::RunAttributes& attributes : update.attributes)
      *made.add_attributes() = attributes;
    if (update.read_version) made.set_read_version(*update.read_version);
  }
  request.header = header.SerializeAsString();
  return request;
}

}  // namespace

// Sends the updates again, after their parts, to a server that does not know them.
std::function<rpc::Message()> ServerClient::start_updates(const UpdateCalls::Updates& updates,
                                                          std::optional<std::uint64_t> attempt,
                                                          Cancelled cancelled, Parts parts) const {
  rpc::Message request = message_of_updates(updates, attempt);
  auto wait = start(kApply, request, limits_.call, cancelled);
  return [client = *this, function = updates.function, request = std::move(request),
          wait = std::move(wait), cancelled = std::move(cancelled),
          parts = std::move(parts)]() mutable {
    try {
      return wait();
    } catch (const NotFoundError&) {
      if (parts.empty()) throw;
    }
    client.add_updates(function, parts).wait();
    return client.start(kApply, std::move(request), client.limits_.call, std::move(cancelled))();
  };
}

Pending<ServerClient::AllApplied> ServerClient::apply(const UpdateCalls::Updates& updates,
                                                      Cancelled cancelled, Parts parts) {
  return Pending<AllApplied>(
      [wait = start_updates(updates, {}, std::move(cancelled), std::move(parts)),
       count = updates.updates.size()] {
        const rpc::Message message = wait();
        auto reply = parse<proto::ApplyReply>(message, kApply);
        if (static_cast<std::size_t>(reply.results_size()) != count)
          fail_parsing(kApply, message.header.size());
        AllApplied applied{.updates = {}, .life = std::move(*reply.mutable_life())};
        for (const proto::ApplyReply::Result& result : reply.results())
          applied.updates.push_back({.repeated = result.repeated_call(),
                                     .staleness = result.staleness(),
                                     .number = result.number()});
        return applied;
      });
}

Pending<void> ServerClient::stage(const UpdateCalls::Updates& updates, std::uint64_t attempt,
                                  Cancelled cancelled, Parts parts) {
  return Pending<void>(
      [wait = start_updates(updates, attempt, std::move(cancelled), std::move(parts))] { wait(); });
}

Pending<ServerClient::Committed> ServerClient::commit(const UpdateCalls::Commit& commit,
                                                      const proto::FinishedClosures& finished,
                                                      std::span<const std::uint64_t> waiting) {
  proto::CommitRequest header;
  header.set_function(commit.function);
  header.set_closure(commit.closure);
  header.mutable_indices()->Add(commit.indices.begin(), commit.indices.end());
  for (const UpdateCalls::Contribution& contribution : commit.contributions) {
    proto::CommitRequest::Contribution& made = *header.add_contributions();
    made.set_closure(contribution.closure);
    made.set_attempt(contribution.attempt);
  }
  *header.mutable_finished() = finished;
  header.mutable_waiting()->Add(waiting.begin(), waiting.end());
  return Pending<Committed>([wait = start(kCommit, message_of(header))] {
    auto reply = parse<proto::CommitReply>(wait(), kCommit);
    return Committed{.step = {.missing = {reply.missing().begin(), reply.missing().end()},
                              .measured = reply.measured(),
                              .sum = reply.sum(),
                              .max = reply.max(),
                              .numbers = {reply.numbers().begin(), reply.numbers().end()}},
                     .life = std::move(*reply.mutable_life())};
  });
}

Pending<std::vector<std::uint64_t>> ServerClient::close(std::uint64_t below,
                                                        std::span<const std::uint64_t> waiting,
                                                        std::span<const std::uint64_t> closures,
                                                        std::chrono::milliseconds limit) {
  proto::CloseRequest header;
  header.set_below(below);
  header.mutable_waiting()->Add(waiting.begin(), waiting.end());
  header.mutable_closures()->Add(closures.begin(), closures.end());
  return Pending<std::vector<std::uint64_t>>(
      [wait = start(kClose, message_of(header), limit, [] { return false; }),
       count = closures.size()] {
        const rpc::Message message = wait();
        const auto reply = parse<proto::CloseReply>(message, kClose);
        if (static_cast<std::size_t>(reply.applied_size()) != count)
          fail_parsing(kClose, message.header.size());
        return std::vector<std::uint64_t>(reply.applied().begin(), reply.applied().end());
      });
}

}  // namespace tandem::ps
