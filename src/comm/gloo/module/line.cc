#include "comm/gloo/module/line.h"

#include <gloo/common/error.h>

#include <condition_variable>
#include <system_error>
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

namespace {

constexpr std::chrono::milliseconds kFirstWait(100), kNextWait(1);

// Ends waits for receives, which another thread makes one after the other, at their limits: the
// first that is in vain has the longest, in which all that is on its way arrives.
class WaitEnder {
 public:
  explicit WaitEnder(std::span<Post* const> posts) : posts_(posts), thread_([this] { run(); }) {}
  ~WaitEnder() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  // The wait for that receive is next.
  void expect(std::size_t post) {
    {
      const std::lock_guard lock(mutex_);
      current_ = post;
    }
    changed_.notify_one();
  }

 private:
  void run() {
    std::chrono::milliseconds limit = kFirstWait;
    std::unique_lock lock(mutex_);
    while (!over_) {
      const auto moved_on = [this, at = current_] { return over_ || current_ != at; };
      if (changed_.wait_for(lock, limit, moved_on)) continue;
      posts_[current_]->buffer->abortWaitRecv();
      limit = kNextWait;
      changed_.wait(lock, moved_on);
    }
  }

  std::span<Post* const> posts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t current_ = 0;
  bool over_ = false;
  std::thread thread_;
};

// Whether it is here. Its connection may have broken first.
bool waits_well(Post& post, std::chrono::milliseconds limit) {
  try {
    return post.buffer->waitRecv(nullptr, limit);
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

std::vector<bool> have_arrived(std::span<Post* const> posts) {
  const NoSigpipe quiet;
  std::vector<bool> arrived(posts.size(), true);
  if (posts.empty()) return arrived;
  try {
    WaitEnder ender(posts);
    for (std::size_t i = 0; i < posts.size(); ++i) {
      ender.expect(i);
      arrived[i] = waits_well(*posts[i], kForever);
    }
  } catch (const std::system_error&) {
    // The process may have no further thread. A wait that Gloo ends itself breaks all connections,
    // so that only the first receive that is missing can be told.
    for (std::size_t i = 0; i < posts.size(); ++i) {
      arrived[i] = waits_well(*posts[i], kFirstWait);
      if (!arrived[i]) break;
    }
  }
  return arrived;
}

}  // namespace tandem::gloo_backend
