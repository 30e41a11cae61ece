// The proof that a task belongs to a job.
#pragma once

#include <string>
#include <string_view>

namespace tandem::rpc {

// 32 bytes that only those who know the job's token can compute. Calls carry them in place of the
// token, so that a listener on a connection without TLS does not learn the token, which also admits
// to the job's rendezvous. Throws InvalidArgumentError for an empty token.
std::string credential_of(std::string_view token);
// Compares in a time that does not depend on `presented`, except on its size.
bool same_credential(std::string_view expected, std::string_view presented);

}  // namespace tandem::rpc
