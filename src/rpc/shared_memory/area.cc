#include "rpc/shared_memory/area.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <new>

#include "core/status.h"

namespace tandem::rpc {
namespace {

constexpr std::size_t kPage = 4096;
// A call object may be waited for some time after the end of the call.
constexpr std::chrono::minutes kGrace{10};

// The start of a block. The state is the sequence number of its use and two bits.
struct alignas(kAlignment) BlockStart {
  std::atomic<std::uint64_t> state = 0;
};
enum : std::uint64_t { kFree = 0, kSent = 1, kTaken = 2 };
constexpr std::uint64_t state_of(std::uint64_t sequence, std::uint64_t bits) {
  return sequence << 2 | bits;
}
constexpr std::uint64_t bits_of(std::uint64_t state) { return state & 3; }

struct Status {
  std::atomic<std::uint32_t> ended = 0;  // the sender puts nothing more there
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

BlockStart& start_of(void* memory) { return *static_cast<BlockStart*>(memory); }
std::byte* data_of(void* memory) { return static_cast<std::byte*>(memory) + sizeof(BlockStart); }
bool is_free(void* memory) {
  return bits_of(start_of(memory).state.load(std::memory_order_acquire)) == kFree;
}

// Blocks of about the same size can replace each other.
std::size_t capacity_for(std::size_t bytes) {
  const std::size_t step = std::max(kPage, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

[[noreturn]] void fail_taking(const std::string& area, const BlockPlace& place, const char* wrong) {
  fail<DataLossError>("[rpc] {} bytes at {} of shared memory '{}': {}", place.bytes, place.offset,
                      area, wrong);
}

}  // namespace

// --- the sender ---

Area::Area()
    : segment_(std::make_shared<Segment>(Segment::create(kBytes))),
      arena_(std::make_shared<shm::ShmArena>(segment_, 0, kBytes)),
      status_(arena_->allocate(kPage)) {
  if (!status_) fail<ResourceExhaustedError>("[rpc] there is no room for shared memory");
  new (status_.get()) Status;
}

Area::~Area() { static_cast<Status*>(status_.get())->ended.store(1, std::memory_order_release); }

std::shared_ptr<std::byte> Area::reserve(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Block* const block = find(bytes);
  if (!block) return nullptr;
  block->reserved = bytes;
  std::byte* const data = data_of(block->memory.get());
  return {data, [area = shared_from_this(), offset = offset_of(*block)](std::byte*) {
            area->end_reservation(offset);
          }};
}

void Area::end_reservation(std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  blocks_.at(offset).reserved = 0;
}

std::optional<BlockPlace> Area::put(std::span<const std::byte> bytes, const Delivery& delivery) {
  BlockPlace place;
  std::shared_ptr<void> memory;  // reclaim() may erase the block during the copy
  {
    const std::lock_guard lock(mutex_);
    if (Block* const own = reserved_at(bytes); own && is_free(own->memory.get()))
      return send(*own, bytes.size(), delivery);
    Block* const block = find(bytes.size());
    if (!block) return std::nullopt;
    memory = block->memory;
    place = send(*block, bytes.size(), delivery);
  }
  std::memcpy(data_of(memory.get()), bytes.data(), bytes.size());
  return place;
}

BlockPlace Area::send(Block& block, std::size_t bytes, const Delivery& delivery) {
  block.delivery = delivery;
  const BlockPlace place{offset_of(block), ++sequence_, bytes};
  start_of(block.memory.get()).state = state_of(place.sequence, kSent);
  return place;
}

void Area::revoke(const BlockPlace& place) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(place.offset);
  if (found == blocks_.end()) return;
  std::uint64_t sent = state_of(place.sequence, kSent);
  start_of(found->second.memory.get())
      .state.compare_exchange_strong(sent, state_of(place.sequence, kFree));
}

std::uint64_t Area::offset_of(const Block& block) const {
  return static_cast<std::uint64_t>(arena_->offset_of(block.memory.get(), sizeof(BlockStart)));
}

// The block of which the bytes are the reserved memory; null if there is none.
Area::Block* Area::reserved_at(std::span<const std::byte> bytes) {
  const std::int64_t offset = arena_->offset_of(bytes.data(), bytes.size());
  if (offset < static_cast<std::int64_t>(sizeof(BlockStart))) return nullptr;
  const auto found = blocks_.find(static_cast<std::uint64_t>(offset) - sizeof(BlockStart));
  const bool is_whole = found != blocks_.end() && found->second.reserved == bytes.size();
  return is_whole ? &found->second : nullptr;
}

Area::Block* Area::find(std::size_t bytes) {
  const std::size_t needed = sizeof(BlockStart) + bytes;
  if (Block* const free = find_free(needed)) return free;
  if (Block* const added = add(needed)) return added;
  reclaim();
  return add(needed);
}

// The smallest one that is large enough and not much larger.
Area::Block* Area::find_free(std::size_t bytes) {
  Block* best = nullptr;
  for (auto& [offset, block] : blocks_) {
    if (block.capacity < bytes || block.capacity / 2 > bytes || block.reserved > 0) continue;
    if (best && best->capacity <= block.capacity) continue;
    if (is_free(block.memory.get())) best = &block;
  }
  return best;
}

Area::Block* Area::add(std::size_t bytes) {
  const std::size_t capacity = capacity_for(bytes);
  std::shared_ptr<void> memory = arena_->allocate(capacity);
  if (!memory) return nullptr;
  new (memory.get()) BlockStart;
  const auto offset = static_cast<std::uint64_t>(arena_->offset_of(memory.get(), capacity));
  return &blocks_.insert_or_assign(offset, Block{std::move(memory), capacity}).first->second;
}

// Gives the memory of free blocks back, and that of blocks whose receivers cannot take or free
// them.
void Area::reclaim() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(blocks_, [&](auto& entry) {
    const Block& block = entry.second;
    if (block.reserved > 0) return false;
    std::atomic<std::uint64_t>& state = start_of(block.memory.get()).state;
    std::uint64_t seen = state.load(std::memory_order_acquire);
    if (bits_of(seen) == kFree || !block.delivery.receiver.alive()) return true;
    return bits_of(seen) == kSent && now > block.delivery.deadline + kGrace &&
           state.compare_exchange_strong(seen, seen & ~std::uint64_t{kSent});
  });
}

// --- the receiver ---

struct PeerAreas::Mapping {
  explicit Mapping(const std::string& area)
      : arena(std::make_shared<const Segment>(Segment::open(area, Area::kBytes)), 0, Area::kBytes) {
  }
  bool ended() { return reinterpret_cast<Status*>(arena.map(0, sizeof(Status)))->ended != 0; }

