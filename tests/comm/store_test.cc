// The contract of every kind of store, and details of FileStore.
#include "comm/store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "comm/host_identity.h"
#include "comm/rendezvous/file_store.h"
#include "comm/rendezvous/tcp_server.h"
#include "comm/rendezvous/tcp_store.h"
#include "comm/rendezvous/wire.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/processes.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem::store_test {
namespace {

using testing::any_error_of;
using testing::ChildProcess;
using testing::TemporaryDirectory;
using namespace std::chrono_literals;

Store::TimePoint in(std::chrono::milliseconds time) { return Clock::now() + time; }

class StoreKind {
 public:
  virtual ~StoreKind() = default;
  virtual std::unique_ptr<Store> another() = 0;  // a store with the same contents
};

class FileStoreKind final : public StoreKind {
 public:
  std::unique_ptr<Store> another() override { return std::make_unique<FileStore>(folder_ / "kv"); }

 private:
  TemporaryDirectory folder_;
};

class Tcp final : public StoreKind {
 public:
  std::unique_ptr<Store> another() override {
    return std::make_unique<TcpStore>(ServerAddress{{"127.0.0.1", server_.port()}, "secret"});
  }

 private:
  TcpServer server_{{.secret = "secret"}};
};

class EveryStore : public ::testing::TestWithParam<const char*> {
 protected:
  EveryStore() {
    const std::string kind = GetParam();
    if (kind == "file") kind_ = std::make_unique<FileStoreKind>();
    if (kind == "tcp") kind_ = std::make_unique<Tcp>();
    store_ = kind_->another();
  }
  std::unique_ptr<StoreKind> kind_;
  std::unique_ptr<Store> store_;
};

TEST_P(EveryStore, GivesBackWhatWasSetLast) {
  const std::string bytes("\0\xff a\nb", 6);
  store_->set("key", "first");
  store_->set("key", bytes);
  store_->set("", "the empty key");
  store_->set("empty", "");
  EXPECT_EQ(kind_->another()->get("key", in(0ms)), bytes);
  EXPECT_EQ(kind_->another()->get("", in(0ms)), "the empty key");
  EXPECT_EQ(kind_->another()->get("empty", in(0ms)), "");
  const std::string large(3'000'000, 'x');
  store_->set("large", large);
  EXPECT_EQ(kind_->another()->get("large", in(0ms)), large);
}

TEST_P(EveryStore, WaitsForAKeyAndNamesItAtTheDeadline) {
  EXPECT_EQ(any_error_of([&] { store_->get("a/key", in(30ms)); }),
            "DeadlineExceededError: [Store] 'a/key' was not set within the time limit");
  EXPECT_EQ(any_error_of([&] { store_->get("a/key", in(-1ms)); }),
            "DeadlineExceededError: [Store] 'a/key' was not set within the time limit");
  std::thread setter([&] {
    std::this_thread::sleep_for(50ms);
    kind_->another()->set("a/key", "there");
  });
  EXPECT_EQ(store_->get("a/key", in(testing::kPatience)), "there");
  setter.join();
}

TEST_P(EveryStore, IsUsedWhileAThreadWaits) {
  std::thread waiter([&] { EXPECT_EQ(store_->get("late", in(testing::kPatience)), "now"); });
  std::this_thread::sleep_for(30ms);
  store_->set("other", "x");
  EXPECT_EQ(store_->get("other", in(testing::kPatience)), "x");
  store_->set("late", "now");
  waiter.join();
}

TEST_P(EveryStore, AddsToNumbers) {
  EXPECT_EQ(store_->add("count", 3), 3);
  EXPECT_EQ(store_->add("count", -5), -2);
  EXPECT_EQ(store_->get("count", in(0ms)), "-2");
  store_->set("count", "40");
  EXPECT_EQ(store_->add("count", 2), 42);
  store_->set("text", "4x");
  EXPECT_EQ(any_error_of([&] { store_->add("text", 1); }),
            "InvalidArgumentError: [Store] add: 'text' holds no number");
  store_->set("big", "9223372036854775807");
  EXPECT_EQ(any_error_of([&] { store_->add("big", 1); }),
            "InvalidArgumentError: [Store] add: the sum at 'big' is too large");
  EXPECT_EQ(store_->get("big", in(0ms)), "9223372036854775807");
}

TEST_P(EveryStore, AnAddWakesWaiters) {
  std::thread waiter([&] { EXPECT_EQ(kind_->another()->get("n", in(testing::kPatience)), "1"); });
  std::this_thread::sleep_for(20ms);
  store_->add("n", 1);
  waiter.join();
}

TEST_P(EveryStore, RemovedKeysAreGone) {
  store_->set("key", "value");
  store_->remove("key");
  store_->remove("key");  // ignored
  EXPECT_NE(any_error_of([&] { store_->get("key", in(10ms)); }), "no error");
  EXPECT_EQ(store_->add("key", 1), 1);
}

TEST_P(EveryStore, AddsOfManyThreadsAreAllCounted) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      const auto mine = kind_->another();
      for (int k = 0; k < 25; ++k) mine->add("count", 1);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->add("count", 0), 100);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryStore, ::testing::Values("file", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(FileStore, IsSharedByProcessesThatAreKilledWhileTheyWrite) {
  const TemporaryDirectory folder;
  const std::string path = folder / "kv";
  for (int round = 0; round < 10; ++round) {
    ChildProcess writer([&] {
      FileStore store(path);
      while (true) store.add("sum", 1);
      return "";
    });
    std::this_thread::sleep_for(10ms);
    writer.kill(SIGKILL);
    writer.result();
    FileStore store(path);
    const std::int64_t before = store.add("sum", 0);
    EXPECT_EQ(store.add("sum", 1), before + 1);
  }
}

TEST(FileStore, CutsOffWhatACrashLeftUnfinished) {
  const TemporaryDirectory folder;
  const std::string path = folder / "kv";
  {
    FileStore store(path);
    store.set("key", "value");
    store.set("other", "more");
  }
  const std::string good = testing::read_file(path);
  // The third record is damaged, or truncated at any byte.
  FileStore(path).set("third", "third");
  const std::string longer = testing::read_file(path);
  for (std::size_t size = good.size(); size < longer.size(); ++size) {
    testing::write_file(path, longer.substr(0, size));
    FileStore store(path);
    EXPECT_EQ(store.get("other", in(0ms)), "more");
    EXPECT_NE(any_error_of([&] { store.get("third", in(0ms)); }), "no error") << size;
    store.set("new", "1");
    EXPECT_EQ(store.get("new", in(0ms)), "1");
    EXPECT_EQ(store.get("key", in(0ms)), "value");
  }
  std::string damaged = longer;
  damaged.back() ^= 1;
  testing::write_file(path, damaged);
  EXPECT_NE(any_error_of([&] { FileStore(path).get("third", in(0ms)); }), "no error");
  // Not even a complete header: a new file.
  testing::write_file(path, "tan");
  FileStore(path).set("key", "again");
  EXPECT_EQ(FileStore(path).get("key", in(0ms)), "again");
}

TEST(FileStore, LeavesFilesOfOtherKindsAlone) {
  const TemporaryDirectory folder;
  const std::string path = folder / "thesis.txt";
  testing::write_file(path, "years of work");
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  EXPECT_EQ(any_error_of([&] { FileStore store(path); }),
            "InvalidArgumentError: [FileStore] '" + path + "' is not a file store");
  EXPECT_EQ(testing::read_file(path), "years of work");
  EXPECT_EQ(any_error_of([&] { FileStore store(folder / "no/such/file"); }),
            "UnavailableError: [FileStore] '" + (folder / "no/such/file").string() +
                "': cannot open it: No such file or directory");
}

// Otherwise they could read the job's secret.
TEST(FileStore, TakesNoFileThatOtherUsersMayUse) {
  const TemporaryDirectory folder;
  const std::string path = folder / "job";
  testing::write_file(path, "");
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  EXPECT_EQ(any_error_of([&] { FileStore store(path); }),
            "FailedPreconditionError: [rendezvous] '" + path +
                "' has mode 644, so that other users may use it: name another file, or remove this "
                "one");
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  FileStore(path).set("key", "value");
  std::filesystem::create_symlink(path, folder / "link");
  EXPECT_EQ(any_error_of([&] { FileStore store(folder / "link"); }),
            "FailedPreconditionError: [FileStore] '" + (folder / "link").string() +
                "' is a symbolic link, expected a file");
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  EXPECT_EQ(any_error_of([&] { FileStore store(path); }),
            "FailedPreconditionError: [rendezvous] '" + path +
                "' belongs to user 65534, expected user 0, who runs this process: name another "
                "file, or remove this one");
}

TEST(FileStore, AFullDiskIsAnErrorAndLosesNothing) {
  const TemporaryDirectory folder;
  const std::string path = folder / "kv";
  FileStore(path).set("key", "value");
  ChildProcess child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {200, 200};
    setrlimit(RLIMIT_FSIZE, &limit);
    FileStore(path).set("large", std::string(1000, 'x'));
    return "written";
  });
  EXPECT_EQ(child.result(),
            "UnavailableError: [FileStore] '" + path + "': cannot write it: File too large");
  FileStore store(path);
  EXPECT_EQ(store.get("key", in(0ms)), "value");
  store.set("small", "1");
  EXPECT_EQ(store.get("small", in(0ms)), "1");
}

