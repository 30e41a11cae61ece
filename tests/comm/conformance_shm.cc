// The conformance suite between processes that share memory.
#include "comm/conformance_processes.h"
#include "comm/shm/shm_backend.h"

namespace tandem::conformance_shm {
namespace {

INSTANTIATE_TEST_SUITE_P(Shm, Conformance,
                         ::testing::Combine(::testing::Values(TestBackend{
                                                .name = "shm",
                                                .run = in_processes(make_shm_backend)}),
                                            ::testing::Range(1, 8)),
                         name_of_ranks);

}  // namespace
}  // namespace tandem::conformance_shm