  shm::MappedArena arena;
};

// Releases the areas of senders that have ended when a new one comes.
std::shared_ptr<PeerAreas::Mapping> PeerAreas::find(const std::string& area) {
  std::shared_ptr<Mapping>& mapping = mappings_[area];
  if (mapping) return mapping;
  std::erase_if(mappings_, [&](const auto& entry) {
    const auto& [name, other] = entry;
    return name != area && (other->ended() || !Segment::maker_of(name)->alive());
  });
  try {
    mapping = std::make_shared<Mapping>(area);
  } catch (const Error& error) {
    mappings_.erase(area);
    fail<DataLossError>("[rpc] a message refers to shared memory that cannot be opened: {}",
                        error.what());
  }
  return mapping;
}

Attachment PeerAreas::take(const std::string& area, const BlockPlace& place) {
  std::shared_ptr<Mapping> mapping;
  std::byte* memory = nullptr;
  {
    const std::lock_guard lock(mutex_);
    mapping = find(area);
    if (place.offset > 0 && place.offset % kPage == 0 && place.offset < Area::kBytes &&
        place.bytes < Area::kBytes)
      memory = mapping->arena.map(place.offset, sizeof(BlockStart) + place.bytes);
  }
  if (!memory) fail_taking(area, place, "no block can be there");
  std::atomic<std::uint64_t>& state = start_of(memory).state;
  std::uint64_t sent = state_of(place.sequence, kSent);
  if (!state.compare_exchange_strong(sent, state_of(place.sequence, kTaken)))
    fail_taking(area, place, "the sender has taken them back");
  const std::uint64_t free = state_of(place.sequence, kFree);
  std::shared_ptr<const void> owner(memory, [mapping, free](void* block) {
    start_of(block).state.store(free, std::memory_order_release);
  });
  return {std::move(owner), {memory + sizeof(BlockStart), place.bytes}, true};
}

}  // namespace tandem::rpc
