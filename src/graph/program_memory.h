// The memory that the values of programs use during a run. Programs that do not run at the same
// time share it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "device/idle_memory.h"
#include "tensor/tensor_impl.h"

namespace tandem {

// Belongs to a function, a session or a model. On each device it holds one arena per concurrent
// run, as large as the largest program that has run in it. Thread-safe. Unused arenas are freed
// when the device runs out of memory.
class ProgramMemory final : public IdleMemory {
 public:
  static std::shared_ptr<ProgramMemory> make();

  // Used by one run at a time, between take() and give_back(). Device memory is stream-ordered:
  // enqueued kernels of a run may still use it when the next run takes the arena.
  class Arena {
   public:
    explicit Arena(DeviceImpl& device) : device_(device) {}
    ~Arena() { free(); }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    // Returns false if another run uses it.
    bool try_take() { return !taken_.test_and_set(std::memory_order_acquire); }
    void give_back() { taken_.clear(std::memory_order_release); }

    // The functions below are for the run that has taken the arena.
    //
    // Makes it at least that large, for the program of that number. Drops the results that another
    // program kept there. Returns false, with an empty arena, if the device is out of memory.
    bool fit(std::uint64_t program, std::size_t bytes, std::size_t results);
    // Frees everything.
    void free();

    std::byte* memory() const { return memory_; }
    // The tensor of that result, which the program keeps between runs.
    Tensor& result(std::size_t index) { return results_[index]; }
    const DeviceImpl& device() const { return device_; }

   private:
    void free_block();

    DeviceImpl& device_;
    std::atomic_flag taken_;
    std::byte* memory_ = nullptr;
    std::size_t bytes_ = 0;
    std::uint64_t program_ = 0;  // that owns the results; 0 if there is none
    std::vector<Tensor> results_;
  };

  // Takes an unused arena of the device.
  std::shared_ptr<Arena> take(DeviceImpl& device);
  // The memory of programs that are built and run while another program runs: bodies of loops over
  // elements.
  std::shared_ptr<ProgramMemory> inner();

  void release(const DeviceImpl& device) override;

 private:
  ProgramMemory() = default;

  std::mutex mutex_;
  std::unordered_map<const DeviceImpl*, std::vector<std::shared_ptr<Arena>>> arenas_;
  std::shared_ptr<ProgramMemory> inner_;
};

// The arenas of one program and of the bodies that it runs.
class ProgramArenas {
 public:
  explicit ProgramArenas(std::shared_ptr<ProgramMemory> memory);

  // --- While the program is made ---

  // The index of the device's arena.
  std::size_t of(DeviceImpl& device);
  // Requires at least that many bytes of the arena.
  void need(std::size_t arena, std::size_t bytes);
  // Adds a result and returns its index.
  std::size_t add_result(std::size_t arena) { return arenas_[arena].results++; }

  // --- While it runs ---

  // Takes all arenas and returns null. If a device is out of memory, takes none and returns it.
  DeviceImpl* take();
  void give_back();
  // Frees the memory of the arenas. Called before give_back().
  void free();

  std::byte* memory(std::size_t arena) const { return arenas_[arena].taken->memory(); }
  Tensor& result(std::size_t arena, std::size_t index) {
    return arenas_[arena].taken->result(index);
  }

  std::size_t bytes_on(const DeviceImpl& device) const;
  const std::shared_ptr<ProgramMemory>& shared() const { return memory_; }

 private:
  struct DeviceArena {
    DeviceImpl* device = nullptr;
    std::size_t bytes = 0;
    std::size_t results = 0;
    std::shared_ptr<ProgramMemory::Arena> taken;  // between runs, that of the last run
  };

  void give_back(std::size_t count);

  std::shared_ptr<ProgramMemory> memory_;
  const std::uint64_t program_;
  std::vector<DeviceArena> arenas_;
};

}  // namespace tandem
