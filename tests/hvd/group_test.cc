// hvd over a process group of the program.
#include "support/errors.h"
#include "support/hvd_ranks.h"
#include "support/process_groups.h"
#include "tandem/tandem.h"

namespace tandem::hvd_group_test {
namespace {

using testing::error_of;
using testing::expect_group;

// Ranks 2 and 0 of three train; rank 1 goes on without them. Ranks are those in the group.
TEST(HvdGroup, ConsistsOfTheRanksOfTheGroup) {
  for (const char* backend : {"shm", "gloo"})
    expect_group({.size = 3, .backend = backend}, [](int rank) {
      const comm::ProcessGroup group = comm::new_group({2, 0});
      if (rank == 1) {
        EXPECT_NE(error_of<InvalidArgumentError>([&] {
                    hvd::init({.group = group});
                  }).find("[hvd.init] this process, global rank 1, is not part of group [2, 0]"),
                  std::string::npos);
        EXPECT_FALSE(hvd::is_initialized());
        return;
      }
      hvd::init({.group = group});
      EXPECT_EQ(hvd::size(), 2);
      EXPECT_EQ(hvd::rank(), rank == 2 ? 0 : 1);
      EXPECT_EQ(hvd::local_size(), 2);
      EXPECT_EQ(hvd::allreduce(full({5}, rank + 1.0), hvd::kSum).to_vector<float>()[4], 4.0f);
      Variable weight(constant(rank + 0.5));
      hvd::broadcast_variables({weight}, 0);
      EXPECT_EQ(weight.item(), 2.5);  // global rank 2 is the first
      // The group's own collectives go on beside.
      EXPECT_EQ(comm::all_reduce(constant(1.0), {.group = group}).item(), 2.0);
      hvd::shutdown();
      // A later one may have another group.
      hvd::init({.group = comm::ProcessGroup(group)});
      EXPECT_EQ(hvd::size(), 2);
      hvd::shutdown();
    });
}

TEST(HvdGroup, RefusesWhatTheGroupDecides) {
  expect_group({}, [](int) {
    const comm::ProcessGroup group = comm::new_group();
    EXPECT_EQ(
        error_of<InvalidArgumentError>([&] { hvd::init({.backend = "gloo", .group = group}); }),
        "[hvd.init] expected no backend with a group, which has 'shm'; got 'gloo'");
    EXPECT_EQ(error_of<InvalidArgumentError>(
                  [&] { hvd::init({.silence_limit = std::chrono::seconds(1), .group = group}); }),
              "[hvd.init] expected no silence_limit with a group, got 1000 ms");
    hvd::init();
    EXPECT_EQ(error_of<FailedPreconditionError>([&] { hvd::init({.group = group}); }),
              "[hvd.init] Horovod has been initialized without this group; call shutdown() first");
    hvd::init();  // no effect
    hvd::shutdown();
    const comm::ProcessGroup gone = comm::new_group();
    comm::destroy_process_group(gone);
    EXPECT_EQ(error_of<FailedPreconditionError>([&] { hvd::init({.group = gone}); }),
              "[hvd.init] the process group was destroyed (destroy_process_group)");
  });
}

}  // namespace
}  // namespace tandem::hvd_group_test
