#include "tandem/profiler.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <atomic>
#include <thread>

#include "core/profile.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/trace.h"
#include "tandem/errors.h"

namespace tandem::profiler_test {
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
    std::thread([] { const profiler::Scope scope("other"); }).join();
  }
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

// Prefetching starts a new thread in each epoch.
TEST(Profiler, ThreadsOneAfterTheOtherShareTheirRow) {
  const TemporaryDirectory directory;
  profiler::start({.file = directory / "t"});
  for (int epoch = 0; epoch < 12; ++epoch)
    std::thread([] {
      const profiler::Scope scope("prefetch");
      std::thread([] { const profiler::Scope within("beside"); }).join();
    }).join();
  profiler::stop();
  const auto events = read_trace(directory / "t");
  EXPECT_EQ(select(events, "prefetch", "host", "host").size(), 12u);
  EXPECT_EQ(select(events, "beside", "host", "host (2)").size(), 12u);
}

// The file is either complete or does not exist.
TEST(Profiler, WritesTheFileWhenItEnds) {
  const TemporaryDirectory directory;
  profiler::start({.file = directory / "t"});
  EXPECT_EQ(directory.count_files(), 0u);
  profiler::stop();
  EXPECT_EQ(directory.count_files(), 1u);
  EXPECT_EQ(read_trace(directory / "t").size(), 0u);
}

// An event on a thread that ends after it.
void record_on_a_thread(std::vector<profile::Event> events) {
  std::thread([&] {
    for (profile::Event& event : events) profile::record(std::move(event));
  }).join();
}

TEST(Profiler, AddsUpTheEventsOfANameAndDevice) {
  static const std::string cpu = "/device:CPU:0", gpu = "/device:GPU:0";
  const auto event = [](const char* name, const std::string* device, std::int64_t begin,
                        std::int64_t end) {
    profile::Event made{.name = name};
    made.device = device;
    made.begin = begin * 1'000'000;
    made.end = end * 1'000'000;
    return made;
  };
  profiler::start({});
  record_on_a_thread({event("inner", nullptr, 2, 5), event("MatMul", &cpu, 2, 5),
                      event("inner", nullptr, 6, 7), event("step", nullptr, 0, 10)});
  record_on_a_thread({event("MatMul", &cpu, 3, 4), event("Add", &gpu, 0, 1)});
  record_on_a_thread({event("Relu", &gpu, 0, 1), event("Relu", &gpu, 1, 3)});
  const profiler::Summary summary = profiler::stop();
  EXPECT_EQ(summary.events, 8);
  struct Expected {
    std::string name, device;
    std::int64_t calls;
    double ms, self_ms, share;
  };
  const std::vector<Expected> expected = {{"step", "", 1, 10, 6, 0.6},
                                          {"inner", "", 2, 4, 4, 0.4},
                                          {"MatMul", cpu, 2, 4, 4, 1.0},
                                          {"Relu", gpu, 2, 3, 3, 0.75},
                                          {"Add", gpu, 1, 1, 1, 0.25}};
  ASSERT_EQ(summary.totals.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const profiler::OperationTotal& total = summary.totals[i];
    EXPECT_EQ(total.name, expected[i].name);
    EXPECT_EQ(total.device, expected[i].device);
    EXPECT_EQ(total.calls, expected[i].calls);
    EXPECT_NEAR(total.seconds * 1e3, expected[i].ms, 1e-9);
    EXPECT_NEAR(total.self_seconds * 1e3, expected[i].self_ms, 1e-9);
    EXPECT_NEAR(total.share, expected[i].share, 1e-9);
  }
  EXPECT_NEAR(summary.totals[1].mean_seconds() * 1e3, 2.0, 1e-9);

  const std::string table = summary.to_string(1);
  const auto line = [&](const std::string& start) {
    const std::size_t at = table.find(start);
    return at == std::string::npos ? start + " is not there:\n" + table
                                   : table.substr(at, table.find('\n', at) - at);
  };
  EXPECT_EQ(line("step"), fmt::format("{:<44}{:>10}{:>14}{:>14}{:>14}{:>9}", "step", 1, "10.000",
                                      "10.0000", "6.000", "60.0%"));
  EXPECT_EQ(line("1 others"), fmt::format("{:<44}{:>10}{:>14}{:>14}{:>14}{:>9}", "1 others", 2,
                                          "4.000", "2.0000", "4.000", "40.0%"));
  EXPECT_EQ(line(gpu).substr(0, 54), fmt::format("{:<44}{:>10}", gpu, "calls"));
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
  testing::expect_parts(testing::error_of<Error>([&] { call(); }), {part.c_str()});
}

TEST(Profiler, RefusesWhatCannotBe) {
  const TemporaryDirectory directory;
  expect_error<NotFoundError>([] { profiler::start({.file = "/no/such/directory/t"}); },
                              "'/no/such/directory/t'");
  expect_error<FailedPreconditionError>([&] { profiler::start({.file = directory.path()}); },
                                        "it is a directory");
  expect_error<InvalidArgumentError>(
      [&] { profiler::start({.file = directory / "t", .max_events = 0}); }, "max_events");
  expect_error<FailedPreconditionError>([] { profiler::stop(); }, "but no profile is running");
  profiler::start({.file = directory / "t"});
  expect_error<FailedPreconditionError>([&] { profiler::start({.file = directory / "u"}); },
                                        "a profile is already running");
  profiler::stop();
  expect_error<FailedPreconditionError>([] { profiler::stop(); }, "but no profile is running");
}

TEST(Profiler, TellsWhenTheFileCannotBeWritten) {
  TANDEM_REQUIRE(std::filesystem::exists("/dev/full"), "full");
  profiler::start({.file = "/dev/full"});
  { const profiler::Scope scope("work"); }
  expect_error<ResourceExhaustedError>([] { profiler::stop(); },
                                       "[profiler] cannot write '/dev/full': No space left");
  EXPECT_FALSE(profiler::running());
}

}  // namespace
}  // namespace tandem::profiler_test
