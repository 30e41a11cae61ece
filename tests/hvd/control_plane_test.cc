// Counts the messages and bytes that ranks exchange to agree, by the number of ranks. Runs the
// deciding classes for all ranks of a job in one process, without sockets. Prints the table of
// docs/scale.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/rendezvous/consultation.h"
#include "comm/rendezvous/coordinator.h"
#include "comm/rendezvous/tree_exchange.h"
#include "comm/signature.h"
#include "core/status.h"
#include "hvd/negotiation.h"

namespace tandem::control_plane_test {
namespace {

struct Traffic {
  std::int64_t messages = 0, bytes = 0;  // in both directions
  void add(std::size_t count) {
    ++messages;
    bytes += static_cast<std::int64_t>(count);
  }
};

// The traffic of one step of a job: of rank 0's process with the server, and of the busiest
// other process.
struct Load {
  Traffic first, other;
};

// The server's side of a job, and the messages between it and the ranks.
class Server {
 public:
  explicit Server(int size) : size_(size), traffic_(static_cast<std::size_t>(size)) {}

  // Each rank has a connection for its membership, and one for its store.
  const WireMessage& request(int rank, bool store, const WireMessage& message) {
    const int connection = 2 * rank + (store ? 1 : 0);
    count(rank, message);
    EXPECT_TRUE(coordinator_.handle(connection, message, {}));
    return last_[connection];
  }
  void drop(int rank) { coordinator_.dropped(2 * rank, "its connection closed without goodbye"); }

  int size() const { return size_; }
  // The traffic since the last call.
  Load take_load() {
    Load load = {
        .first = server_,
        .other = *std::max_element(traffic_.begin() + 1, traffic_.end(),
                                   [](const auto& a, const auto& b) { return a.bytes < b.bytes; })};
    server_ = {};
    std::fill(traffic_.begin(), traffic_.end(), Traffic());
    return load;
  }

 private:
  void count(int rank, const WireMessage& message) {
    const std::size_t bytes = encode(message).size();
    server_.add(bytes);
    traffic_[static_cast<std::size_t>(rank)].add(bytes);
  }

  int size_;
  Traffic server_;
  std::vector<Traffic> traffic_;
  std::map<int, WireMessage> last_;  // by connection
  Coordinator coordinator_{{.size = size_}, [this](int connection, const WireMessage& message) {
                             count(connection / 2, message);
                             last_[connection] = message;
                           }};
};

// In a real job the rank would wait here for another one, which runs later in this test.
struct WouldWait {};

class SimulatedStore final : public Store {
 public:
  SimulatedStore(Server& server, int rank) : server_(server), rank_(rank) {}
  void set(const std::string& key, std::string_view value) override {
    ask({.type = MessageType::kSet, .key = key, .value = std::string(value)});
  }
  std::string get(const std::string& key, TimePoint) override {
    const WireMessage& answer = ask({.type = MessageType::kGet, .number = 1, .key = key});
    if (answer.type != MessageType::kValue) throw WouldWait();
    return answer.value;
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    return ask({.type = MessageType::kAdd, .number = delta, .key = key}).number;
  }
  void remove(const std::string& key) override { ask({.type = MessageType::kRemove, .key = key}); }

