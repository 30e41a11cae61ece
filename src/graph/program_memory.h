// The memory of programs: what their values take while a program runs, shared by programs that do
// not run at the same time.
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

// Belongs to a function, a session or a model. On each device it holds one arena, as large as the
// largest of the programs that have run there, and one more for each run that is under way at the
// same time. Thread-safe. An arena that no run uses is freed when the device runs out of memory.
class ProgramMemory final : public IdleMemory {
 public:
  static std::shared_ptr<ProgramMemory> make();

  // Belongs to one run at a time, which take() and give_back() enclose. Memory of a device is
  // stream-ordered: what the run has enqueued may still use it when the next one takes it.
  class Arena {
   public:
    explicit Arena(Device& device) : device_(device) {}
    ~Arena() { free(); }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    // False: another run has it.
    bool try_take() { return !taken_.test_and_set(std::memory_order_acquire); }
    void give_back() { taken_.clear(std::memory_order_release); }

    // The rest is for who has taken it.

    // Makes it at least that large, for the program of that number. Another program loses what it
    // kept there. False: the device has no room; the arena is empty then.
    bool fit(std::uint64_t program, std::size_t bytes, std::size_t results);
    // Frees everything.
    void free();

    std::byte* memory() const { return memory_; }
    // Where the program keeps its result of that number from run to run.
    Tensor& result(std::size_t index) { return results_[index]; }
    const Device& device() const { return device_; }

   private:
    void free_block();

    Device& device_;
    std::atomic_flag taken_;
    std::byte* memory_ = nullptr;
    std::size_t bytes_ = 0;
    std::uint64_t program_ = 0;  // that the results are of; 0: none
    std::vector<Tensor> results_;
  };

  // An arena of the device that no run had, taken.
  std::shared_ptr<Arena> take(Device& device);
  // For programs that run while another one has its arenas: bodies of loops whose programs are made
  // during a run.
  std::shared_ptr<ProgramMemory> inner();

  void release(const Device& device) override;

 private:
  ProgramMemory() = default;

  std::mutex mutex_;
  std::unordered_map<const Device*, std::vector<std::shared_ptr<Arena>>> arenas_;
  std::shared_ptr<ProgramMemory> inner_;
};

// The arenas of one program, in which the bodies that it runs have their parts.
class ProgramArenas {
 public:
  explicit ProgramArenas(std::shared_ptr<ProgramMemory> memory);

  // --- While the program is made ---

  // Which arena is the device's.
  std::size_t of(Device& device);
  // The arena has to have that many bytes.
  void need(std::size_t arena, std::size_t bytes);
  // A number for one more result.
  std::size_t add_result(std::size_t arena) { return arenas_[arena].results++; }

  // --- While it runs ---

  // Takes all of them. Null, or the device that has no room: then none is taken.
  Device* take();
  void give_back();
  // Frees what they hold, before give_back().
  void free();

  std::byte* memory(std::size_t arena) const { return arenas_[arena].taken->memory(); }
  Tensor& result(std::size_t arena, std::size_t index) {
    return arenas_[arena].taken->result(index);
  }

  std::size_t bytes_on(const Device& device) const;
  const std::shared_ptr<ProgramMemory>& shared() const { return memory_; }

 private:
  struct Part {
    Device* device = nullptr;
    std::size_t bytes = 0;
    std::size_t results = 0;
    std::shared_ptr<ProgramMemory::Arena> taken;  // between runs: the one of the last run
  };

  void give_back(std::size_t count);

  std::shared_ptr<ProgramMemory> memory_;
  const std::uint64_t program_;
  std::vector<Part> arenas_;
};

}  // namespace tandem
