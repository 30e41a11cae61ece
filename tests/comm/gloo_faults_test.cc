// Failures that are specific to gloo; process_faults_test.cc has the others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "comm/fault_job.h"
#include "comm/rendezvous/socket.h"
#include "core/status.h"
#include "support/errors.h"
#include "support/expects.h"

namespace tandem::gloo_faults_test {
namespace {

using std::chrono::milliseconds;
using testing::error_of;
using testing::expect_parts;
using testing::floats;
using testing::run_ranks;

using Job = testing::FaultJob;

class GlooFaults : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_REQUIRE(has_gloo(), "gloo"); }
};

TEST_F(GlooFaults, ARankNeverStarts) {
  const Job job{.backend = "gloo", .ranks = 4, .join_limit = milliseconds(3000)};
  const ExitCodes codes = run_processes(3, [&](int process) {
    const int rank = process == 2 ? 3 : process;
    const std::string text = error_of<DeadlineExceededError>([&] { job.join(rank); });
    // The rank that times out last finds that the others have aborted.
    expect_parts(text, {"[gloo] rank", " 2", "did not join group 'test' within 3000 ms; "});
  });
  EXPECT_EQ(codes, ExitCodes(3, 0));
}

// When a peer leaves first, Gloo's thread closes the connection, and may still use it when this
// rank's group is destroyed.
TEST_F(GlooFaults, GroupsAreDestroyedWhilePeersLeave) {
  Job job{.backend = "gloo", .ranks = 8, .address = "127.0.0.1"};
  const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
    const ThreadBudget one(1);
    for (int group = 0; group < 100; ++group) {
      job.name = std::to_string(group);
      testing::all_reduce(*job.join(rank), 10);
    }
  });
  EXPECT_EQ(codes, ExitCodes(8, 0));
}

// The membership reports a death later than the connection, but knows which rank failed first.
TEST_F(GlooFaults, TheMembershipDecidesWhoFailedFirst) {
  const auto membership = std::make_shared<testing::TestMembership>();
  const testing::Arrivals reported;
  run_ranks({.backend = "gloo", .membership = membership}, {1}, [&](Communicator& communicator) {
    testing::all_reduce(communicator, 10);
    if (communicator.rank() == 1) kill(getpid(), SIGKILL);
    if (communicator.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(200));
      membership->report("the first to die");
      return reported.wait_for(1);
    }
    EXPECT_EQ(error_of<UnavailableError>([&] { testing::all_reduce(communicator, 10); }),
              "rank 7 on host far went away");
    reported.arrive();
  });
}

// Another thread calls missing().
TEST_F(GlooFaults, NamesLateRanksWithoutAnotherThread) {
  const testing::Arrivals reported;
  run_ranks({.backend = "gloo", .ranks = 4, .time_limit = milliseconds(2000)}, {},
            [&](Communicator& communicator) {
              testing::all_reduce(communicator, 10);
              if (communicator.rank() != 0) return reported.wait_for(1);
              const Buffer buffer = floats(10);
              const auto work = communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
              std::size_t pages = 0;
              std::ifstream("/proc/self/statm") >> pages;
              const rlim_t limit =
                  pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + (1 << 20);
              const rlimit both = {limit, limit};
              ASSERT_EQ(setrlimit(RLIMIT_AS, &both), 0);
              expect_parts(error_of<DeadlineExceededError>([&] { work->wait(); }),
                           {"[all_reduce] rank", " 1", "did not reach collective 1 "});
              reported.arrive();
            });
}

TEST_F(GlooFaults, AnAddressOrInterfaceThatIsNotHere) {
  expect_parts(error_of<InvalidArgumentError>(
                   [] { Job{.backend = "gloo", .ranks = 1, .address = "192.0.2.1"}.join(0); }),
               {"[gloo] cannot listen on address '192.0.2.1'"});
  setenv("GLOO_SOCKET_IFNAME", "no-such-interface", 1);
  expect_parts(error_of<InvalidArgumentError>([] { Job{.backend = "gloo", .ranks = 1}.join(0); }),
               {"[gloo] cannot listen on interface 'no-such-interface'"});
}

TEST_F(GlooFaults, TheInterfaceOfTheEnvironmentIsUsed) {
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  run_ranks({.backend = "gloo"}, {},
            [](Communicator& communicator) { testing::all_reduce(communicator, 1000); });
}

// A rank may leave after its last collective while another rank still waits for a third one: here
// rank 0's announcement reaches rank 2 only after a long message.
TEST_F(GlooFaults, ARankMayLeaveWhileOthersCompleteItsLastCollective) {
  constexpr std::int64_t kCount = std::int64_t{1} << 27;
  run_ranks({.backend = "gloo"}, {}, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    const Buffer message = floats(rank == 1 ? 1 : kCount);
    std::shared_ptr<CollectiveWork> transfer;
    if (rank == 0) transfer = communicator.send(message, 2);
    if (rank == 2) transfer = communicator.recv(message, 0);
    communicator.barrier()->wait();
    if (transfer) transfer->wait();
  });
}

