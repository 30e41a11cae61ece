// Backends over libraries that a machine may not have: each a shared module of its own beside
// libtandem, loaded when it is first used.
#pragma once

namespace tandem {

struct Module {
  const char* backend;  // "gloo"; the target that builds it is tandem_gloo
  const char* file;     // "libtandem_gloo.so"
  const char* factory;  // a function of C's linkage in it
  const char* library;  // Debian's package to build the module with, "libgloo-dev"
  const char* runtime;  // Debian's package to run it with, "libgloo0"
};

// The module's factory. Loads the module at the first call, for as long as the process lives.
// Throws UnavailableError when the module or its library is not there, naming what is missing: the
// target to build where the build was configured with the module, else the package to install.
void* load_factory(const Module& module);
bool can_load(const Module& module);

}  // namespace tandem
