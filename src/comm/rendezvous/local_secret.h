// What proves that a process may join a job: its token, or a secret that the processes of a user on
// this machine share, and nobody else has.
#pragma once

#include <string>

namespace tandem {

// Made at its first use: random bytes in the file `secret` in /tmp/tandem-UID, a folder that the
// user alone may enter. The path does not depend on the environment, which launchers change from
// rank to rank. Throws FailedPreconditionError when the folder or the file belongs to another user
// or is open to others, UnavailableError when it cannot be made.
std::string local_secret();

// The same in another folder.
std::string local_secret_in(const std::string& folder);

// The secret of a job whose server is at `host`: the token, or without one on the loopback, where
// any user could connect, local_secret(). A server elsewhere does not listen without a token.
std::string job_secret(const std::string& host, const std::string& token);
// Throws FailedPreconditionError, naming `who` would listen there, for an address that other
// machines can reach, where there is no token.
void require_token(const std::string& address, const std::string& token, const char* who);

}  // namespace tandem
