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

#include "ps/parameter_store.h"
#include "ps/proto/server_calls.pb.h"
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

// Thread-safe. Every call may be repeated without harm, so a call is sent again after the
// connection was lost, until its time limit has passed. Then it throws rpc::PeerUnavailableError,
// or rpc::CallDeadlineError if the server was reached and has not answered. Errors of the server
// arrive with their types (parameter_store.h).
class ServerClient {
 public:
  struct Limits {
    std::chrono::milliseconds call{60'000};
  };
  ServerClient(std::shared_ptr<rpc::Channel> channel, const Limits& limits)
      : channel_(std::move(channel)), limits_(limits) {}

  struct NewVariable {
    VariableId id = 0;
    std::string name;
    Tensor value;
  };
  // Memory for an input of an update, which is then sent without a copy. See rpc::Channel.
  std::shared_ptr<std::byte> reserve(std::size_t bytes) const { return channel_->reserve(bytes); }

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

  struct Update {
    std::uint32_t index = 0;
    std::vector<Tensor> inputs;
    std::vector<proto::RunAttributes> attributes;
    std::optional<std::uint64_t> read_version;
  };
  // How the updates of a run are applied; see ParameterStore::ApplyOptions.
  struct ApplyRules {
    std::uint64_t finished_below = 0;  // no closure below this one is sent any more
    std::optional<std::uint64_t> max_staleness;
    std::uint32_t contributions = 1;
  };
  // Applies updates for a closure, each at most once.
  Pending<std::vector<ParameterStore::Applied>> apply(std::uint64_t function, std::uint64_t closure,
                                                      const ApplyRules& rules,
                                                      std::span<const Update> updates);

 private:
  // Sends a call, and returns a function that waits for its reply.
  std::function<rpc::Message()> start(const char* method, rpc::Message request) const;

  std::shared_ptr<rpc::Channel> channel_;
  Limits limits_;
};

}  // namespace tandem::ps
