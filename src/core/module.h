// Backends whose libraries may be missing on a host. Each is a shared module beside libtandem that
// is loaded at its first use.
#pragma once

namespace tandem {

struct Module {
  const char* backend;  // "gloo"; the target that builds it is tandem_gloo
  const char* file;     // "libtandem_gloo.so"
  const char* factory;  // a function with C linkage in it
  const char* library;  // Debian package needed to build the module, "libgloo-dev"
  const char* runtime;  // Debian package needed to run it, "libgloo0"
};

// Returns the module's factory. The first call loads the module, which stays loaded. Throws
// UnavailableError if the module or its library is missing; the message names the target to build,
// if the build was configured with the module, or the package to install.
void* load_factory(const Module& module);
bool can_load(const Module& module);

}  // namespace tandem