 private:
  const WireMessage& ask(const WireMessage& message) {
    return server_.request(rank_, true, message);
  }
  Server& server_;
  int rank_;
};

void join_all(Server& server) {
  for (int rank = 0; rank < server.size(); ++rank)
    server.request(rank, false,
                   {.type = MessageType::kJoin,
                    .rank = rank,
                    .number = 100'000 + rank,
                    .key = "node-0123.cluster",
                    .value = encode(JoinTerms{.size = server.size()})});
}

// The exchange by which ranks choose a backend, with messages of about the same size.
void consult_all(Server& server) {
  const auto ask = [&](int rank) {
    SimulatedStore store(server, rank);
    const std::string answer =
        consult({.store = store,
                 .name = "connect/seats 0",
                 .rank = rank,
                 .size = server.size(),
                 .limit = {},
                 .describe_missing = [](const std::vector<int>& ranks,
                                        std::chrono::milliseconds) { return list_ranks(ranks); }},
                "-67108864 0b4e3e8c-3f0f-4f7d-9e0e-2c6f2f1d7a11", [&](const auto& values) {
                  EXPECT_EQ(values.size(), static_cast<std::size_t>(server.size()));
                  return std::vector<std::string>(values.size(), "hierarchical gloo 3");
                });
    EXPECT_EQ(answer, "hierarchical gloo 3");
  };
  // All ranks wait for rank 0; then they continue.
  for (int rank = 1; rank < server.size(); ++rank) EXPECT_THROW(ask(rank), WouldWait);
  server.take_load();
  ask(0);
  for (int rank = 1; rank < server.size(); ++rank) ask(rank);
}

// The exchange by which Gloo's ranks learn addresses: the parent's from the store, the others
// along the tree.
Load exchange_addresses(Server& server) {
  const std::string door =
      "node-0123.cluster 100000 10.0.12.34 43210 0123456789abcdef0123456789abcdef";
  const auto key = [](int rank) { return "gloo/world 0/at/" + std::to_string(rank); };
  std::vector<std::optional<TreeExchange>> ranks(static_cast<std::size_t>(server.size()));
  std::vector<Traffic> traffic(ranks.size());
  for (int rank = 0; rank < server.size(); ++rank) {
    SimulatedStore store(server, rank);
    store.set(key(rank), door);
    if (rank > 0) store.get(key(TreeExchange::parent_of(rank)), {});
    ranks[static_cast<std::size_t>(rank)].emplace(rank, server.size(), door);
  }
  // Frees the data of ranks that have passed on everything, since all of it together is quadratic.
  const std::function<void(std::size_t)> pass_on = [&](std::size_t rank) {
    while (const auto outgoing = ranks[rank]->take_outgoing())
      for (const int to : outgoing->to) {
        const auto peer = static_cast<std::size_t>(to);
        ranks[peer]->receive(static_cast<int>(rank), outgoing->message);
        traffic[rank].add(outgoing->message->size());
        traffic[peer].add(outgoing->message->size());
        if (peer > rank) pass_on(peer);
      }
    if (ranks[rank]->complete()) ranks[rank].reset();
  };
  for (std::size_t rank = ranks.size(); rank-- > 0;) pass_on(rank);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_FALSE(ranks[rank]) << "rank " << rank << " does not know all addresses";
    SimulatedStore(server, static_cast<int>(rank)).remove(key(static_cast<int>(rank)));
  }
  Load load = server.take_load();
  const auto with = [](const Traffic& a, const Traffic& b) {
    return Traffic{a.messages + b.messages, a.bytes + b.bytes};
  };
  load.first = with(load.first, traffic[0]);
  load.other =
      with(load.other,
           *std::max_element(traffic.begin() + 1, traffic.end(),
                             [](const auto& a, const auto& b) { return a.bytes < b.bytes; }));
  return load;
}

constexpr int kTensors = 50;

// The bytes that each rank gathers in a cycle of the Horovod API, the same on all ranks.
Load negotiate(hvd::Negotiation& negotiation, int size, bool cached) {
  hvd::CycleMessages messages;
  const auto ranks = static_cast<std::size_t>(size);
  messages.words = negotiation.words();
  messages.joined.resize(ranks);
  messages.requests.resize(ranks);
  std::vector<std::uint64_t> hits(ranks * messages.words);
  std::vector<std::byte> mine;
  for (int i = 0; i < kTensors; ++i) {
    const auto request = std::make_shared<const hvd::Request>(
        hvd::Request{.kind = hvd::RequestKind::kAllreduce,
                     .name = fmt::format("gradient/layer {}/kernel", i),
                     .dtypes = {float32},
                     .shapes = {{3, 3, 64, 64}}});
    const int slot = negotiation.slot_of(request, size - 1);
    EXPECT_EQ(slot >= 0, cached);
    if (slot < 0)
      hvd::append_request(mine, *request);
    else
      for (std::size_t r = 0; r < ranks; ++r)
        hits[r * messages.words + static_cast<std::size_t>(slot) / 64] |= std::uint64_t{1}
                                                                          << (slot % 64);
  }
  for (auto& requests : messages.requests) requests = hvd::parse_requests(mine);
  messages.hits = hits;
  EXPECT_EQ(negotiation.settle(messages).size(), static_cast<std::size_t>(kTensors));
  Traffic gathered;
  gathered.add(ranks * (sizeof(hvd::CycleHeader) + messages.words * sizeof(std::uint64_t)));
  if (!cached) gathered.add(ranks * mine.size());
  return {gathered, gathered};
}

using Loads = std::map<std::string, Load>;

Loads simulate(int size) {
  Server server(size);
  Loads loads;
  join_all(server);
  loads["1 join the job"] = server.take_load();
  consult_all(server);
  loads["2 choose a backend"] = server.take_load();
  loads["3 learn all addresses"] = exchange_addresses(server);
  for (int rank = 0; rank < size; ++rank)
    server.request(rank, false, {.type = MessageType::kHeartbeat});
  loads["4 heartbeat, each second"] = server.take_load();
  hvd::Negotiation negotiation(size, 1024);
  loads["5 Horovod cycle, 50 new tensors"] = negotiate(negotiation, size, false);
  loads["6 Horovod cycle, the same again"] = negotiate(negotiation, size, true);
  for (int rank = size - 1; rank >= 0; --rank) server.drop(rank);
  loads["7 all ranks die, one by one"] = server.take_load();
  return loads;
}

void print(int size, const Loads& loads) {
  for (const auto& [step, load] : loads)
    std::cout << fmt::format("| {} | {} | {} | {} | {} | {} |\n", step.substr(2), size,
                             load.first.messages, load.first.bytes, load.other.messages,
                             load.other.bytes);
}

// Acceptance: with ten times the ranks, a process handles at most about ten times the bytes, and
// the server sends each rank no more than before.
TEST(ControlPlane, NothingIsQuadraticInTheRanks) {
  std::map<int, Loads> all;
  for (const int size : {64, 1'000, 10'000}) {
    all[size] = simulate(size);
    print(size, all[size]);
  }
  constexpr double kTen = 11;  // rank numbers have more digits, too
  for (const auto& [step, large] : all[10'000]) {
    const Load& small = all[1'000][step];
    const auto ratio = [](std::int64_t a, std::int64_t b) {
      return static_cast<double>(a) / static_cast<double>(std::max<std::int64_t>(b, 1));
    };
    EXPECT_LE(ratio(large.first.bytes, small.first.bytes), kTen) << step;
    EXPECT_LE(ratio(large.first.messages, small.first.messages), kTen) << step;
    EXPECT_LE(ratio(large.other.bytes, small.other.bytes), kTen) << step;
    EXPECT_EQ(large.other.messages, small.other.messages) << step;
  }
  for (const char* step : {"1 join the job", "2 choose a backend", "4 heartbeat, each second"})
    EXPECT_LE(all[10'000][step].other.bytes, all[64][step].other.bytes + 64) << step;
}

}  // namespace
}  // namespace tandem::control_plane_test
