// The conformance suite between processes that are connected by TCP.
#include "comm/conformance_processes.h"
#include "comm/gloo/gloo_backend.h"

namespace tandem::conformance_gloo {
namespace {

INSTANTIATE_TEST_SUITE_P(Gloo, Conformance,
                         ::testing::Combine(::testing::Values(TestBackend{
                                                .name = "gloo",
                                                .run = in_processes([](GroupOptions options) {
                                                  return make_gloo_backend(std::move(options));
                                                }),
                                                .available = has_gloo}),
                                            ::testing::Range(1, 8)),
                         name_of_ranks);

}  // namespace
}  // namespace tandem::conformance_gloo