// Memory in which the first thread that writes to it waits until it is opened.
class ClosedMemory {
 public:
  explicit ClosedMemory(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        faults_(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC))) {
    uffdio_api api = {.api = UFFD_API};
    uffdio_register region = {.range = range(), .mode = UFFDIO_REGISTER_MODE_MISSING};
    closed_ = faults_.is_open() && ioctl(faults_.descriptor(), UFFDIO_API, &api) == 0 &&
              ioctl(faults_.descriptor(), UFFDIO_REGISTER, &region) == 0;
  }
  ~ClosedMemory() { munmap(data_, bytes_); }

  // False if the system does not allow it.
  bool is_closed() const { return closed_; }
  void wait_for_writer() const {
    uffd_msg fault;
    EXPECT_EQ(read(faults_.descriptor(), &fault, sizeof(fault)), ssize_t{sizeof(fault)});
  }
  void open() const {
    uffdio_range all = range();
    EXPECT_EQ(ioctl(faults_.descriptor(), UFFDIO_UNREGISTER, &all), 0);
  }
  float* data() const { return static_cast<float*>(data_); }

 private:
  uffdio_range range() const { return {reinterpret_cast<std::uintptr_t>(data_), bytes_}; }

  std::size_t bytes_;
  void* data_;
  Socket faults_;
  bool closed_ = false;
};

// Rank 1 has not read its last message, and its host has not room for all of it.
TEST_F(GlooFaults, ARankMayLeaveBeforeItsLastMessageIsRead) {
  constexpr std::int64_t kCount = std::int64_t{1} << 18;
  const testing::Arrivals left;
  TANDEM_REQUIRE(ClosedMemory(1 << 20).is_closed(), "userfaultfd");
  run_ranks({.backend = "gloo", .ranks = 2}, {}, [&](Communicator& communicator) {
    if (communicator.rank() == 0) {
      communicator.send(floats(kCount, 3.0f), 1)->wait();
      return left.arrive();
    }
    const ClosedMemory memory(kCount * sizeof(float));
    std::jthread writer([&] {
      memory.wait_for_writer();
      left.wait_for(1);
      std::this_thread::sleep_for(milliseconds(300));  // it would be gone by then
      memory.open();
    });
    communicator.recv({memory.data(), kCount, float32}, 0)->wait();
    writer.join();
    EXPECT_EQ(std::vector<float>(memory.data(), memory.data() + kCount),
              std::vector<float>(kCount, 3.0f));
  });
}

// Writing to a connection that a peer has closed raises an error and not a signal, whatever the
// program's SIGPIPE handler.
TEST_F(GlooFaults, DoesNotChangeTheSigpipeHandler) {
  signal(SIGPIPE, SIG_DFL);
  run_ranks({.backend = "gloo"}, {1}, [](Communicator& communicator) {
    const Buffer buffer = floats(4'000'000);
    if (communicator.rank() == 1) kill(getpid(), SIGKILL);
    std::this_thread::sleep_for(milliseconds(100));
    error_of<AbortedError>([&] { communicator.all_reduce({&buffer, 1}, ReduceOp::kSum)->wait(); });
    EXPECT_EQ(signal(SIGPIPE, SIG_DFL), SIG_DFL);
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    EXPECT_EQ(sigismember(&blocked, SIGPIPE), 0);
  });
}

// --- other code of the process closes what it has not opened ---

void close_sockets() {
  struct stat status = {};
  for (int descriptor = 3; descriptor < 256; ++descriptor)
    if (fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode)) close(descriptor);
}

void close_all() {
  for (int descriptor = 3; descriptor < 256; ++descriptor) close(descriptor);
}

void replace_sockets() {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  struct stat status = {};
  for (int descriptor = 3; descriptor < 256; ++descriptor)
    if (fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode)) dup2(null, descriptor);
}

struct Loss {
  const char* name;
  void (*happen)();

  friend void PrintTo(const Loss& loss, std::ostream* out) { *out << loss.name; }
};

class GlooDescriptors : public GlooFaults, public ::testing::WithParamInterface<Loss> {
 protected:
  static void expect_own_loss(const std::function<void()>& call) {
    expect_parts(error_of<UnavailableError>(call),
                 {"[gloo] rank 1 has lost its connections in group 'test': other code of its ",
                  "has closed descriptors"});
  }
  // Rank 1 has published it, or its connections broke before.
  static void expect_loss_of_rank_1(const std::function<void()>& call) {
    const std::string text = testing::any_error_of(call);
    EXPECT_NE(text.find("rank 1 "), std::string::npos) << text;
  }
};

TEST_P(GlooDescriptors, OfARankThatAreLostAreItsError) {
  run_ranks({.backend = "gloo"}, {}, [](Communicator& communicator) {
    testing::all_reduce(communicator, 10);
    if (communicator.rank() == 1) GetParam().happen();
    const auto call = [&] { testing::all_reduce(communicator, 300'000); };
    communicator.rank() == 1 ? expect_own_loss(call) : expect_loss_of_rank_1(call);
  });
}

TEST_P(GlooDescriptors, OfARankThatAreLostWhileItWaitsAreItsError) {
  const testing::Arrivals reported;
  run_ranks({.backend = "gloo"}, {}, [&](Communicator& communicator) {
    testing::all_reduce(communicator, 10);
    const auto call = [&] { testing::all_reduce(communicator, 10); };
    if (communicator.rank() != 1) {
      reported.wait_for(1);
      return expect_loss_of_rank_1([&] {
        call();  // completes if the others have the numbers of rank 1
        call();
      });
    }
    std::thread other([] {
      std::this_thread::sleep_for(milliseconds(100));
      GetParam().happen();
    });
    expect_own_loss(call);
    other.join();
    reported.arrive();
  });
}

TEST_P(GlooDescriptors, OfARankThatAreLostDoNotEndItWhenItLeaves) {
  run_ranks({.backend = "gloo"}, {}, [](Communicator& communicator) {
    testing::all_reduce(communicator, 10);
    if (communicator.rank() == 1) GetParam().happen();
  });
}

INSTANTIATE_TEST_SUITE_P(Losses, GlooDescriptors,
                         ::testing::Values(Loss{"Sockets", close_sockets}, Loss{"All", close_all},
                                           Loss{"Replaced", replace_sockets}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tandem::gloo_faults_test
