// Attachments in memory that two tasks of a host share.
#include "rpc/shared_memory/shared_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "rpc/task.h"
#include "support/processes.h"

namespace tandem::rpc::shared_memory_test {
namespace {

using namespace testing;

constexpr std::size_t kLarge = 1 << 20;

Delivery to_this_process(std::chrono::seconds within = std::chrono::seconds(60)) {
  return {ProcessIdentity::self(), std::chrono::steady_clock::now() + within};
}

Frame frame_of(std::vector<std::size_t> sizes) {
  Frame frame{.outcome = 7, .message = {.header = "header"}};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    frame.message.attachments.push_back(
        attachment_of(random_bytes(sizes[i], static_cast<std::uint32_t>(i))));
  return frame;
}

std::size_t inline_bytes(const Frame& frame) {
  std::size_t bytes = 0;
  for (const Attachment& each : frame.message.attachments) bytes += each.bytes.size();
  return bytes;
}

TEST(SharedMemory, LargeAttachmentsLeaveTheFrame) {
  const std::vector<std::size_t> sizes = {100, kLarge, 0, SharedSender::kLeast,
                                          SharedSender::kLeast - 1};
  SharedSender sender;
  PeerAreas areas;
  Frame frame = frame_of(sizes);
  sender.share(frame, to_this_process());
  EXPECT_EQ(inline_bytes(frame), 100 + SharedSender::kLeast - 1);
  take_shared(frame, areas);
  EXPECT_EQ(frame.outcome, 7u);
  EXPECT_EQ(frame.message.header, "header");
  ASSERT_EQ(frame.message.attachments.size(), sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::span<const std::byte> bytes = frame.message.attachments[i].bytes;
    EXPECT_TRUE(same_bytes(bytes, random_bytes(sizes[i], static_cast<std::uint32_t>(i)))) << i;
    EXPECT_TRUE(sizes[i] < SharedSender::kLeast ||
                reinterpret_cast<std::uintptr_t>(bytes.data()) % kAlignment == 0)
        << i;
  }
}

TEST(SharedMemory, SmallMessagesStayAsTheyAre) {
  SharedSender sender;
  PeerAreas areas;
  Frame frame = frame_of({100});
  sender.share(frame, to_this_process());
  EXPECT_EQ(frame.outcome, 7u);
  EXPECT_EQ(frame.message.header, "header");
  take_shared(frame, areas);
  EXPECT_EQ(inline_bytes(frame), 100u);
}

TEST(SharedMemory, ABlockIsUsedAgainOnceItsReceiverIsDone) {
  Area area;
  PeerAreas areas;
  const auto bytes = random_bytes(kLarge, 1);
  const auto first = area.put(bytes, to_this_process());
  std::optional<Attachment> taken = areas.take(area.name(), *first);
  const auto second = area.put(bytes, to_this_process());
  EXPECT_NE(second->offset, first->offset);
  EXPECT_TRUE(same_bytes(taken->bytes, bytes));
  taken.reset();
  EXPECT_EQ(area.put(bytes, to_this_process())->offset, first->offset);
}

TEST(SharedMemory, ARevokedBlockCannotBeTaken) {
  Area area;
  PeerAreas areas;
  const auto bytes = random_bytes(kLarge, 1);
  const auto place = area.put(bytes, to_this_process());
  area.revoke(*place);
  const auto take = [&] { areas.take(area.name(), *place); };
  expect_parts(error_of<DataLossError>(take), {"the sender has taken them back"});
  // The memory has another use now.
  const auto again = area.put(bytes, to_this_process());
  EXPECT_EQ(again->offset, place->offset);
  expect_parts(error_of<DataLossError>(take), {"the sender has taken them back"});
  // A block that was taken stays the receiver's.
  const Attachment taken = areas.take(area.name(), *again);
  area.revoke(*again);
  EXPECT_NE(area.put(bytes, to_this_process())->offset, again->offset);
  expect_parts(error_of<DataLossError>([&] { areas.take(area.name(), *again); }),
               {"1048576 bytes"});
}

TEST(SharedMemory, ReservedMemoryIsSentWithoutACopy) {
  const auto area = std::make_shared<Area>();
  PeerAreas areas;
  std::shared_ptr<std::byte> memory = area->reserve(kLarge);
  const std::span<const std::byte> whole(memory.get(), kLarge);
  std::ranges::copy(random_bytes(kLarge, 1), memory.get());
  const auto place = area->put(whole, to_this_process());
  std::optional<Attachment> taken = areas.take(area->name(), *place);
  EXPECT_TRUE(same_bytes(taken->bytes, random_bytes(kLarge, 1)));
  *memory ^= std::byte{1};
  EXPECT_EQ(taken->bytes[0], *memory);
  // Copied: while a receiver has the memory, and a part of it.
  for (const std::span<const std::byte> bytes : {whole, whole.first(kLarge / 2)}) {
    const Attachment copy = areas.take(area->name(), *area->put(bytes, to_this_process()));
    EXPECT_TRUE(same_bytes(copy.bytes, bytes));
    *memory ^= std::byte{1};
    EXPECT_NE(copy.bytes[0], *memory);
    taken.reset();
  }
  EXPECT_EQ(area->put(whole, to_this_process())->offset, place->offset);
}

TEST(SharedMemory, ReservedMemoryHasNoOtherUse) {
  const auto area = std::make_shared<Area>();
  PeerAreas areas;
  std::shared_ptr<std::byte> memory = area->reserve(kLarge);
  const auto bytes = random_bytes(kLarge, 1);
  const auto place = area->put({memory.get(), kLarge}, to_this_process());
  areas.take(area->name(), *place);
  const auto other = area->put(bytes, to_this_process());
  EXPECT_NE(other->offset, place->offset);
  constexpr std::size_t kHuge = std::size_t{100} << 20;
  const std::shared_ptr<std::byte> huge = area->reserve(kHuge);
  EXPECT_TRUE(huge);
  EXPECT_FALSE(area->reserve(kHuge)) << "the memory that is reserved was given back";
  areas.take(area->name(), *area->put({memory.get(), kLarge}, to_this_process()));
  memory.reset();
  EXPECT_EQ(area->put(bytes, to_this_process())->offset, place->offset);
}

TEST(SharedMemory, AttachmentsWithoutRoomStayInTheFrame) {
  SharedSender sender;
  PeerAreas areas;
  constexpr std::size_t kHuge = std::size_t{100} << 20;
  Frame first = frame_of({kHuge}), second = frame_of({kHuge, kLarge});
  sender.share(first, to_this_process());
  EXPECT_EQ(inline_bytes(first), 0u);
  sender.share(second, to_this_process());
  EXPECT_EQ(inline_bytes(second), kHuge);
  take_shared(first, areas);
  first = {};
  Frame third = frame_of({kHuge});
  sender.share(third, to_this_process());
  EXPECT_EQ(inline_bytes(third), 0u);
}

TEST(SharedMemory, BlocksOfDeadReceiversAndOldCallsAreUsedAgain) {
  tandem::testing::ChildProcess child([] {
    const ProcessIdentity self = ProcessIdentity::self();
    return std::to_string(self.pid) + " " + std::to_string(self.start_time) + " " +
           std::to_string(self.space);
  });
  Delivery to_dead = to_this_process();
  std::istringstream(child.result()) >> to_dead.receiver.pid >> to_dead.receiver.start_time >>
      to_dead.receiver.space;
  const Delivery of_an_hour_ago = to_this_process(-std::chrono::hours(1));
  Area area;
  const std::vector<std::byte> bytes(std::size_t{100} << 20);
  EXPECT_TRUE(area.put(bytes, to_dead));
  const auto old = area.put(bytes, of_an_hour_ago);
  ASSERT_TRUE(old);
  PeerAreas areas;
  EXPECT_TRUE(area.put(bytes, to_this_process()));
  EXPECT_THROW(areas.take(area.name(), *old), DataLossError);
  EXPECT_FALSE(area.put(bytes, to_this_process()));
}

TEST(SharedMemory, PlacesThatReferToNothingAreRefused) {
  Area area;
  PeerAreas areas;
  const auto bytes = random_bytes(kLarge, 1);
  const BlockPlace good = *area.put(bytes, to_this_process());
  std::vector<BlockPlace> wrong(6, good);
  wrong[0].offset = 0;
  wrong[1].offset += 64;
  wrong[2].offset = Area::kBytes;
  wrong[3].offset = ~std::uint64_t{0} - 4095;
  wrong[4].sequence += 1;
  wrong[5].bytes = ~std::uint64_t{0};
  for (const BlockPlace& place : wrong)
    EXPECT_THROW(areas.take(area.name(), place), DataLossError) << place.offset;
  for (const char* name : {"", "/tandem-1-2-3-4", "/etc/passwd", "/tandem-../x"})
    EXPECT_THROW(areas.take(name, good), DataLossError) << name;
  EXPECT_TRUE(same_bytes(areas.take(area.name(), good).bytes, bytes));
}

TEST(SharedMemory, DamagedPlacesAreRefused) {
  SharedSender sender;
  Frame whole = frame_of({kLarge});
  sender.share(whole, to_this_process());
  for (std::size_t size = 0; size < whole.message.header.size() - std::strlen("header"); ++size) {
    PeerAreas areas;
    Frame cut = whole;
    cut.message.header.resize(size);
    EXPECT_THROW(take_shared(cut, areas), DataLossError) << size;
  }
  PeerAreas areas;
  Frame without = whole;
  without.message.attachments.clear();
  expect_parts(error_of<DataLossError>([&] { take_shared(without, areas); }),
               {"attachment 0 of 0 cannot be in shared memory"});
}

TEST(SharedMemory, OnlyProcessesOfThisHostAreNeighbors) {
  const std::optional<ProcessIdentity> self = neighbor(announcement());
  ASSERT_TRUE(self);
  EXPECT_EQ(self->pid, ProcessIdentity::self().pid);
  EXPECT_TRUE(self->alive());
  std::string other = announcement();
  other[0] = other[0] == 'a' ? 'b' : 'a';
  const std::string host = announcement().substr(0, announcement().find(':') + 1);
  for (const std::string& text : {std::string(), other, host, host + "1-2", host + "x-2-3",
                                  host + "1-2-3-4", announcement() + "9999999999999999999999"})
    EXPECT_FALSE(neighbor(text)) << text;
}

// --- calls ---

using SharedMemoryCalls = Rpc;

// The memory that the areas of this process use, and their number.
struct Used {
  int areas = 0;
  std::size_t bytes = 0;
};
Used used() {
  Used used;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const auto maker = Segment::maker_of("/" + entry.path().filename().string());
    if (!maker || maker->pid != ProcessIdentity::self().pid) continue;
    struct stat status {};
    ++used.areas;
    if (stat(entry.path().c_str(), &status) == 0)
      used.bytes += static_cast<std::size_t>(status.st_blocks) * 512;
  }
  return used;
}

Message large_message() { return {"", {attachment_of(random_bytes(kLarge, 1))}}; }

TEST_F(SharedMemoryCalls, BeginWithTheSecond) {
  const auto server = serve();
  {
    const auto channel = connect(*server);
    channel->call("echo", large_message(), {.limit = kLong});
    EXPECT_EQ(used().areas, 1) << "the server's";
    const Message reply = channel->call("echo", large_message(), {.limit = kLong});
    EXPECT_EQ(used().areas, 2);
    EXPECT_TRUE(same_bytes(reply.attachments[0].bytes, random_bytes(kLarge, 1)));
  }
  EXPECT_EQ(used().areas, 1);
}

TEST_F(SharedMemoryCalls, SendReservedMemory) {
  const auto server = serve();
  auto channel = connect(*server);
  EXPECT_FALSE(channel->reserve(kLarge)) << "before the server has announced itself";
  channel->call("echo", large_message(), {.limit = kLong});
  EXPECT_FALSE(channel->reserve(SharedSender::kLeast - 1));
  std::shared_ptr<std::byte> memory = channel->reserve(kLarge);
  ASSERT_TRUE(memory);
  std::ranges::copy(random_bytes(kLarge, 2), memory.get());
  for (int i = 0; i < 3; ++i) {
    const Message request{"", {{memory, {memory.get(), kLarge}}}};
    const Message reply = channel->call("echo", request, {.limit = kLong});
    EXPECT_TRUE(same_bytes(reply.attachments[0].bytes, random_bytes(kLarge, 2)));
  }
  channel.reset();
  std::ranges::copy(random_bytes(kLarge, 3), memory.get());
}

TEST_F(SharedMemoryCalls, AreLeftOutIfTheEnvironmentSaysSo) {
  setenv("TANDEM_RPC_LOCAL_TRANSPORT", "false", 1);
  const auto server = serve();
  const auto channel = connect(*server);
  for (int i = 0; i < 3; ++i) {
    const Message reply = channel->call("echo", large_message(), {.limit = kLong});
    EXPECT_TRUE(same_bytes(reply.attachments[0].bytes, random_bytes(kLarge, 1)));
  }
  EXPECT_EQ(used().areas, 0);
  EXPECT_EQ(unix_connections(), 0);
}

TEST_F(SharedMemoryCalls, AreAnErrorIfTheEnvironmentIsInvalid) {
  setenv("TANDEM_RPC_LOCAL_TRANSPORT", "perhaps", 1);
  expect_parts(error_of<InvalidArgumentError>([] { make_grpc_channel(to_port(1)); }),
               {"TANDEM_RPC_LOCAL_TRANSPORT", "perhaps"});
}

TEST_F(SharedMemoryCalls, GiveTheMemoryOfLostCallsBack) {
  const auto server = serve();
  const auto channel = connect(*server);
  for (int i = 0; i < 2; ++i) channel->call("echo", large_message(), {.limit = kLong});
  for (int i = 0; i < 100; ++i) {
    const auto call = channel->start("hang", large_message(), {.limit = kLong});
    call->cancel();
    EXPECT_THROW(call->wait(), AbortedError);
    EXPECT_THROW(channel->call("no such method", large_message(), {.limit = kLong}), NotFoundError);
    channel->start("echo", large_message(), {.limit = kLong});  // whose reply nothing takes
    channel->call("echo", large_message(), {.limit = kLong});
  }
  EXPECT_LT(used().bytes, 300 * kLarge) << "of 400 messages and 200 replies";
}

// Calls of several threads, some of which are cancelled, and replies that are kept for a while.
TEST_F(SharedMemoryCalls, HaveTheirOwnBytes) {
  const auto server = serve();
  const auto channel = connect(*server);
  std::atomic<int> right = 0, cancelled = 0;
  constexpr int kThreads = 3, kCalls = 60;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<std::uint32_t>(t));
        std::vector<Message> kept;
        for (int i = 0; i < kCalls; ++i) {
          const auto seed = static_cast<std::uint32_t>(t * kCalls + i);
          const std::size_t size = 1 + random() % (3 * kLarge);
          const auto call = channel->start(
              "echo", {"", {attachment_of(random_bytes(size, seed)), attachment_of({})}},
              {.limit = kLong});
          if (random() % 4 == 0) call->cancel();
          try {
            kept.push_back(call->wait());
            right += same_bytes(kept.back().attachments[0].bytes, random_bytes(size, seed));
          } catch (const AbortedError&) {
            ++cancelled;
          }
          if (kept.size() > 5) kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(random() % 5));
        }
      });
  }
  EXPECT_EQ(right + cancelled, kThreads * kCalls);
  EXPECT_GT(right, kThreads * kCalls / 2);
}

TEST_F(SharedMemoryCalls, GoOnWithANewServer) {
  auto server = serve();
  const std::uint16_t port = server->port();
  const auto channel = connect(*server);
  for (int i = 0; i < 2; ++i) channel->call("echo", large_message(), {.limit = kLong});
  server.reset();
  EXPECT_THROW(channel->call("echo", large_message(), {.limit = kLong}), PeerUnavailableError);
  server = serve({.port = port});
  for (int i = 0; i < 3; ++i) {
    const Message reply =
        channel->call("echo", large_message(), {.limit = kLong, .wait_for_server = true});
    EXPECT_TRUE(same_bytes(reply.attachments[0].bytes, random_bytes(kLarge, 1)));
  }
}

}  // namespace
}  // namespace tandem::rpc::shared_memory_test
