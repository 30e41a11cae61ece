// The conformance suite over functions of a program: threads that pass messages by a table.
#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "comm/conformance.h"
#include "comm/process/process_communicator.h"
#include "comm/transport/transport_backend.h"
#include "core/parallel.h"
#include "device/device_manager.h"
#include "tandem/errors.h"

namespace tandem::conformance_transport {
namespace {

struct Request {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool done = false;
};

// The messages of all groups. A send is done once it has been received.
struct Switch {
  using Line = std::tuple<std::string, int, int, int>;  // group, from, to, tag
  std::mutex mutex;
  std::map<Line, std::deque<Request*>> sends, receives;

  void match(const Line& line) {
    auto &from = sends[line], &to = receives[line];
    while (!from.empty() && !to.empty()) {
      ASSERT_LE(from.front()->bytes, to.front()->bytes);
      std::copy_n(from.front()->data, from.front()->bytes, to.front()->data);
      from.front()->done = to.front()->done = true;
      from.pop_front();
      to.pop_front();
    }
  }
};

struct Context {
  std::shared_ptr<Switch> over;
  std::string group;
  int rank = 0;
  std::map<std::string, int> splits{};
};

Context& of(void* context) { return *static_cast<Context*>(context); }

tandem_transport functions_of(Context* context, int ranks);

std::int32_t send(void* context, const void* bytes, std::int64_t count, std::int32_t to,
                  std::int32_t tag, void** request) {
  Context& mine = of(context);
  auto* made = new Request{static_cast<std::byte*>(const_cast<void*>(bytes)),
                           static_cast<std::size_t>(count)};
  const std::lock_guard lock(mine.over->mutex);
  const Switch::Line line{mine.group, mine.rank, to, tag};
  mine.over->sends[line].push_back(made);
  mine.over->match(line);
  *request = made;
  return 0;
}

std::int32_t receive(void* context, void* bytes, std::int64_t count, std::int32_t from,
                     std::int32_t tag, void** request) {
  Context& mine = of(context);
  auto* made = new Request{static_cast<std::byte*>(bytes), static_cast<std::size_t>(count)};
  const std::lock_guard lock(mine.over->mutex);
  const Switch::Line line{mine.group, from, mine.rank, tag};
  mine.over->receives[line].push_back(made);
  mine.over->match(line);
  *request = made;
  return 0;
}

std::int32_t test(void* context, void** request, std::int32_t* done) {
  const std::lock_guard lock(of(context).over->mutex);
  auto* made = static_cast<Request*>(*request);
  *done = made->done ? 1 : 0;
  if (made->done) {
    delete made;
    *request = nullptr;
  }
  return 0;
}

std::int32_t cancel(void* context, void** request) {
  Switch& over = *of(context).over;
  const std::lock_guard lock(over.mutex);
  auto* made = static_cast<Request*>(*request);
  for (auto& [line, open] : over.receives) std::erase(open, made);
  delete made;
  *request = nullptr;
  return 0;
}

std::int32_t split(void* context, const std::int32_t* ranks, std::int32_t count, std::int32_t tag,
                   tandem_transport* part) {
  Context& mine = of(context);
  std::string name = mine.group + "/" + std::to_string(tag);
  int place = 0;
  for (int i = 0; i < count; ++i) {
    name += "," + std::to_string(ranks[i]);
    if (ranks[i] == mine.rank) place = i;
  }
  name += "#" + std::to_string(mine.splits[name]++);
  *part = functions_of(new Context{mine.over, name, place}, count);
  return 0;
}

tandem_transport functions_of(Context* context, int ranks) {
  return {.size = sizeof(tandem_transport),
          .context = context,
          .rank = context->rank,
          .ranks = ranks,
          .threads = TANDEM_ANY_THREAD,
          .longest = 1 << 12,  // most transfers have several messages
          .send = send,
          .receive = receive,
          .test = test,
          .cancel = cancel,
          .alive = [](void*) { return 1; },
          .release = [](void* mine) { delete static_cast<Context*>(mine); },
          .split = split,
          .on_end = nullptr,
          .text = nullptr};
}

void run_groups(int ranks, int groups, const std::function<void(Communicator&, int)>& body) {
  DeviceImpl& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
  std::vector<std::thread> all;
  for (int number = 0; number < groups; ++number) {
    const auto over = std::make_shared<Switch>();
    for (int rank = 0; rank < ranks; ++rank)
      all.emplace_back([=, &body, &device] {
        const ThreadBudget one(1);
        const auto transport = Transport::make(functions_of(new Context{over, "all", rank}, ranks));
        auto backend = make_transport_backend(
            {.transport = transport, .name = "group", .time_limit = std::chrono::minutes(5)});
        body(*make_process_communicator(std::move(backend), device,
                                        {.time_limit = std::chrono::minutes(5)}),
             number);
      });
  }
  for (std::thread& thread : all) thread.join();
}

TestBackend transport() { return {.name = "transport", .run = run_groups}; }

INSTANTIATE_TEST_SUITE_P(Transport, Conformance,
                         ::testing::Combine(::testing::Values(transport()),
                                            ::testing::Values(1, 2, 3, 4)),
                         name_of_ranks);

TEST(Transport, RefusesIncompleteFunctionsAndRanksThatAreOutOfRange) {
  const auto made = [](auto change) {
    tandem_transport functions = functions_of(new Context{std::make_shared<Switch>(), "all", 0}, 1);
    change(functions);
    return Transport::make(functions);
  };
  EXPECT_THROW(made([](auto& functions) { functions.send = nullptr; }), InvalidArgumentError);
  EXPECT_THROW(made([](auto& functions) { functions.rank = 1; }), InvalidArgumentError);
  EXPECT_THROW(made([](auto& functions) { functions.longest = 8; }), InvalidArgumentError);
  EXPECT_NO_THROW(made([](auto&) {}));
}

// As MPI_Finalize does, which the program may call before it destroys its groups.
TEST(Transport, TellsTheOtherRanksThatTheProgramEndsItsCommunication) {
  static void (*ended)(void*) = nullptr;
  static void* its_data = nullptr;
  const auto over = std::make_shared<Switch>();
  const auto first = Transport::make(functions_of(new Context{over, "all", 0}, 2));
  tandem_transport functions = functions_of(new Context{over, "all", 1}, 2);
  functions.on_end = [](void*, void (*call)(void*), void* data) {
    ended = call;
    its_data = data;
    return std::int32_t{0};
  };
  const auto second = Transport::make(functions);
  EXPECT_FALSE(first->left(1));
  ended(its_data);
  EXPECT_TRUE(first->left(1));
  std::byte data{};
  EXPECT_THROW(second->send(0, kSplitTag, &data, 1), AbortedError);
}

}  // namespace
}  // namespace tandem::conformance_transport
