// Negotiation, fusion, stalls and autotuning without processes.
#include "hvd/negotiation.h"

#include <gtest/gtest.h>

#include "hvd/autotune.h"
#include "hvd/fusion.h"
#include "hvd/stall.h"
#include "support/tensors.h"

namespace tandem::hvd::negotiation_test {
namespace {

Request request(const std::string& name, Dims shape = {2, 3}, DType dtype = float32) {
  return {.kind = RequestKind::kAllreduce,
          .name = name,
          .dtypes = {dtype},
          .shapes = {shape},
          .splits = {}};
}

// The messages of the ranks in one cycle, as coordinators would send them.
class Cycle {
 public:
  Cycle(Negotiation& negotiation, int ranks)
      : negotiation_(negotiation), hits_(static_cast<std::size_t>(ranks) * negotiation.words()) {
    messages_.words = negotiation.words();
    messages_.joined.resize(static_cast<std::size_t>(ranks));
    messages_.requests.resize(static_cast<std::size_t>(ranks));
  }
  Cycle& submit(int rank, const Request& request) {
    const auto r = static_cast<std::size_t>(rank);
    const int slot = negotiation_.slot_of(std::make_shared<const Request>(request), rank);
    if (slot < 0)
      messages_.requests[r].push_back(request);
    else
      hits_[r * messages_.words + static_cast<std::size_t>(slot / 64)] |= std::uint64_t{1}
                                                                          << (slot % 64);
    by_bit += slot >= 0 ? 1 : 0;
    return *this;
  }
  Cycle& join(int rank) {
    messages_.joined[static_cast<std::size_t>(rank)] = true;
    return *this;
  }
  std::vector<std::string> due() {
    messages_.hits = hits_;
    std::vector<std::string> names;
    for (const AgreementRef& agreement : negotiation_.settle(messages_))
      names.push_back(agreement->any().name + (agreement->error.empty() ? "" : "!"));
    return names;
  }
  const CycleMessages& messages() const { return messages_; }
  int by_bit = 0;

