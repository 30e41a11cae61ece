#include "comm/process/group_name.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "core/bytes.h"
#include "core/status.h"

namespace tandem {

std::string subgroup_name(std::string_view parent, std::span<const int> ranks, int count) {
  std::string text = fmt::format("{}\n{}\n", parent, count);
  ByteWriter out(text);
  for (const int rank : ranks) out.add(rank);
  std::array<unsigned char, 32> digest;
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1)
    fail<UnavailableError>("[split] OpenSSL computes no SHA-256, which names groups");
  std::string name;
  for (std::size_t i = 0; i < 16; ++i) name += fmt::format("{:02x}", digest[i]);
  return name;
}

}  // namespace tandem
