#include "comm/gloo/gloo_backend.h"

#include "core/module.h"
#include "core/status.h"

namespace tandem {

bool has_gloo() { return can_load(kGlooModule); }

std::unique_ptr<Backend> make_gloo_backend(GlooOptions options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    fail<InvalidArgumentError>("[gloo] expected a rank of 0 to {}, got {}", options.size - 1,
                               options.rank);
  const auto make = load<Backend*(GlooOptions*)>(kGlooModule, "tandem_make_gloo_backend");
  return std::unique_ptr<Backend>(make(&options));
}

}  // namespace tandem
