#include "comm/rendezvous/server_connection.h"

#include <algorithm>
#include <thread>

#include "comm/rendezvous/handshake.h"
#include "comm/stall.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr auto kAttempt = std::chrono::seconds(5);  // per attempt to reach a silent peer

// Whether another machine answers, but no process listens there.
bool refuses_elsewhere(const std::string& host, const std::string& error) {
  return error.ends_with("Connection refused") && !is_loopback(host);
}

}  // namespace

ServerConnection::ServerConnection(const ServerAddress& address, Clock::time_point deadline) {
  deadline = std::min(deadline, Clock::now() + kAttempt);
  socket_ = connect_to(address.endpoint, deadline);
  try {
    switch (greet(socket_, address.secret, deadline)) {
      case Greeted::kWelcome: return;
      case Greeted::kRefused: break;
      case Greeted::kStranger:
        fail<UnavailableError>("[rendezvous] {} is not a Tandem rendezvous server",
                               to_string(address.endpoint));
    }
  } catch (const DeadlineExceededError&) {
    fail<UnavailableError>("[rendezvous] {} does not answer the handshake",
                           to_string(address.endpoint));
  }
  fail<InvalidArgumentError>(
      "[rendezvous] the job at {} has another token, or is another user's: TANDEM_JOB_TOKEN must "
      "be the same for all ranks of a job",
      to_string(address.endpoint));
}

void ServerConnection::send(const WireMessage& message, Clock::time_point deadline) {
  send_all(socket_, encode(message), deadline);
}

std::optional<WireMessage> ServerConnection::receive(Clock::time_point until) {
  while (true) {
    if (auto message = reader_.next()) return message;
    if (!wait_readable(socket_, until)) return std::nullopt;
    reader_.append(receive_some(socket_));
  }
}

FoundServer find_server(const std::string& host, std::span<const std::uint16_t> ports,
                        const std::string& secret, const TimeLimit& limit, const char* whose) {
  std::string last = "nothing was tried";
  const auto describe = [&](std::chrono::milliseconds time) {
    return fmt::format(
        "[rendezvous] {} is missing: the job's rendezvous was not found at {} within {} ms ({}){}",
        whose, to_string({host, ports.front()}), time.count(), last,
        refuses_elsewhere(host, last) ? "; it may listen on another address, such as its loopback"
                                      : "");
  };
  LongWait wait;
  for (auto pause = std::chrono::milliseconds(10);;
       pause = std::min(pause * 2, std::chrono::milliseconds(200))) {
    for (const std::uint16_t port : ports) {
      try {
        return {{host, port}, ServerConnection({{host, port}, secret}, limit.end)};
      } catch (const InvalidArgumentError& error) {
        if (ports.size() == 1) throw;
        last = error.what();
      } catch (const ResourceExhaustedError&) {
        throw;
      } catch (const Error& error) {
        last = error.what();
      }
    }
    const Clock::time_point now = Clock::now();
    if (now >= limit.end) throw DeadlineExceededError(describe(limit.length));
    wait.look(describe);
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, limit.end - now));
  }
}

}  // namespace tandem
