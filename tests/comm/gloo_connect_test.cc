// How the ranks of a group over gloo connect: strangers, ranks that stop, ways that are long.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <deque>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "comm/fault_job.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/socket.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/processes.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using testing::ChildProcess;
using FaultJob = testing::FaultJob;

class GlooConnect : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_REQUIRE(has_gloo(), "gloo"); }
};

// Where a rank listens, as it has told the others.
Endpoint door_of(Store& store, int rank) {
  std::istringstream text(store.get("gloo/test/at/" + std::to_string(rank),
                                    std::chrono::steady_clock::now() + testing::kFarAway));
  std::string host, pid;
  Endpoint endpoint;
  text >> host >> pid >> endpoint.host >> endpoint.port;
  return endpoint;
}

// They come before the ranks do, and stay.
TEST_F(GlooConnect, StrangersAtTheDoorsOfRanksAreDropped) {
  const FaultJob job{.backend = "gloo", .address = "127.0.0.1"};
  const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
    std::vector<Socket> strangers;
    for (int other = 0; other < rank; ++other)
      for (int i = 0; i < 150; ++i) {
        strangers.push_back(connect_to(door_of(*job.store, other),
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

// The others hear it at once, without a membership, and who it was.
TEST_F(GlooConnect, ARankThatCannotListenIsHeardByAll) {
  const FaultJob job{.backend = "gloo", .address = "127.0.0.1"};
  const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
    FaultJob mine = job;
    if (rank == 1) mine.address = "192.0.2.1";  // no address of this machine
    const std::string text = testing::error_of<Error>([&] { mine.join(rank); });
    EXPECT_NE(text.find("cannot listen on address '192.0.2.1'"), std::string::npos) << text;
    if (rank == 1) return;
    EXPECT_EQ(text.find("rank 1 could not join group 'test': "), 0u) << text;
  });
  EXPECT_EQ(codes, ExitCodes(3, 0));
}

// As a rank that is stopped there, or whose cable is cut. The membership finds it out.
TEST_F(GlooConnect, ARankThatSaysNothingIsWaitedForAsLongAsItCountsAsAlive) {
  const auto membership = std::make_shared<testing::TestMembership>();
  const FaultJob job{
      .backend = "gloo", .ranks = 2, .membership = membership, .address = "127.0.0.1"};
  for (const int stopped : {0, 1}) {
    const Socket silent = listen_on({"127.0.0.1", 0});
    job.store->set("gloo/test/at/" + std::to_string(stopped),
                   fmt::format("far 7 127.0.0.1 {} key", port_of(silent)));
    ChildProcess other([&] {
      door_of(*job.store, 1 - stopped);
      membership->report("stopped");
      return "";
    });
    EXPECT_EQ(testing::error_of<UnavailableError>([&] { job.join(1 - stopped); }),
              "rank 7 on host far went away");
  }
}

// Passes bytes on between two connections, in both directions, each a while after it came.
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
        } catch (const UnavailableError&) {  // rank 0 is not there yet
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

// A request to the store and its answer take longer than any interval at which ranks look at what
// else has happened.
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
    job->leave();
  });
  EXPECT_EQ(codes, ExitCodes(2, 0));
}

}  // namespace
}  // namespace tandem
