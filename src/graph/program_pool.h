// The instances of one program, for callers on several threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/mutex.h"
#include "graph/program.h"

namespace tandem {

// Runs of one program need separate instances, each with its steps; their values are in separate
// arenas anyway (ProgramMemory). Instances are made when callers need them: at most one per core of
// the machine if the program may run beside itself, else one. Thread-safe.
class ProgramPool final : AtFork {
  struct Instance {
    std::atomic<std::thread::id> taken{};  // by a thread
    std::unique_ptr<Program> program;      // null until its first use; for the thread that took it
  };

 public:
  // An instance that nothing else uses meanwhile.
  class Lease {
   public:
    Lease(ProgramPool& pool, Instance& instance) : pool_(pool), instance_(instance) {}
    ~Lease() { pool_.give_back(instance_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Program* operator->() const { return instance_.program.get(); }

   private:
    ProgramPool& pool_;
    Instance& instance_;
  };

  // REQUIRES: not null.
  explicit ProgramPool(std::unique_ptr<Program> first);
  ~ProgramPool() override { end(); }

  // Whether the program may run beside itself. If not, callers take turns, by a lock of their own.
  bool concurrent() const { return concurrent_; }
  // REQUIRES: no other caller uses an instance.
  Program& first() { return *instances_[0].program; }
  // An unused instance. `make`: called for another one if all are in use. Waits for one if there
  // are as many as cores. Throws what `make` throws.
  template <class Make>
  Lease take(const Make& make) {
    Instance& instance = take_instance();
    if (instance.program) [[likely]]
      return {*this, instance};
    try {
      instance.program = make();
    } catch (...) {
      give_back(instance);
      throw;
    }
    return {*this, instance};
  }

 private:
  Instance* try_take();
  Instance& take_instance();
  void give_back(Instance& instance);
  void forked(bool held) override;

  const bool concurrent_;
  std::vector<Instance> instances_;  // of a fixed number
  std::atomic<int> waiting_{0};      // threads that wait for an instance
  std::mutex mutex_;
  std::condition_variable given_back_;
  const HeldAtFork held_at_fork_{mutex_, &given_back_};
};

}  // namespace tandem
