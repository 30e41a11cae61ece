#include "rpc/service/handler_threads.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/status.h"

namespace tandem::rpc {
namespace {

constexpr std::uint32_t kOnce = EPOLLIN | EPOLLONESHOT;

Socket opened(int descriptor) {
  if (descriptor < 0)
    fail<ResourceExhaustedError>("[rpc] no descriptor is left for a server's threads: {}",
                                 std::strerror(errno));
  return Socket(descriptor);
}

bool control(const Socket& events, int operation, int descriptor, std::uint32_t wanted) {
  epoll_event event = {.events = wanted, .data = {.fd = descriptor}};
  return epoll_ctl(events.descriptor(), operation, descriptor, &event) == 0;
}

}  // namespace

HandlerThreads::HandlerThreads(int handlers, int waiting)
    : most_running_(static_cast<std::size_t>(handlers)),
      most_waiting_(static_cast<std::size_t>(waiting)),
      events_(opened(epoll_create1(EPOLL_CLOEXEC))),
      wakes_(opened(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  // Each write is one event, so nothing reads the counter.
  if (!control(events_, EPOLL_CTL_ADD, wakes_.descriptor(), EPOLLIN | EPOLLET))
    fail<ResourceExhaustedError>("[rpc] cannot wait for events: {}", std::strerror(errno));
  for (int i = 0; i < handlers + 1; ++i) threads_.emplace_back([this] { work(); });
}

HandlerThreads::~HandlerThreads() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake();
}

bool HandlerThreads::submit(std::function<void()> task) {
  if (!submit_from_source(std::move(task))) return false;
  wake();
  return true;
}

bool HandlerThreads::submit_from_source(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= most_waiting_) return false;
  waiting_.push_back(std::move(task));
  return true;
}

void HandlerThreads::watch(std::shared_ptr<Source> source) {
  const int descriptor = source->descriptor();
  {
    const std::lock_guard lock(mutex_);
    sources_[descriptor] = std::move(source);
  }
  if (control(events_, EPOLL_CTL_ADD, descriptor, kOnce)) return;
  const std::string why = std::strerror(errno);
  const std::lock_guard lock(mutex_);
  sources_.erase(descriptor);
  fail<ResourceExhaustedError>("[rpc] cannot wait for a connection: {}", why);
}

void HandlerThreads::arm(const Source& source, bool until_writable) {
  const std::uint32_t writable = until_writable ? std::uint32_t{EPOLLOUT} : 0;
  control(events_, EPOLL_CTL_MOD, source.descriptor(), kOnce | writable);
}

void HandlerThreads::forget(const Source& source) {
  control(events_, EPOLL_CTL_DEL, source.descriptor(), 0);
  std::shared_ptr<Source> last;  // released after the mutex
  const std::lock_guard lock(mutex_);
  const auto found = sources_.find(source.descriptor());
  if (found == sources_.end() || found->second.get() != &source) return;
  last = std::move(found->second);
  sources_.erase(found);
}

void HandlerThreads::wake() {
  const std::uint64_t one = 1;
  // Fails only if the counter is full, which takes centuries.
  [[maybe_unused]] const ssize_t written = write(wakes_.descriptor(), &one, sizeof(one));
}

bool HandlerThreads::run_one() {
  std::function<void()> task;
  bool more = false;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty() || running_ == most_running_) return false;
    task = std::move(waiting_.front());
    waiting_.pop_front();
    ++running_;
    more = !waiting_.empty() && running_ < most_running_;
  }
  if (more) wake();  // two wakes may have been one event
  task();
  task = nullptr;
  const std::lock_guard lock(mutex_);
  --running_;
  return true;
}

void HandlerThreads::work() {
  while (true) {
    while (run_one()) {
    }
    {
      const std::lock_guard lock(mutex_);
      if (ends_ && waiting_.empty()) break;
    }
    wait_for_event();
  }
  wake();  // the next thread ends, too
}

void HandlerThreads::wait_for_event() {
  epoll_event event = {};
  if (epoll_wait(events_.descriptor(), &event, 1, -1) != 1) return;
  std::shared_ptr<Source> source;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = sources_.find(event.data.fd); found != sources_.end())
      source = found->second;
  }
  if (source) source->ready();
}

}  // namespace tandem::rpc
