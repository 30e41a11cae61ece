// A secret that the processes of a user on this machine share, and nobody else has.
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

}  // namespace tandem
