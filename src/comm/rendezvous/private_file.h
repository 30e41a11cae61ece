// Files and folders that keep a secret.
#pragma once

#include <string>
#include <string_view>

#include "comm/rendezvous/socket.h"

namespace tandem {

// Throws FailedPreconditionError, with `advice`, unless the open file or folder belongs to this
// user and neither its group nor others may use it.
void require_private(const Socket& file, const std::string& path, std::string_view advice);

}  // namespace tandem
