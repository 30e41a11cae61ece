#include "comm/gloo/module/line.h"

#include <gloo/common/error.h>

#include <atomic>
#include <thread>

#include "comm/gloo/module/mesh.h"
#include "comm/gloo/module/sigpipe.h"

namespace tandem::gloo_backend {

Post Line::send(int peer, std::uint64_t slot, const void* data, std::size_t bytes) {
  Post post{mesh_.context().createUnboundBuffer(const_cast<void*>(data), bytes), peer, true};
  try {
    post.buffer->send(peer, slot);
  } catch (const std::exception& error) {
    mesh_.throw_broken(peer, what_, error.what());
  }
  return post;
}

Post Line::recv(int peer, std::uint64_t slot, void* data, std::size_t bytes) {
  Post post{mesh_.context().createUnboundBuffer(data, bytes), peer, false};
  try {
    post.buffer->recv(peer, slot);
  } catch (const std::exception& error) {
    mesh_.throw_broken(peer, what_, error.what());
  }
  return post;
}

void Line::wait(Post& post, std::chrono::milliseconds limit) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) throw Stopped();
    current_ = &post;
  }
  bool done = false;
  std::string reason;
  try {
    done =
        post.sends ? post.buffer->waitSend(nullptr, limit) : post.buffer->waitRecv(nullptr, limit);
  } catch (const std::exception& error) {
    reason = error.what();
  }
  {
    const std::lock_guard lock(mutex_);
    current_ = nullptr;
    if (stopped_) throw Stopped();
  }
  if (!done) mesh_.throw_broken(post.peer, what_, reason);
}

void Line::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (!current_) return;
  current_->buffer->abortWaitSend();
  current_->buffer->abortWaitRecv();
}

int Line::waits_for() const {
  const std::lock_guard lock(mutex_);
  return current_ ? current_->peer : -1;
}

std::vector<bool> have_arrived(std::span<Post* const> posts) {
  const NoSigpipe quiet;
  std::atomic<std::size_t> ended{0};
  std::vector<char> arrived(posts.size(), 0), waiting(posts.size(), 1);
  std::mutex mutex;
  std::vector<std::thread> waiters;
  for (std::size_t i = 0; i < posts.size(); ++i)
    waiters.emplace_back([&, i] {
      bool here = false;
      try {
        here = posts[i]->buffer->waitRecv(nullptr, kForever);
      } catch (const std::exception&) {
        // Its connection broke first.
      }
      const std::lock_guard lock(mutex);
      arrived[i] = here;
      waiting[i] = 0;
      ++ended;
    });
  for (int i = 0; i < 100 && ended < posts.size(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  {
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < posts.size(); ++i)
      if (waiting[i]) posts[i]->buffer->abortWaitRecv();
  }
  for (std::thread& waiter : waiters) waiter.join();
  return {arrived.begin(), arrived.end()};
}

}  // namespace tandem::gloo_backend