TEST(FileStore, HasOneOwnerAtATime) {
  const TemporaryDirectory folder;
  const std::string path = folder / "kv";
  FileStore(path).set("left", "over");
  ChildProcess owner([&] {
    FileStore store(path);
    store.own();
    store.set("mine", "1");
    pause();
    return "";
  });
  FileStore store(path);
  EXPECT_EQ(store.get("mine", in(testing::kPatience)), "1");
  EXPECT_TRUE(store.is_owned());
  EXPECT_NE(any_error_of([&] { store.get("left", in(0ms)); }), "no error");
  EXPECT_EQ(any_error_of([&] { store.own(); }), "AlreadyExistsError: [FileStore] '" + path +
                                                    "' belongs to another job, which is running");
  owner.kill(SIGKILL);
  owner.result();
  EXPECT_FALSE(store.is_owned());
  store.own();
  EXPECT_NE(any_error_of([&] { store.get("mine", in(0ms)); }), "no error");
}

TEST(TcpStore, RefusesWhatIsTooLarge) {
  const TcpServer server({.secret = "s"});
  TcpStore store({{"127.0.0.1", server.port()}, "s"});
  EXPECT_EQ(any_error_of([&] { store.set(std::string(kMaxKeyBytes + 1, 'k'), ""); }).substr(0, 52),
            "InvalidArgumentError: [Store] expected a key of at m");
  EXPECT_EQ(
      any_error_of([&] { store.set("k", std::string(kMaxValueBytes + 1, 'v')); }).substr(0, 52),
      "InvalidArgumentError: [Store] expected a key of at m");
  const std::string most(kMaxValueBytes, 'v');
  const std::string full = any_error_of([&] {
    for (int i = 0; i < 20; ++i) store.set(std::to_string(i), most);
  });
  EXPECT_EQ(full,
            "ResourceExhaustedError: [Store] '15' with 16777216 bytes: a store holds "
            "268435456 bytes at most");
  EXPECT_EQ(store.get("3", in(testing::kPatience)), most);
}

