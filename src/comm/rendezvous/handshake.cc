#include "comm/rendezvous/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "core/status.h"

namespace tandem {
namespace {

std::string proof(std::string_view secret, std::string_view role, std::string_view server_nonce,
                  std::string_view client_nonce) {
  std::string message(role);
  message.append(server_nonce).append(client_nonce);
  std::string result(kProofBytes, '\0');
  unsigned int size = 0;
  const auto* done = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                          reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                          reinterpret_cast<unsigned char*>(result.data()), &size);
  TANDEM_ASSERT(done != nullptr && size == kProofBytes);
  return result;
}

bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

const std::string kRefusal(kVerdictBytes, '\0');

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1)
    fail<UnavailableError>("[rendezvous] cannot get random numbers from the system");
  return bytes;
}

std::string judge(std::string_view secret, std::string_view nonce, std::string_view answer) {
  const std::string_view client_nonce = answer.substr(0, kNonceBytes);
  if (!same(answer.substr(kNonceBytes), proof(secret, "client", nonce, client_nonce)))
    return kRefusal;
  return '\1' + proof(secret, "server", nonce, client_nonce);
}

std::string answer(std::string_view secret, std::string_view greeting, std::string_view nonce) {
  if (greeting.substr(0, kGreeting.size()) != kGreeting) return "";
  return std::string(nonce) + proof(secret, "client", greeting.substr(kGreeting.size()), nonce);
}

Greeted read_verdict(std::string_view secret, std::string_view greeting, std::string_view nonce,
                     std::string_view verdict) {
  const bool knows =
      same(verdict.substr(1), proof(secret, "server", greeting.substr(kGreeting.size()), nonce));
  return verdict.front() == '\1' && knows ? Greeted::kWelcome : Greeted::kRefused;
}

Greeted greet(const Socket& socket, std::string_view secret, Clock::time_point deadline) {
  std::string greeting(kServerBytes, '\0');
  receive_exactly(socket, greeting.data(), greeting.size(), deadline);
  const std::string nonce = random_bytes(kNonceBytes);
  const std::string mine = answer(secret, greeting, nonce);
  if (mine.empty()) return Greeted::kStranger;
  send_all(socket, mine, deadline);
  std::string verdict(kVerdictBytes, '\0');
  receive_exactly(socket, verdict.data(), verdict.size(), deadline);
  return read_verdict(secret, greeting, nonce, verdict);
}

}  // namespace tandem
