// The secret that a process needs to join a job: the job's token, or a secret that only this user's
// processes on this host can read.
#pragma once

#include <string>

namespace tandem {

// Random bytes, created at the first use in the file `secret` of /tmp/tandem-UID, a directory with
// access for the user only. The path does not depend on environment variables, since launchers set
// them differently per rank. Throws FailedPreconditionError if the directory or file belongs to
// another user or is accessible to others, UnavailableError if it cannot be created.
std::string local_secret();

// The same in another directory.
std::string local_secret_in(const std::string& folder);

// The secret of a job whose server is at `host`: the token if there is one; otherwise
// local_secret(), which protects a loopback server from other users; otherwise empty, since a
// server elsewhere requires a token. Throws NotFoundError if there is no token and the host is
// unknown.
std::string job_secret(const std::string& host, const std::string& token);
// Throws FailedPreconditionError if `address` is reachable from other hosts and there is no token.
// `who` is the listener in the message.
void require_token(const std::string& address, const std::string& token, const char* who);

}  // namespace tandem
