#include "tandem/profiler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/profile.h"
#include "support/expects.h"
#include "support/trace.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

using testing::read_trace;
using testing::select;
using testing::TemporaryDirectory;

TEST(Profiler, ScopesNestInTheRowsOfTheirThreads) {
  const TemporaryDirectory directory;
  const auto file = directory / "trace.json";
  { const profiler::Scope before("before"); }
  profiler::start({.file = file});
  EXPECT_TRUE(profiler::running());
  {
    const profiler::Scope outer("outer \"quoted\"");
    const profiler::Scope inner("inner");
  }
  std::thread([] { const profiler::Scope scope("other"); }).join();
  const profiler::Summary summary = profiler::stop();
  EXPECT_FALSE(profiler::running());
  { const profiler::Scope after("after"); }
  EXPECT_EQ(summary.events, 3);
  EXPECT_EQ(summary.dropped, 0);

  const auto events = read_trace(file);
  ASSERT_EQ(events.size(), 3u);
  const auto outer = select(events, "outer \"quoted\"", "host", "host");
  const auto inner = select(events, "inner", "host", "host");
  ASSERT_EQ(outer.size(), 1u);
  ASSERT_EQ(inner.size(), 1u);
  EXPECT_LE(outer[0].begin, inner[0].begin);
  EXPECT_LE(inner[0].end, outer[0].end);
  EXPECT_GE(outer[0].begin, 0.0);
  EXPECT_EQ(select(events, "other", "host", "host (2)").size(), 1u);
}

TEST(Profiler, EventsTellWhatTheyAreGiven) {
  const TemporaryDirectory directory;
  static const std::string device = "/device:GPU:7";
  profiler::start({.file = directory / "t"});
  profile::record({.name = "MatMul",
                   .lane = profile::Lane::kKernels,
                   .device = &device,
                   .replica = 3,
                   .begin = profile::now(),
                   .end = profile::now() + 5000,
                   .node = "dense/MatMul",
                   .shapes = "(2, 3)",
                   .bytes = 12});
  profiler::stop();
  const auto events = read_trace(directory / "t");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].process, device);
  EXPECT_EQ(events[0].row, "stream, replica 3");
  EXPECT_EQ(events[0].category, "kernel");
  EXPECT_EQ(events[0].args,
            nlohmann::json(
                {{"node", "dense/MatMul"}, {"shapes", "(2, 3)"}, {"bytes", 12}, {"replica", 3}}));
}

TEST(Profiler, CountsWhatThereIsNoRoomFor) {
  const TemporaryDirectory directory;
  profiler::start({.file = directory / "t", .max_events = 1000});
  for (int i = 0; i < 1500; ++i) const profiler::Scope scope("work");
  const profiler::Summary summary = profiler::stop();
  EXPECT_EQ(summary.events, 1000);
  EXPECT_EQ(summary.dropped, 500);
  const auto trace = nlohmann::json::parse(testing::read_file(directory / "t"));
  EXPECT_EQ(trace["otherData"]["dropped_events"], 500);
  EXPECT_EQ(select(read_trace(directory / "t"), "work").size(), 1000u);
  // The next profile has room again.
  profiler::start({.file = directory / "t"});
  { const profiler::Scope scope("later"); }
  EXPECT_EQ(profiler::stop().events, 1);
  EXPECT_EQ(select(read_trace(directory / "t"), "later").size(), 1u);
}

TEST(Profiler, StopsWhileOthersWrite) {
  const TemporaryDirectory directory;
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!done) const profiler::Scope scope("busy");
    });
  for (int round = 0; round < 10; ++round) {
    const auto file = directory / std::to_string(round);
    profiler::start({.file = file, .max_events = 5000});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const profiler::Summary summary = profiler::stop();
    const auto trace = nlohmann::json::parse(testing::read_file(file));
    std::int64_t events = 0;
    for (const auto& event : trace["traceEvents"]) events += event["ph"] == "X";
    EXPECT_EQ(events, summary.events);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
}

template <class Error, class Call>
void expect_error(const Call& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Profiler, RefusesWhatCannotBe) {
  const TemporaryDirectory directory;
  expect_error<NotFoundError>([] { profiler::start({.file = "/no/such/directory/t"}); },
                              "'/no/such/directory/t'");
  expect_error<NotFoundError>([&] { profiler::start({.file = directory.path()}); }, "directory");
  expect_error<InvalidArgumentError>(
      [&] { profiler::start({.file = directory / "t", .max_events = 0}); }, "max_events");
  expect_error<FailedPreconditionError>([] { profiler::stop(); }, "without a profile");
  profiler::start({.file = directory / "t"});
  expect_error<FailedPreconditionError>([&] { profiler::start({.file = directory / "u"}); },
                                        "runs");
  profiler::stop();
  expect_error<FailedPreconditionError>([] { profiler::stop(); }, "without a profile");
}

TEST(Profiler, TellsWhenTheFileCannotBeWritten) {
  TANDEM_REQUIRE(std::filesystem::exists("/dev/full"), "full");
  profiler::start({.file = "/dev/full"});
  { const profiler::Scope scope("work"); }
  expect_error<ResourceExhaustedError>([] { profiler::stop(); }, "/dev/full");
  EXPECT_FALSE(profiler::running());
}

}  // namespace
}  // namespace tandem
