#include "comm/gloo/module/device.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>

#include "comm/rendezvous/descriptors.h"
#include "core/threads.h"

namespace tandem::gloo_backend {
namespace {

namespace tcp = gloo::transport::tcp;

constexpr int kRoundMs = 10;  // as Gloo's: its destructors wait for the thread's next round

// The members of Gloo's loop, which are private. An explicit instantiation may name them.
template <class Tag, auto Member>
struct Grant {
  friend constexpr auto member(Tag) { return Member; }
};
#define TANDEM_GRANT(tag, member_of)   \
  struct tag {                         \
    friend constexpr auto member(tag); \
  };                                   \
  template struct Grant<tag, &member_of>
TANDEM_GRANT(LoopOfDevice, tcp::Device::loop_);
TANDEM_GRANT(Descriptor, tcp::Loop::fd_);
TANDEM_GRANT(Done, tcp::Loop::done_);
TANDEM_GRANT(Thread, tcp::Loop::loop_);
TANDEM_GRANT(Ticked, tcp::Loop::cv_);
#undef TANDEM_GRANT

tcp::Loop& loop_of(tcp::Device& device) { return *(device.*member(LoopOfDevice())); }

}  // namespace

GlooDevice::Wake::Wake() : event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event.is_open()) fail_out_of_descriptors();
}

void GlooDevice::Wake::signal() const noexcept { eventfd_write(event.descriptor(), 1); }

void GlooDevice::Wake::handleEvents(int) {
  eventfd_t ignored = 0;
  eventfd_read(event.descriptor(), &ignored);
}

GlooDevice::GlooDevice(const tcp::attr& attributes) : Device(attributes) {
  registerDescriptor(wake_.event.descriptor(), EPOLLIN, &wake_);
  take_over();
}

GlooDevice::~GlooDevice() {
  tcp::Loop& loop = loop_of(*this);
  loop.*member(Done()) = true;
  wake_.signal();
  process_.join(*(loop.*member(Thread())));
  (loop.*member(Thread())).reset();
  if (!hears_) loop.*member(Descriptor()) = -1;  // not to be closed: it may be another's
}

// Gloo's thread ends, and one of this class becomes the loop's.
void GlooDevice::take_over() {
  tcp::Loop& loop = loop_of(*this);
  std::unique_ptr<std::thread>& thread = loop.*member(Thread());
  loop.*member(Done()) = true;
  wake_.signal();
  thread->join();
  thread.reset();
  loop.*member(Done()) = false;
  thread = std::make_unique<std::thread>(start_thread([this] { run(); }));
}

void GlooDevice::forget(int descriptor) noexcept {
  epoll_ctl(loop_of(*this).*member(Descriptor()), EPOLL_CTL_DEL, descriptor, nullptr);
}

void GlooDevice::pass() noexcept {
  if (!process_.is_this()) return;
  std::unique_lock lock(mutex_);
  const std::uint64_t before = round_;
  wake_.signal();
  passed_.wait(lock, [&] { return round_ != before; });
}

void GlooDevice::run() {
  tcp::Loop& loop = loop_of(*this);
  std::array<epoll_event, 64> events;
  while (!(loop.*member(Done()))) {
    {
      const std::lock_guard lock(mutex_);
      ++round_;
    }
    passed_.notify_all();
    (loop.*member(Ticked())).notify_all();
    const int count = epoll_wait(loop.*member(Descriptor()), events.data(),
                                 static_cast<int>(events.size()), kRoundMs);
    if (count < 0 && errno != EINTR) {
      hears_ = false;
      std::this_thread::sleep_for(std::chrono::milliseconds(kRoundMs));
    }
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      static_cast<tcp::Handler*>(event.data.ptr)->handleEvents(static_cast<int>(event.events));
    }
  }
}

}  // namespace tandem::gloo_backend