TEST(TcpStore, ReportsThatItsServerIsGone) {
  auto server = std::make_unique<TcpServer>(TcpServerOptions{.secret = "s"});
  TcpStore store({{"127.0.0.1", server->port()}, "s"});
  store.set("a", "b");
  server.reset();
  EXPECT_EQ(any_error_of([&] { store.set("a", "c"); }).substr(0, 17), "UnavailableError:");
  EXPECT_EQ(any_error_of([&] { store.get("a", in(testing::kPatience)); }).substr(0, 17),
            "UnavailableError:");
}

TEST(TcpStore, NamesItsProcessIfOtherCodeHasClosedItsSockets) {
  const TcpServer server({.secret = "s"});
  ChildProcess child([port = server.port()] {
    TcpStore store({{"127.0.0.1", port}, "s"});
    store.set("a", "b");
    struct stat status = {};
    for (int descriptor = 3; descriptor < 1024; ++descriptor)
      if (fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode)) close(descriptor);
    return any_error_of([&] { store.set("a", "c"); });
  });
  EXPECT_EQ(child.result(),
            fmt::format("UnavailableError: [rendezvous] process {} on {} has lost a connection to "
                        "the job's server: other code of the process has closed descriptors that "
                        "it did not open",
                        child.id(), host_name()));
}

}  // namespace
}  // namespace tandem::store_test
