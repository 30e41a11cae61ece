// How both ends of a connection prove that they know the job's secret before anything else is said.
// The secret itself is not sent:
//
//   server  kGreeting, nonce
//   client  nonce, HMAC-SHA-256(secret, "client", both nonces)
//   server  1, HMAC-SHA-256(secret, "server", both nonces); or zeros, and it closes
//
// Every part has a fixed size, so a server reads no more than kClientBytes of a peer that it does
// not know. A client learns that it has found its own job, and not another's.
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

// Server. `answer` has kClientBytes; the verdict to send, which is kRefusal when the client does
// not know the secret. Compares in constant time.
std::string judge(std::string_view secret, std::string_view nonce, std::string_view answer);
extern const std::string kRefusal;

// What a peer at an address turned out to be.
enum class Greeted {
  kWelcome,
  kRefused,   // a server of Tandem with another secret
  kStranger,  // something else
};
// Client, step by step: the answer to a greeting of kServerBytes, empty when that is none of
// Tandem's; and what the verdict of kVerdictBytes on it means. `nonce` is this client's, of
// kNonceBytes.
std::string answer(std::string_view secret, std::string_view greeting, std::string_view nonce);
Greeted read_verdict(std::string_view secret, std::string_view greeting, std::string_view nonce,
                     std::string_view verdict);
// Both on a fresh connection. Throws UnavailableError or DeadlineExceededError when the peer goes
// or says nothing.
Greeted greet(const Socket& socket, std::string_view secret, Clock::time_point deadline);

}  // namespace tandem
