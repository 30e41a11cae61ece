#include "comm/gloo/gloo_backend.h"

#include "core/module.h"

namespace tandem {

bool has_gloo() { return can_load(kGlooModule); }

std::unique_ptr<Backend> make_gloo_backend(GroupOptions options, GlooAddress where) {
  options.check_rank("gloo");
  const auto make =
      load<Backend*(GroupOptions*, GlooAddress*)>(kGlooModule, "tandem_make_gloo_backend");
  return std::unique_ptr<Backend>(make(&options, &where));
}

}  // namespace tandem
