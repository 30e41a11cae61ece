#include "comm/nccl/module/group.h"

#include <bit>
#include <cstring>
#include <thread>

#include "comm/process/first_failure.h"
#include "comm/signature.h"
#include "comm/stall.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem::nccl_backend {
namespace {

using Clock = std::chrono::steady_clock;

// Chooses an existing GPU. If each process of a host sees only its own GPU, that is GPU 0 on every
// rank; NCCL rejects ranks that share a GPU. Initialises CUDA first, so that CUDA outlives what the
// group starts.
NcclDevice on_a_gpu(NcclDevice where) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess)
    fail<UnavailableError>("[nccl] there is no GPU that CUDA can use: {}",
                           cudaGetErrorString(result));
  if (count == 0) fail<UnavailableError>("[nccl] there is no GPU that CUDA can use");
  if (where.device->backend() != DeviceBackend::kCuda) where.gpu %= count;
  return where;
}

bool gpu_reaches(const void* memory) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();  // clears the error, so that the next call does not return it
    return false;
  }
  return attributes.type != cudaMemoryTypeUnregistered;
}

}  // namespace

struct PinnedPool::Blocks {
  std::mutex mutex;
  std::multimap<std::size_t, void*> free;
  ~Blocks() {
    for (const auto& [bytes, block] : free) cudaFreeHost(block);
  }
};

PinnedPool::PinnedPool() : blocks_(std::make_shared<Blocks>()) {}

std::shared_ptr<void> PinnedPool::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
  void* block = nullptr;
  {
    const std::lock_guard lock(blocks_->mutex);
    if (const auto found = blocks_->free.find(size); found != blocks_->free.end()) {
      block = found->second;
      blocks_->free.erase(found);
    }
  }
  if (!block) check(cudaHostAlloc(&block, size, cudaHostAllocPortable), "cudaHostAlloc");
  return {block, [blocks = blocks_, size](void* done) {
            const std::lock_guard lock(blocks->mutex);
            blocks->free.emplace(size, done);
          }};
}

