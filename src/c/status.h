// How functions of the C interface end.
#pragma once

#include <functional>

#include <tandem_c.h>

namespace tandem::c {

// Calls `body` without the host's floating-point traps, and returns its status. No exception
// leaves, and the host's floating-point environment and OpenMP settings are as before.
tandem_status guarded(const std::function<void()>& body) noexcept;

}  // namespace tandem::c