 private:
  Negotiation& negotiation_;
  CycleMessages messages_;
  std::vector<std::uint64_t> hits_;
};

using Names = std::vector<std::string>;

TEST(HvdNegotiation, OperationsSubmittedByAllRanksAreReady) {
  Negotiation negotiation(2, 8);
  EXPECT_EQ(Cycle(negotiation, 2)
                .submit(0, request("a"))
                .submit(0, request("b"))
                .submit(1, request("b"))
                .due(),
            Names{"b"});
  EXPECT_EQ(Cycle(negotiation, 2).due(), Names{});
  EXPECT_EQ(Cycle(negotiation, 2).submit(1, request("a")).due(), Names{"a"});
}

// A new name, and one that is cached by then.
TEST(HvdNegotiation, MissingRanksAreNumberedAsInTheJob) {
  Negotiation negotiation(2, 8, RankNames({1, 5}));
  for (int again = 0; again < 2; ++again) {
    Cycle cycle(negotiation, 2);
    EXPECT_EQ(cycle.submit(0, request("a")).due(), Names{});
    EXPECT_EQ(cycle.by_bit, again);
    const auto partials = negotiation.partials(cycle.messages());
    ASSERT_EQ(partials.size(), 1u);
    EXPECT_EQ(partials[0].name, "a");
    EXPECT_EQ(partials[0].missing, std::vector<int>{5});
    if (again == 0) {
      EXPECT_EQ(Cycle(negotiation, 2).submit(1, request("a")).due(), Names{"a"});
    }
  }
}

TEST(HvdNegotiation, CachedRequestsAreSentAsBits) {
  Negotiation negotiation(2, 8);
  for (const char* name : {"a", "b"})
    Cycle(negotiation, 2).submit(0, request(name)).submit(1, request(name)).due();
  Cycle again(negotiation, 2);
  again.submit(0, request("b")).submit(1, request("a")).submit(1, request("b"));
  EXPECT_EQ(again.by_bit, 3);
  EXPECT_EQ(again.due(), Names{"b"});
}

TEST(HvdNegotiation, AChangedRequestIsNegotiatedAgain) {
  Negotiation negotiation(2, 8);
  Cycle(negotiation, 2).submit(0, request("a")).submit(1, request("a")).due();
  // Rank 1 has another shape: rank 0's bit is void, and it sends its request in the next cycle.
  EXPECT_EQ(Cycle(negotiation, 2).submit(0, request("a")).submit(1, request("a", {4})).due(),
            Names{});
  EXPECT_EQ(Cycle(negotiation, 2).submit(0, request("a")).due(), Names{"a!"});
  EXPECT_EQ(Cycle(negotiation, 2).submit(0, request("a", {4})).submit(1, request("a", {4})).due(),
            Names{"a"});
}

TEST(HvdNegotiation, TheLeastRecentlyUsedSlotIsEvicted) {
  Negotiation negotiation(1, 2);
  for (const char* name : {"a", "b"}) Cycle(negotiation, 1).submit(0, request(name)).due();
  EXPECT_EQ(Cycle(negotiation, 1).submit(0, request("a")).due(), Names{"a"});
  Cycle(negotiation, 1).submit(0, request("c")).due();
  const auto known = [&](const char* name) {
    return negotiation.slot_of(std::make_shared<const Request>(request(name)), 0) >= 0;
  };
  EXPECT_TRUE(known("a"));
  EXPECT_FALSE(known("b"));
  EXPECT_TRUE(known("c"));
}

TEST(HvdNegotiation, WithoutCapacityNothingIsCached) {
  Negotiation negotiation(1, 0);
  EXPECT_EQ(Cycle(negotiation, 1).submit(0, request("a")).due(), Names{"a"});
  EXPECT_EQ(negotiation.words(), 0u);
}

TEST(HvdNegotiation, JoinedRanksDoNotDelayTheOthers) {
  Negotiation negotiation(2, 8);
  EXPECT_EQ(Cycle(negotiation, 2).submit(0, request("a")).due(), Names{});
  EXPECT_EQ(Cycle(negotiation, 2).join(1).due(), Names{"a"});
  Request gather = request("g");
  gather.kind = RequestKind::kAllgather;
  EXPECT_EQ(Cycle(negotiation, 2).join(1).submit(0, gather).due(), Names{"g!"});
  Request least = request("m");
  least.op = kMin;
  EXPECT_EQ(Cycle(negotiation, 2).join(1).submit(0, least).due(), Names{"m!"});
}

TEST(HvdNegotiation, MismatchMessagesAreHorovods) {
  const auto text = [](Request a, Request b) {
    return describe_mismatch({{std::make_shared<const Request>(std::move(a)),
                               std::make_shared<const Request>(std::move(b))},
                              {}});
  };
  const Request plain = request("x");
  const auto with = [&](auto change) {
    Request other = plain;
    change(other);
    return text(plain, other);
  };
  const auto expect = [](const std::string& text, const std::string& begin) {
    EXPECT_EQ(text.substr(0, begin.size()), begin);
    EXPECT_NE(text.find("('x': rank 0 and rank 1)"), std::string::npos) << text;
  };
  EXPECT_EQ(text(plain, plain), "");
  expect(with([](Request& r) { r.dtypes[0] = float64; }),
         "Mismatched data types: One rank had type float32, but another rank had type float64.");
  expect(with([](Request& r) { r.kind = RequestKind::kAllgather; }),
         "Mismatched operations: One rank did an ALLREDUCE, but another rank did an ALLGATHER.");
  expect(with([](Request& r) {
           r.shapes[0] = {2, 4};
         }),
         "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [2, 3], but another "
         "rank sent a tensor "
         "of shape [2, 4].");
  expect(with([](Request& r) { r.prescale = 2.0; }),
         "Mismatched prescale and/or postscale factors: One rank sent factors (1, 1), but another "
         "rank sent factors "
         "(2, 1).");
  expect(with([](Request& r) { r.op = kMax; }),
         "Mismatched reduction operation: One rank specified Sum, but another rank specified Max.");
  expect(with([](Request& r) { r.on_gpu = true; }),
         "Mismatched ALLREDUCE CPU/GPU device selection: One rank specified device CPU, but "
         "another rank specified "
         "device GPU.");
  Request a = plain, b = plain;
  a.kind = b.kind = RequestKind::kBroadcast;
  b.root = 1;
  expect(
      text(a, b),
      "Mismatched BROADCAST root ranks: One rank specified root rank 0, but another rank specified "
      "root rank 1.");
  a.kind = b.kind = RequestKind::kAllgather;
  b.root = 0;
  b.shapes[0] = {7, 3};
  EXPECT_EQ(text(a, b), "");
  b.shapes[0] = {7, 4};
  expect(
      text(a, b),
      "Mismatched ALLGATHER tensor shapes: One rank sent a tensor with dimension 1 equal to 3, but "
      "another rank sent a tensor with dimension 1 equal to 4.");
}

TEST(HvdRequests, SurviveSerialisation) {
  Request one = request("ä name", {0, 7}, bfloat16);
  one.splits = {1, -2};
  one.prescale = 0.25;
  one.absent = true;
  Request group = request("group");
  group.dtypes.push_back(int64);
  group.shapes.emplace_back(Dims{});
  std::vector<std::byte> bytes;
  append_request(bytes, one);
  append_request(bytes, group);
  EXPECT_EQ(parse_requests(bytes), (std::vector<Request>{one, group}));
  for (std::size_t length = 1; length < bytes.size(); ++length) {
    std::vector<std::byte> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    try {
      EXPECT_EQ(parse_requests(part).size(), 1u);  // where the second one begins
    } catch (const DataLossError&) {
    }
  }
}

std::vector<std::vector<std::string>> fused(const std::vector<Request>& requests,
                                            FusionOptions options) {
  std::vector<AgreementRef> due;
  for (const Request& one : requests)
    due.push_back(
        std::make_shared<const Agreement>(Agreement{{std::make_shared<const Request>(one)}, {}}));
  std::vector<std::vector<std::string>> names;
  for (const auto& batch : fuse(due, options)) {
    names.emplace_back();
    for (const FusionUnit& unit : batch)
      names.back().push_back(unit.agreement->any().name + std::to_string(unit.tensors.size()));
  }
  return names;
}

TEST(HvdFusion, SkipsTensorsThatDoNotFitTheThreshold) {
  using Batches = std::vector<std::vector<std::string>>;
  const std::vector<Request> requests = {request("a", {10}), request("d", {10}, float64),
                                         request("big", {100}), request("b", {10}),
                                         request("c", {20})};
  EXPECT_EQ(
      fused(requests, {.threshold = 120}),
      (Batches{{"a1"}, {"d1"}, {"big1"}, {"b1", "c1"}}));  // 480 bytes passed over end the search
  EXPECT_EQ(fused(requests, {.threshold = 1000}), (Batches{{"a1", "big1", "b1", "c1"}, {"d1"}}));
  EXPECT_EQ(fused(requests, {.threshold = 0}), (Batches{{"a1"}, {"d1"}, {"big1"}, {"b1"}, {"c1"}}));
}

TEST(HvdFusion, GroupsStayTogether) {
  using Batches = std::vector<std::vector<std::string>>;
  Request group = request("g", {10});
  group.dtypes = {float32, float64, float32};
  group.shapes = {{10}, {10}, {10}};
  EXPECT_EQ(fused({request("a", {10}), group}, {.threshold = 1000}),
            (Batches{{"a1", "g2"}, {"g1"}}));
  EXPECT_EQ(fused({request("a", {10}), group}, {.threshold = 1000, .separate_groups = true}),
            (Batches{{"a1"}, {"g2"}, {"g1"}}));
  EXPECT_EQ(fused({group}, {.threshold = 0}), (Batches{{"g2"}, {"g1"}}));
}

TEST(HvdFusion, DifferentOperationsAreNotFused) {
  Request least = request("m", {10});
  least.op = kMin;
  Request mean = request("a", {10});
  mean.op = kAverage;
  EXPECT_EQ(fused({request("s", {10}), least, mean}, {.threshold = 1000}).size(), 3u);
}

TEST(HvdStall, WarnsOfMissingRanksAndEndsAtTheLimit) {
  using std::chrono::seconds;
  StallWatch watch(seconds(10), seconds(30));
  const auto start = StallWatch::Clock::now();
  const std::vector<Negotiation::Partial> partials = {{"grad/a", 1, {1, 2}}, {"grad/b", 7, {2}}};
  EXPECT_EQ(watch.look(start, partials), "");
  EXPECT_EQ(watch.look(start + seconds(9), partials), "");
  const std::string text = watch.look(start + seconds(11), partials);
  EXPECT_TRUE(
      text.starts_with("One or more tensors were submitted to be reduced, gathered or broadcasted "
                       "by subset of ranks and are waiting "
                       "for remainder of ranks for more than 10 seconds."))
      << text;
  EXPECT_NE(text.find("Missing ranks:\n1: [grad/a]\n2: [grad/a, grad/b]"), std::string::npos)
      << text;
  EXPECT_EQ(watch.look(start + seconds(12), partials), "");  // not again so soon
  EXPECT_FALSE(watch.expired());
  const std::string last = watch.look(start + seconds(31), partials);
  EXPECT_TRUE(watch.expired());
  EXPECT_NE(last.find("1: [grad/a !]"), std::string::npos) << last;
}

TEST(HvdStall, AReusedNameIsNotAStall) {
  using std::chrono::seconds;
  StallWatch watch(seconds(10), seconds(30));
  const auto start = StallWatch::Clock::now();
  for (std::uint64_t step = 0; step < 50; ++step) {
    const std::vector<Negotiation::Partial> partials = {{"grad/a", step, {1}}};
    EXPECT_EQ(watch.look(start + seconds(step), partials), "");
  }
  EXPECT_FALSE(watch.expired());
}

TEST(HvdAutotune, SearchFindsHighScores) {
  const auto score = [](const CompassSearch::Point& p) {
    return -(p[0] - 0.75) * (p[0] - 0.75) - (p[1] - 0.25) * (p[1] - 0.25);
  };
  CompassSearch search;
  CompassSearch::Point point = {0.0, 1.0};
  for (int i = 0; i < 20; ++i) {
    search.add(point, score(point));
    point = search.next();
  }
  EXPECT_NEAR(search.best()[0], 0.75, 0.15);
  EXPECT_NEAR(search.best()[1], 0.25, 0.15);
}

TEST(HvdAutotune, EndsWithTheBestSample) {
  Settings settings;
  settings.autotune_warmup_samples = 1;
  settings.autotune_steps = 2;
  settings.autotune_samples = 5;
  Autotune autotune(settings, "");
  auto now = Autotune::Clock::now();
  std::int64_t best = 0;
  double most = 0.0;
  int changes = 0;
  for (int step = 0; step < 40; ++step) {
    // A score that grows as the threshold shrinks.
    const double micros = 100.0 + static_cast<double>(autotune.fusion_threshold()) / 1e6;
    const std::int64_t threshold = autotune.fusion_threshold();
    now += std::chrono::nanoseconds(static_cast<std::int64_t>(micros * 1000.0));
    if (changes < 5 && step >= 2 && 1000.0 / micros > most) {
      most = 1000.0 / micros;
      best = threshold;
    }
    changes += autotune.record(1000, now) ? 1 : 0;
  }
  EXPECT_EQ(changes, 5);
  EXPECT_EQ(autotune.fusion_threshold(), best);
}

}  // namespace
}  // namespace tandem::hvd::negotiation_test