GpuBuffers::GpuBuffers(std::span<const Buffer> buffers, PinnedPool& pool)
    : buffers_(buffers), placed_(buffers.begin(), buffers.end()) {
  constexpr std::size_t kAlignment = 256;
  std::vector<std::size_t> at;
  std::size_t bytes = 0;
  for (Buffer& buffer : placed_) {
    at.push_back(bytes);
    if (buffer.count == 0 || gpu_reaches(buffer.data)) continue;
    buffer.data = nullptr;
    bytes += (buffer.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (bytes == 0) return;
  block_ = pool.take(bytes);
  for (std::size_t i = 0; i < placed_.size(); ++i)
    if (placed_[i].count > 0 && !placed_[i].data)
      placed_[i].data = static_cast<std::byte*>(block_.get()) + at[i];
}

void GpuBuffers::copy_in() const {
  for (std::size_t i = 0; i < placed_.size(); ++i)
    if (placed_[i].data != buffers_[i].data)
      std::memcpy(placed_[i].data, buffers_[i].data, buffers_[i].bytes());
}

void GpuBuffers::copy_out() const {
  for (std::size_t i = 0; i < placed_.size(); ++i)
    if (placed_[i].data != buffers_[i].data)
      std::memcpy(buffers_[i].data, placed_[i].data, buffers_[i].bytes());
}

NcclGroup::NcclGroup(GroupOptions options, NcclDevice where)
    : options_(std::move(options)),
      where_(on_a_gpu(where)),
      connections_({.name = fmt::format("rank {} of group '{}'", options_.names[options_.rank],
                                        options_.name),
                    .time_limit = options_.time_limit,
                    .check_peers =
                        [membership = options_.membership] {
                          if (membership && membership->failed()) membership->throw_failure();
                        }}),
      out_(static_cast<std::size_t>(options_.size)),
      in_(static_cast<std::size_t>(options_.size)) {
  use_gpu(gpu());
  Store& store = *options_.store;
  store.set(key(fmt::format("here/{}", rank())), "1");
  if (rank() == 0) store.set(key("id"), new_id());
  const auto describe = [this](std::chrono::milliseconds time) {
    return fmt::format("[nccl] rank {} did not join group '{}' within {} ms", names()[0],
                       options_.name, time.count());
  };
  std::string id;
  try {
    id = get_or_warn(
        store, key("id"), Clock::now() + options_.time_limit,
        [&](std::chrono::milliseconds waited) { logging::warn("{}", describe(waited)); });
  } catch (const DeadlineExceededError&) {
    throw DeadlineExceededError(describe(options_.time_limit));
  }
  connection_ = &connections_.add(rank(), size(), id_of(id));
  wait_for_connection();
  forget_joining();
}

void NcclGroup::wait_for_connection() {
  const auto end = Clock::now() + options_.time_limit;
  LongWait wait;
  while (!connections_.ready()) {
    if (options_.membership && options_.membership->failed()) options_.membership->throw_failure();
    if (Clock::now() > end) throw DeadlineExceededError(describe_absent(options_.time_limit));
    if (rank() == 0)  // warns for all
      wait.look([this](std::chrono::milliseconds time) { return describe_absent(time); });
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

std::string NcclGroup::describe_absent(std::chrono::milliseconds time) const {
  std::vector<int> absent;
  for (int peer = 0; peer < size(); ++peer)
    if (find(key(fmt::format("here/{}", peer))).empty()) absent.push_back(peer);
  if (absent.empty())
    return fmt::format("[nccl] the ranks of group '{}' were not connected within {} ms",
                       options_.name, time.count());
  return fmt::format("[nccl] {} did not join group '{}' within {} ms", list_ranks(absent, names()),
                     options_.name, time.count());
}

NcclGroup::~NcclGroup() {
  try {
    if (turn > 0) publish_reached(turn - 1);
    options_.store->set(key(fmt::format("left/{}", rank())), "1");
    forget_group();
  } catch (const Error& error) {
    logging::debug("[nccl] no goodbye from group '{}': {}", options_.name, error.what());
  }
}

// A rank that is not connected yet may still read who has joined, so the last one removes all keys.
void NcclGroup::forget_joining() {
  Store& store = *options_.store;
  if (store.add(key("connected"), 1) < size()) return;
  for (int peer = 0; peer < size(); ++peer) store.remove(key(fmt::format("here/{}", peer)));
  store.remove(key("id"));
  store.remove(key("connected"));
}

void NcclGroup::forget_group() {
  Store& store = *options_.store;
  for (int peer = 0; peer < size(); ++peer)
    if (out_[static_cast<std::size_t>(peer)].id) store.remove(message_key(rank(), peer));
  if (store.add(key("gone"), 1) < size()) return;
  for (int peer = 0; peer < size(); ++peer) {
    store.remove(key(fmt::format("reached/{}", peer)));
    store.remove(key(fmt::format("left/{}", peer)));
  }
  store.remove(key("failure"));
  store.remove(key("gone"));
}

std::string NcclGroup::key(std::string_view what) const {
  return fmt::format("nccl/{}/{}", options_.name, what);
}

std::string NcclGroup::message_key(int from, int to) const {
  return key(fmt::format("way/{}-{}", from, to));
}

std::string NcclGroup::find(const std::string& key) const {
  try {
    return options_.store->get(key, Clock::now());
  } catch (const Error&) {
    return {};
  }
}

MessageConnection& NcclGroup::message_connection(int peer, bool out) {
  return (out ? out_ : in_)[static_cast<std::size_t>(peer)];
}

bool NcclGroup::connect(MessageConnection& messages, int peer, bool out) {
  if (!messages.id) {
    const std::string name = out ? message_key(rank(), peer) : message_key(peer, rank());
    const std::string id = out ? new_id() : find(name);
    if (id.empty()) return false;
    if (out)
      options_.store->set(name, id);
    else
      options_.store->remove(name);  // no other rank reads it
    messages.id = id_of(id);
  }
  if (!messages.connection) messages.connection = &connections_.add(out ? 0 : 1, 2, *messages.id);
  return connections_.ready(*messages.connection);
}

void NcclGroup::publish_reached(std::uint64_t sequence) {
  if (sequence + 1 <= reached_) return;
  reached_ = sequence + 1;
  options_.store->set(key(fmt::format("reached/{}", rank())), std::to_string(reached_));
}

std::vector<int> NcclGroup::missing(std::uint64_t sequence) const {
  std::vector<int> ranks;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const std::string reached = find(key(fmt::format("reached/{}", peer)));
    if (reached.empty() || std::stoull(reached) <= sequence) ranks.push_back(peer);
  }
  return ranks;
}

void NcclGroup::publish_failure(GroupFailure failure, const std::string& text) noexcept {
  try {
    options_.store->set(
        key("failure"),
        fmt::format("{}{}", static_cast<char>('0' + static_cast<int>(failure)), text));
  } catch (const std::exception& error) {
    logging::warn("[nccl] could not publish the failure of group '{}' to its other ranks: {}",
                  options_.name, error.what());
  }
}

void NcclGroup::check_published_failure() const {
  const std::string failure = find(key("failure"));
  if (!failure.empty())
    throw_failure(static_cast<GroupFailure>(failure.front() - '0'), failure.substr(1));
}

void NcclGroup::check_left(std::uint64_t sequence, const std::string& waiting_for) const {
  for (int peer : missing(sequence)) {
    if (find(key(fmt::format("left/{}", peer))).empty()) continue;
    throw_first_failure(options_.membership.get(), [this] { check_published_failure(); });
    fail<AbortedError>("rank {} has left the group; rank {} still waits for it: {}", names()[peer],
                       names()[rank()], waiting_for);
  }
}

void NcclGroup::abort(GroupFailure failure, const std::string& text) noexcept {
  try {
    throw_failure(failure, text);
  } catch (...) {
    connections_.abort(std::current_exception());
  }
}

}  // namespace tandem::nccl_backend
