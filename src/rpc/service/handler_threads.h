// The threads of a server. They run handlers, and read from the connections of this host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "comm/rendezvous/socket.h"

namespace tandem::rpc {

// A descriptor that handler threads wait for.
class Source {
 public:
  virtual ~Source() = default;
  virtual int descriptor() const = 0;
  // Runs on a handler thread when arm() has found something. Does not wait, and arms itself again
  // or is forgotten. Two threads may be in here after it has armed itself.
  virtual void ready() = 0;
};

// One thread more than handlers run at the same time, so that one always reads from sources. A task
// goes to the thread that became idle last, whose memory is most likely in the caches.
class HandlerThreads {
 public:
  // `handlers`: the largest number of tasks that run at the same time. `waiting`: the largest
  // number that wait. Throws ResourceExhaustedError at this process's descriptor limit.
  HandlerThreads(int handlers, int waiting);
  // Runs the tasks that wait, and returns when all have returned.
  ~HandlerThreads();
  // False if too many wait. Tasks do not throw.
  bool submit(std::function<void()> task);
  // For Source::ready(), whose thread runs the task next unless all handlers are busy.
  bool submit_from_source(std::function<void()> task);

  // Keeps the source until forget(), and waits until it is readable, once. Throws
  // ResourceExhaustedError if the system has no more room for it.
  void watch(std::shared_ptr<Source> source);
  // Waits until the source is readable, or also until it is writable, once more. Does nothing to
  // sources that are not watched.
  void arm(const Source& source, bool until_writable);
  void forget(const Source& source);

 private:
  void work();
  bool run_one();  // false if no task can run now
  void wait_for_event();
  void wake();

  const std::size_t most_running_, most_waiting_;
  const Socket events_, wakes_;  // an epoll and an eventfd descriptor
  std::mutex mutex_;             // guards the following
  std::deque<std::function<void()>> waiting_;
  std::size_t running_ = 0;
  bool ends_ = false;
  std::unordered_map<int, std::shared_ptr<Source>> sources_;  // by descriptor
  std::vector<std::jthread> threads_;  // the last member: they use the others
};

}  // namespace tandem::rpc
