#include "core/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/small_disk.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem::atomic_file_test {
namespace {

using testing::Arrivals;
using testing::read_file;
using testing::SmallDisk;
using testing::TemporaryDirectory;
using testing::write_file;

void save(const std::filesystem::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

// A process that has started to write `path` and does not end by itself.
class Writer {
 public:
  explicit Writer(const std::filesystem::path& path) {
    const Arrivals begun;
    process_ = fork();
    if (process_ == 0) {
      AtomicFile file(path);
      file.write("half", 4);
      begun.arrive();
      while (true) pause();
    }
    begun.wait_for(1);
  }
  ~Writer() { end(); }
  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  pid_t process_ = -1;
};

TEST(AtomicFile, IsWholeOrNotThere) {
  const TemporaryDirectory directory;
  {
    AtomicFile file(directory / "x");
    file.write("new", 3);
  }
  EXPECT_EQ(directory.count_files(), 0u);
  save(directory / "x", "old");
  save(directory / "x", "new");
  EXPECT_EQ(read_file(directory / "x"), "new");
  EXPECT_EQ(directory.count_files(), 1u);
}

TEST(AtomicFile, SweepsWhatKilledWritersLeft) {
  const TemporaryDirectory directory;
  { const Writer a(directory / "x"), b(directory / "x"), c(directory / "x"); }
  EXPECT_EQ(directory.count_files(), 3u);
  remove_stale_files(directory / "y");
  EXPECT_EQ(directory.count_files(), 3u) << "they are another file's";
  save(directory / "x", "whole");
  EXPECT_EQ(directory.count_files(), 1u);
  Writer(directory / "x").end();
  remove_stale_files(directory / "x");
  EXPECT_EQ(directory.count_files(), 1u);
  EXPECT_EQ(read_file(directory / "x"), "whole");
}

TEST(AtomicFile, LeavesLivingWritersAlone) {
  const TemporaryDirectory directory;
  const Writer living(directory / "x");
  AtomicFile mine(directory / "x");
  EXPECT_EQ(directory.count_files(), 2u);
  save(directory / "x", "whole");
  remove_stale_files(directory / "x");
  EXPECT_EQ(directory.count_files(), 3u);
  mine.write("mine", 4);
  mine.commit();
  EXPECT_EQ(read_file(directory / "x"), "mine");
}

// Whether a writer on another host that shares the directory is running is unknown.
TEST(AtomicFile, LeavesFilesOfOtherHostsAlone) {
  const TemporaryDirectory directory;
  write_file(directory / ".x.0123abcd-1-0.tmp", "of another host");
  save(directory / "x", "whole");
  EXPECT_EQ(directory.count_files(), 2u);
}

template <class Error>
void expect_error(const std::function<void()>& call, const std::string& text) {
  EXPECT_EQ(testing::error_of<Error>([&] { call(); }), text);
}

TEST(AtomicFile, SaysWhyItCannotBeWritten) {
  const TemporaryDirectory directory;
  const std::string missing = (directory / "no/such/x").string();
  expect_error<NotFoundError>([&] { save(missing, ""); },
                              "[save] cannot create '" + missing + "': No such file or directory");
  expect_error<FailedPreconditionError>(
      [&] { AtomicFile(directory.path(), "report"); },
      "[report] cannot write '" + directory.path().string() + "': it is a directory");
}

TEST(AtomicFile, ADeviceIsWrittenToAndStays) {
  save("/dev/null", "text");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  TANDEM_REQUIRE(std::filesystem::exists("/dev/full"), "full");
  expect_error<ResourceExhaustedError>([] { save("/dev/full", "text"); },
                                       "[save] cannot write '/dev/full': No space left on device");
}

TEST(AtomicFile, AReadOnlyDiskIsAFailedPrecondition) {
  const SmallDisk disk(1 << 20);
  TANDEM_REQUIRE(disk.mounted(), "mount");
  disk.make_read_only();
  const std::string path = (disk / "x").string();
  expect_error<FailedPreconditionError>(
      [&] { save(path, "text"); }, "[save] cannot create '" + path + "': Read-only file system");
}

}  // namespace
}  // namespace tandem::atomic_file_test
