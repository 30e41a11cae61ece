// A parameter server, as the coordinator and the workers see it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ps/large_calls.h"
#include "ps/proto/server_calls.pb.h"
#include "ps/update_calls.h"
#include "rpc/channel.h"

namespace tandem::ps {

// A call that has been sent. Calls to several servers are started first and then waited for.
template <class Result>
class Pending {
 public:
  explicit Pending(std::function<Result()> wait) : wait_(std::move(wait)) {}
  // Call it once.
  Result wait() { return std::exchange(wait_, nullptr)(); }

 private:
  std::function<Result()> wait_;
};

// Thread-safe. Every call may be repeated without harm, so a call is sent again while the server
// cannot be reached and after the connection was lost, until its time limit has passed. Then it
// throws rpc::PeerUnavailableError with the last reason, or rpc::CallDeadlineError if the server
// was reached and has not answered. Errors of the server arrive with their types
// (parameter_store.h). Variables may have any size (ps/large_calls.h).
class ServerClient {
 public:
  struct Limits {
    std::chrono::milliseconds call{60'000};
  };
  ServerClient(std::shared_ptr<rpc::Channel> channel, const Limits& limits,
               const LargeCallOptions& large = {})
      : channel_(large_calls(std::move(channel), large)), limits_(limits) {}

  struct NewVariable {
    VariableId id = 0;
    std::string name;
    Tensor value;
  };

  Pending<void> create(std::span<const NewVariable> variables);
  Pending<std::vector<ParameterStore::Read>> read(std::span<const VariableId> ids);
  struct RowsOfVariable {
    VariableId id = 0;
    Tensor rows;  // of int64
  };
  // See ParameterStore::read_rows().
  Pending<std::vector<ParameterStore::Read>> read_rows(std::span<const RowsOfVariable> variables);
  Pending<void> assign(VariableId id, const Tensor& value);
  Pending<void> remove(std::span<const VariableId> ids);
  // The updates of a function, by index, whose variables are on this server.
  Pending<void> add_updates(std::uint64_t function,
                            std::span<const std::pair<std::uint32_t, const proto::Part*>> updates);
  Pending<void> remove_updates(std::span<const std::uint64_t> functions);

  using Cancelled = std::function<bool()>;
  // Parts of updates, by index, for a server that was restarted from a snapshot and does not know
  // them. They outlive the call. Without them such a server throws NotFoundError.
  using Parts = std::vector<std::pair<std::uint32_t, const proto::Part*>>;
  struct AllApplied {
    std::vector<ParameterStore::Applied> updates;
    proto::ServerLife life;
  };
  // Applies updates for a closure, each at most once. If `cancelled` is true, a call that was lost
  // is not sent again, and AbortedError is thrown.
  Pending<AllApplied> apply(
      const UpdateCalls::Updates& updates, Cancelled cancelled = [] { return false; },
      Parts parts = {});
  // See UpdateCalls.
  Pending<void> stage(
      const UpdateCalls::Updates& updates, std::uint64_t attempt,
      Cancelled cancelled = [] { return false; }, Parts parts = {});
  struct Committed {
    UpdateCalls::Committed step;
    proto::ServerLife life;
  };
  // Updates of the closures in `waiting` are kept, although these have finished.
  Pending<Committed> commit(const UpdateCalls::Commit& commit,
                            const proto::FinishedClosures& finished,
                            std::span<const std::uint64_t> waiting);
  // Closes the closures below `below`. Returns the numbers of updates that were applied for
  // `closures`. This call has its own limit.
  Pending<std::vector<std::uint64_t>> close(std::uint64_t below,
                                            std::span<const std::uint64_t> waiting,
                                            std::span<const std::uint64_t> closures,
                                            std::chrono::milliseconds limit);

 private:
  // Sends a call, and returns a function that waits for its reply.
  std::function<rpc::Message()> start(const char* method, rpc::Message request) const {
    return start(method, std::move(request), limits_.call, [] { return false; });
  }
  std::function<rpc::Message()> start(const char* method, rpc::Message request,
                                      std::chrono::milliseconds limit, Cancelled cancelled) const;

  std::function<rpc::Message()> start_updates(const UpdateCalls::Updates& updates,
                                              std::optional<std::uint64_t> attempt,
                                              Cancelled cancelled, Parts parts) const;

  std::shared_ptr<rpc::Channel> channel_;
  Limits limits_;
};

}  // namespace tandem::ps
