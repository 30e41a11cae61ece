// How the ranks of a gloo group connect: unknown clients, stopped ranks, slow networks.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <deque>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "comm/fault_job.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/socket.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/processes.h"

namespace tandem::gloo_connect_test {
namespace {

using std::chrono::milliseconds;
using testing::ChildProcess;
using FaultJob = testing::FaultJob;

class GlooConnect : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_REQUIRE(has_gloo(), "gloo"); }
};

// The address that a rank has published, and the key to it.
std::pair<Endpoint, std::string> address_and_key_of(Store& store, int rank) {
  std::istringstream text(store.get("gloo/test/at/" + std::to_string(rank),
                                    std::chrono::steady_clock::now() + testing::kFarAway));
  std::string host, pid, key;
  Endpoint endpoint;
  text >> host >> pid >> endpoint.host >> endpoint.port >> key;
  return {endpoint, key};
}
Endpoint address_of(Store& store, int rank) { return address_and_key_of(store, rank).first; }

// They connect before the ranks do, and stay connected.
TEST_F(GlooConnect, UnknownClientsAreDropped) {
  const FaultJob job{.backend = "gloo", .address = "127.0.0.1"};
  const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
    std::vector<Socket> strangers;
    for (int other = 0; other < rank; ++other)
      for (int i = 0; i < 150; ++i) {
        strangers.push_back(connect_to(address_of(*job.store, other),
                                       std::chrono::steady_clock::now() + testing::kFarAway));
        if (i % 3 == 1) send(strangers.back().descriptor(), "\1\0\0\0", 4, MSG_NOSIGNAL);
        if (i % 3 == 2)
          send(strangers.back().descriptor(), std::string(100, 'x').data(), 100, MSG_NOSIGNAL);
      }
    const auto communicator = job.join(rank);
    for (int i = 0; i < 3; ++i) testing::all_reduce(*communicator, 10'000);
  });
  EXPECT_EQ(codes, ExitCodes(3, 0));
}

// It counts itself as connected, and may only be slow.
TEST_F(GlooConnect, APeerThatHasProvedItsKeyIsNotDropped) {
  const FaultJob job{.backend = "gloo", .ranks = 2, .address = "127.0.0.1"};
  ChildProcess rank_0([&] {
    job.join(0);
    return "";
  });
  const auto end = Clock::now() + testing::kFarAway;
  const auto [address, key] = address_and_key_of(*job.store, 0);
  const Socket slow = connect_to(address, end);
  EXPECT_EQ(greet(slow, key, end), Greeted::kWelcome);
  const Socket stranger = connect_to(address, end);
  EXPECT_TRUE(testing::eventually([&] {
    try {
      receive_some(stranger);
      return false;
    } catch (const UnavailableError&) {  // it was dropped
      return true;
    }
  }));
  EXPECT_EQ(receive_some(slow), "");  // throws if it was dropped
}

// The others get the failed rank's error at once, without a membership.
TEST_F(GlooConnect, ARankThatCannotListenFailsAllRanks) {
  const FaultJob job{.backend = "gloo", .address = "127.0.0.1"};
  const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
    FaultJob mine = job;
    if (rank == 1) mine.address = "192.0.2.1";  // not an address of this host
    const std::string text = testing::error_of<Error>([&] { mine.join(rank); });
    EXPECT_NE(text.find("cannot listen on address '192.0.2.1'"), std::string::npos) << text;
    if (rank == 1) return;
    EXPECT_EQ(text.find("rank 1 could not join group 'test': "), 0u) << text;
  });
  EXPECT_EQ(codes, ExitCodes(3, 0));
}

// Models a rank that is stopped or disconnected. The membership detects it.
TEST_F(GlooConnect, ARankThatSaysNothingIsWaitedForAsLongAsItCountsAsAlive) {
  const auto membership = std::make_shared<testing::TestMembership>();
  const FaultJob job{
      .backend = "gloo", .ranks = 2, .membership = membership, .address = "127.0.0.1"};
  for (const int stopped : {0, 1}) {
    const Socket silent = listen_on({"127.0.0.1", 0});
    job.store->set("gloo/test/at/" + std::to_string(stopped),
                   fmt::format("far 7 127.0.0.1 {} key", port_of(silent)));
    ChildProcess other([&] {
      address_of(*job.store, 1 - stopped);
      membership->report("stopped");
      return "";
    });
    EXPECT_EQ(testing::error_of<UnavailableError>([&] { job.join(1 - stopped); }),
              "rank 7 on host far went away");
  }
}

// Forwards bytes between two connections in both directions, with a delay.
void pass_on_late(const Socket& listener, const Endpoint& to, milliseconds delay) {
  struct Way {
    Socket from, into;
    std::deque<std::pair<Clock::time_point, std::string>> under_way;
  };
  std::vector<std::pair<Way, Way>> connections;
  const auto move = [&](const Socket& from, const Socket& into, Way& way) {
    try {
      const std::string bytes = receive_some(from);
      if (!bytes.empty()) way.under_way.emplace_back(Clock::now() + delay, bytes);
      while (!way.under_way.empty() && way.under_way.front().first <= Clock::now()) {
        send_all(into, way.under_way.front().second, Clock::now() + testing::kFarAway);
        way.under_way.pop_front();
      }
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  while (true) {
    if (Socket guest = accept_from(listener); guest.is_open()) {
      connections.emplace_back();
      connections.back().first.from = std::move(guest);
      testing::eventually([&] {
        try {
          connections.back().first.into = connect_to(to, Clock::now() + testing::kFarAway);
        } catch (const UnavailableError&) {  // rank 0 has not started yet
        }
        return connections.back().first.into.is_open();
      });
    }
    std::erase_if(connections, [&](auto& each) {
      auto& [there, back] = each;
      return !move(there.from, there.into, there) || !move(there.into, there.from, back);
    });
    std::this_thread::sleep_for(milliseconds(1));
  }
}

// A store request takes longer than all intervals at which ranks check for failures.
TEST_F(GlooConnect, RanksThatAreFarApart) {
  const std::uint16_t port = testing::free_port();
  const Socket listener = listen_on({"127.0.0.1", 0});
  ChildProcess far([&] {
    pass_on_late(listener, {"127.0.0.1", port}, milliseconds(75));
    return "";
  });
  const ExitCodes codes = run_processes(2, [&](int rank) {
    const auto job = rendezvous(fmt::format("tcp://127.0.0.1:{}?rank={}&world_size=2",
                                            rank == 0 ? port : port_of(listener), rank),
                                {.timeout = testing::kFarAway});
    {
      FaultJob group{.backend = "gloo", .store = job->store(), .ranks = 2};
      group.join_limit = milliseconds(20'000);
      group.membership = job->membership();
      const auto communicator = group.join(rank);
      testing::all_reduce(*communicator, 10);
    }
    job->shut_down();
  });
  EXPECT_EQ(codes, ExitCodes(2, 0));
}

}  // namespace
}  // namespace tandem::gloo_connect_test
