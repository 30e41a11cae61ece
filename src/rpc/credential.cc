#include "rpc/credential.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "core/status.h"

namespace tandem::rpc {

std::string credential_of(std::string_view token) {
  if (token.empty()) fail<InvalidArgumentError>("[rpc] expected the job's token, got an empty one");
  constexpr std::string_view kPurpose = "tandem remote procedure call 1";
  std::string result(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  const auto* done = HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
                          reinterpret_cast<const unsigned char*>(kPurpose.data()), kPurpose.size(),
                          reinterpret_cast<unsigned char*>(result.data()), &size);
  TANDEM_ASSERT(done != nullptr);
  result.resize(size);
  return result;
}

bool same_credential(std::string_view expected, std::string_view presented) {
  return expected.size() == presented.size() &&
         CRYPTO_memcmp(expected.data(), presented.data(), expected.size()) == 0;
}

}  // namespace tandem::rpc
