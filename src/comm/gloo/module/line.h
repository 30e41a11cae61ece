// Sends and receives of one thread, whose waits another thread may end.
#pragma once

#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tandem::gloo_backend {

class Mesh;

// What is sent with a number arrives at a receive of that number, in order. Collectives have four
// phases, and 24 bits to tell calls apart that are not the same.
constexpr std::uint64_t collective_slot(std::uint64_t sequence, int phase, std::uint64_t call = 0) {
  return call << 38 |
         (sequence << 2 | static_cast<std::uint64_t>(phase)) % (std::uint64_t{1} << 38);
}
constexpr std::uint64_t kMessageSlots = std::uint64_t{1} << 62;
constexpr std::uint64_t kSentinelSlot = std::uint64_t{1} << 63;

// A send or a receive under way. Destroying it ends what Gloo does with the memory.
struct Post {
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  int peer = 0;
  bool sends = false;
};

// Gloo has no wait without a limit.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

// Thrown out of waits that stop() has ended.
struct Stopped {};

class Line {
 public:
  explicit Line(const Mesh& mesh) : mesh_(mesh) {}

  // What errors say that this rank is waiting for.
  void describe(std::string what) { what_ = std::move(what); }
  const std::string& description() const { return what_; }

  // Neither waits. Throw as wait() does. REQUIRES: bytes > 0.
  Post send(int peer, std::uint64_t slot, const void* data, std::size_t bytes);
  Post recv(int peer, std::uint64_t slot, void* data, std::size_t bytes);
  // Throws Stopped; when the connection broke, what Mesh::throw_broken() does. A wait that reaches
  // a limit breaks all connections of the group, so that limits are for whoever stops this.
  void wait(Post& post, std::chrono::milliseconds limit = kForever);

  // From another thread: ends the wait under way, and all later ones.
  void stop();
  // The peer that the wait under way is for; -1: none.
  int waits_for() const;

 private:
  const Mesh& mesh_;
  std::string what_;
  mutable std::mutex mutex_;
  Post* current_ = nullptr;
  bool stopped_ = false;
};

// Which of these receives have completed. REQUIRES: nobody waits for them. Gloo reports only to a
// thread that waits, so this call waits briefly. Where the process may have no further thread, it
// stops at the first receive that has not completed.
std::vector<bool> have_arrived(std::span<Post* const> posts);

}  // namespace tandem::gloo_backend
