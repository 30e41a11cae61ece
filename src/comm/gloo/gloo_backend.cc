#include "comm/gloo/gloo_backend.h"

#include "core/module.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr Module kGlooModule = {.backend = "gloo",
                                .file = "libtandem_gloo.so",
                                .factory = "tandem_make_gloo_backend",
                                .library = "libgloo-dev",
                                .runtime = "libgloo0"};

}  // namespace

bool has_gloo() { return can_load(kGlooModule); }

std::unique_ptr<Backend> make_gloo_backend(GlooOptions options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    fail<InvalidArgumentError>("[gloo] expected a rank of 0 to {}, got {}", options.size - 1,
                               options.rank);
  using Factory = Backend* (*)(GlooOptions*);
  const auto factory = reinterpret_cast<Factory>(load_factory(kGlooModule));
  return std::unique_ptr<Backend>(factory(&options));
}

}  // namespace tandem
