// The handshake with which both ends of a connection prove that they know the job's secret. The
// secret itself is not sent:
//
//   server  kGreeting, nonce
//   client  nonce, HMAC-SHA-256(secret, "client", both nonces)
//   server  1, HMAC-SHA-256(secret, "server", both nonces); or zeros, and it closes
//
// All parts have a fixed size, so a server reads at most kClientBytes from an unknown peer. A
// client learns whether the server belongs to its own job.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "comm/rendezvous/socket.h"

namespace tandem {

inline constexpr std::string_view kGreeting = "tandem 1";
inline constexpr std::size_t kNonceBytes = 16, kProofBytes = 32;
inline constexpr std::size_t kServerBytes = kGreeting.size() + kNonceBytes;
inline constexpr std::size_t kClientBytes = kNonceBytes + kProofBytes;
inline constexpr std::size_t kVerdictBytes = 1 + kProofBytes;

std::string random_bytes(std::size_t count);

// Server side. `answer` has kClientBytes. Returns the verdict to send; kRefusal if the client does
// not know the secret. Compares in constant time.
std::string judge(std::string_view secret, std::string_view nonce, std::string_view answer);
extern const std::string kRefusal;

// The identity of a peer at an address.
enum class Greeted {
  kWelcome,
  kRefused,   // a Tandem server with another secret
  kStranger,  // not a Tandem server
};
// Client side, step by step. answer() replies to a greeting of kServerBytes; it returns an empty
// string if that is not Tandem's. read_verdict() interprets the verdict of kVerdictBytes. `nonce`
// is the client's, with kNonceBytes.
std::string answer(std::string_view secret, std::string_view greeting, std::string_view nonce);
Greeted read_verdict(std::string_view secret, std::string_view greeting, std::string_view nonce,
                     std::string_view verdict);
// Client side, both steps on a new connection. Throws UnavailableError if the peer disconnects,
// DeadlineExceededError if it does not reply.
Greeted greet(const Socket& socket, std::string_view secret, Clock::time_point deadline);

}  // namespace tandem
