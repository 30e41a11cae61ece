// Files and directories with secret contents.
#pragma once

#include <string>
#include <string_view>

#include "comm/rendezvous/socket.h"

namespace tandem {

// Throws FailedPreconditionError, with `advice`, unless the open file or directory belongs to this
// user and is inaccessible to group and others.
void require_private(const Socket& file, const std::string& path, std::string_view advice);

}  // namespace tandem
