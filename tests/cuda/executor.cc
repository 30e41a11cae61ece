#include "cuda/executor.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/shared_memory.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace tandem::executor {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;
constexpr std::size_t kGuardBytes = std::size_t{4} << 10;

// A stack with a guard page at its end.
class Stack {
 public:
  Stack()
      : memory_(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0)) {
    if (memory_ == MAP_FAILED || mprotect(memory_, kGuardBytes, PROT_NONE) != 0)
      throw std::bad_alloc();
  }
  ~Stack() {
    clear();
    munmap(memory_, kStackBytes);
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  void* base() const { return static_cast<char*>(memory_) + kGuardBytes; }
  static constexpr std::size_t size() { return kStackBytes - kGuardBytes; }
  // Tells AddressSanitizer that the previous frames are gone.
  void clear() const {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(base(), size());
#endif
  }

 private:
  void* memory_;
};

// An execution context, with the information that AddressSanitizer needs.
struct Context {
  const void* stack = nullptr;
  std::size_t stack_bytes = 0;
  void (*begin)() = nullptr;  // where it begins; null once it has
  jmp_buf machine{};          // where it goes on
};

// Runs `begin` on its stack.
void begin_context(Context& context) {
  ucontext_t machine{};  // the sanitizer reads its stack's size before there is one
  getcontext(&machine);
  machine.uc_stack.ss_sp = const_cast<void*>(context.stack);
  machine.uc_stack.ss_size = context.stack_bytes;
  machine.uc_link = nullptr;
  makecontext(&machine, std::exchange(context.begin, nullptr), 0);
  setcontext(&machine);
}

// `last`: `from` will never run again. Returns when another context switches to `from`. Threads
// switch at every shuffle, so it makes no system call, as swapcontext() would for the signal mask.
void switch_context(Context& from, Context& to, bool last = false) {
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack, to.stack, to.stack_bytes);
#endif
  static_cast<void>(last);
  if (_setjmp(from.machine) == 0) {
    if (to.begin) begin_context(to);
    _longjmp(to.machine, 1);
  }
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

struct Fiber;

struct Meeting {
  std::string_view intrinsic;
  unsigned mask, arrived;
  Values values;
  std::vector<Fiber*> waiting;
};

// Runs threads of the grid, one after another. A waiting thread keeps its fiber.
struct Fiber {
  explicit Fiber(std::unique_ptr<Stack> on) : memory(std::move(on)) {
    context.stack = memory->base();
    context.stack_bytes = Stack::size();
  }
  std::unique_ptr<Stack> memory;
  Context context;
  unsigned thread = 0;               // index in the block
  uint3 index{};                     // the same as threadIdx
  const char* waits_for = nullptr;   // null if it does not wait
  unsigned mask = 0;                 // the warp mask that it waits for
  std::shared_ptr<Meeting> meeting;  // its last, whose values it may still read
};

struct Cancelled {};  // unwinds the waiting threads when another has failed

// The shared memory of all kernels.
class SharedMemory {
 public:
  static SharedMemory& get() {
    static auto* const memory = new SharedMemory;
    return *memory;
  }

  void add(const void* inside) {
    const std::lock_guard lock(mutex_);
    added_.push_back(inside);
  }
  void spoil() {
    const std::lock_guard lock(mutex_);
    for (const void* inside : std::exchange(added_, {})) find(inside);
    for (const std::span<std::byte> variable : variables_)
      std::memset(variable.data(), 0xff, variable.size());
  }

 private:
  // Each source file of a program or library adds to it.
  void find(const void* inside) {
    Dl_info file;
    if (dladdr(inside, &file) == 0 || !known_.insert(file.dli_fbase).second) return;
    const auto found = shared_memory_of(inside);
    variables_.insert(variables_.end(), found.begin(), found.end());
  }

  std::mutex mutex_;
  std::vector<const void*> added_;
  std::set<const void*> known_;
  std::vector<std::span<std::byte>> variables_;
};

class Grid;
Grid* running = nullptr;

class Grid {
 public:
  Grid(dim3 blocks, dim3 threads, const std::function<void()>& body)
      : blocks_(blocks), threads_(threads), body_(body), count_(threads.x * threads.y * threads.z) {
    order_.resize(count_);
    std::iota(order_.begin(), order_.end(), 0u);
    std::shuffle(order_.begin(), order_.end(), std::minstd_rand(count_));
  }
  ~Grid() {
    ending_ = true;
    for (const std::unique_ptr<Fiber>& fiber : fibers_) {
      resume(*fiber);
      fiber->memory->clear();
      stacks().push_back(std::move(fiber->memory));
    }
  }
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  void run() {
    gridDim = blocks_;
    blockDim = threads_;
    for (unsigned z = blocks_.z; z-- > 0;)
      for (unsigned y = blocks_.y; y-- > 0;)
        for (unsigned x = blocks_.x; x-- > 0;) {
          blockIdx = {x, y, z};
          SharedMemory::get().spoil();
          run_block();
        }
  }

  void barrier() {
    const unsigned thread = current_->thread;
    if (returned_count_ > 0) {
      unsigned other = 0;
      while ((gone_[other / kLanes] >> other % kLanes & 1u) == 0) ++other;
      fail(fmt::format("thread {} reaches __syncthreads(), and thread {} has returned", thread,
                       other));
    }
    if (at_barrier_.size() + 1 < count_) {
      at_barrier_.push_back(current_);
      wait("__syncthreads()", 0);
    } else {
      ready_.insert(ready_.end(), at_barrier_.begin(), at_barrier_.end());
      at_barrier_.clear();
    }
  }

  const Values& exchange(const char* intrinsic, unsigned mask, std::uint64_t mine) {
    Fiber& me = *current_;
    const unsigned warp = me.thread / kLanes, lane = me.thread % kLanes;
    if ((mask >> lane & 1u) == 0)
      fail(fmt::format("lane {} calls {} with mask {:#x}, which it is not in", lane, intrinsic,
                       mask));
    if (const unsigned missing = mask & gone_[warp]) {
      const int other = std::countr_zero(missing);
      fail(fmt::format("lane {} calls {} with mask {:#x}, and lane {} {}", lane, intrinsic, mask,
                       other, warp * kLanes + other >= count_ ? "does not exist" : "has returned"));
    }
    std::vector<std::shared_ptr<Meeting>>& open = meetings_[warp];
    const auto found = std::find_if(open.begin(), open.end(), [&](const auto& each) {
      return each->mask == mask && each->intrinsic == intrinsic;
    });
    if (found != open.end())
      me.meeting = *found;
    else
      me.meeting = open.emplace_back(new Meeting{intrinsic, mask, 0, {}, {}});
    Meeting& meeting = *me.meeting;
    meeting.arrived |= 1u << lane;
    meeting.values[lane] = mine;
    if (meeting.arrived == mask) {
      std::erase(open, me.meeting);
      ready_.insert(ready_.end(), meeting.waiting.begin(), meeting.waiting.end());
    } else {
      meeting.waiting.push_back(&me);
      wait(intrinsic, mask);
    }
    return meeting.values;
  }

  int lane() const { return static_cast<int>(current_->thread % kLanes); }

 private:
  // A pool of stacks that no grid uses.
  static std::vector<std::unique_ptr<Stack>>& stacks() {
    static auto* const all = new std::vector<std::unique_ptr<Stack>>;
    return *all;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw KernelError(
        fmt::format("block ({}, {}, {}): {}", blockIdx.x, blockIdx.y, blockIdx.z, what));
  }

  void run_block() {
    next_ = 0;
    returned_count_ = 0;
    gone_.assign((count_ + kLanes - 1) / kLanes, 0);
    if (const unsigned last = count_ % kLanes; last > 0) gone_.back() = ~0u << last;
    meetings_.assign(gone_.size(), {});
    while (returned_count_ < count_ && !failure_) {
      if (Fiber* const next = next_fiber())
        resume(*next);
      else
        failure_ = std::make_exception_ptr(KernelError(stand_still()));
    }
    if (!failure_) return;
    for (const std::unique_ptr<Fiber>& fiber : fibers_)
      if (fiber->waits_for != nullptr) resume(*fiber);  // resumed for cancellation
    std::rethrow_exception(failure_);
  }

  std::string stand_still() const {
    std::string text =
        fmt::format("block ({}, {}, {}): no thread can go on:", blockIdx.x, blockIdx.y, blockIdx.z);
    int listed = 0;
    for (const std::unique_ptr<Fiber>& fiber : fibers_)
      if (fiber->waits_for != nullptr && ++listed <= 4)
        text += fmt::format(" thread {} waits in {}{};", fiber->thread, fiber->waits_for,
                            fiber->mask ? fmt::format(", mask {:#x}", fiber->mask) : "");
    return text + fmt::format(" {} of {} threads have returned", returned_count_, count_);
  }

  // A fiber that can go on or start a thread; null if there is none.
  Fiber* next_fiber() {
    if (ready_.empty()) return next_ < count_ ? &idle_fiber() : nullptr;
    Fiber* const next = ready_.front();
    ready_.pop_front();
    return next;
  }

  Fiber& idle_fiber() {
    if (!idle_.empty()) {
      Fiber* const fiber = idle_.back();
      idle_.pop_back();
      return *fiber;
    }
    std::unique_ptr<Stack> stack;
    if (stacks().empty()) {
      stack = std::make_unique<Stack>();
    } else {
      stack = std::move(stacks().back());
      stacks().pop_back();
    }
    Fiber& fiber = *fibers_.emplace_back(std::make_unique<Fiber>(std::move(stack)));
    fiber.context.begin = [] { running->run_fiber(); };
    return fiber;
  }

  void resume(Fiber& fiber) {
    current_ = &fiber;
    switch_context(scheduler_, fiber.context);
  }

  void run_fiber() {
#if defined(__SANITIZE_ADDRESS__)
    Context before;
    __sanitizer_finish_switch_fiber(nullptr, &before.stack, &before.stack_bytes);
    if (!scheduler_.stack) {  // it started the first fiber
      scheduler_.stack = before.stack;
      scheduler_.stack_bytes = before.stack_bytes;
    }
#endif
    Fiber& me = *current_;
    while (!ending_) {
      while (next_ < count_ && !failure_) run_thread(me, order_[next_++]);
      idle_.push_back(&me);
      switch_context(me.context, scheduler_);
    }
    switch_context(me.context, scheduler_, /*last=*/true);
    std::abort();
  }

  void run_thread(Fiber& me, unsigned thread) {
    me.thread = thread;
    me.index = {thread % threads_.x, thread / threads_.x % threads_.y,
                thread / threads_.x / threads_.y};
    threadIdx = me.index;
    try {
      body_();
      check_return(thread);
    } catch (const Cancelled&) {
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
    gone_[thread / kLanes] |= 1u << thread % kLanes;
    ++returned_count_;
  }

  // No thread may wait for a thread that returns.
  void check_return(unsigned thread) const {
    if (!at_barrier_.empty())
      fail(fmt::format("thread {} returns, and thread {} waits in __syncthreads()", thread,
                       at_barrier_.front()->thread));
    const unsigned lane = thread % kLanes;
    for (const std::shared_ptr<Meeting>& each : meetings_[thread / kLanes])
      if ((each->mask >> lane & 1u) != 0)
        fail(fmt::format("lane {} returns, and lane {} waits in {}, mask {:#x}", lane,
                         each->waiting.front()->thread % kLanes, each->intrinsic, each->mask));
  }

  void wait(const char* what, unsigned mask) {
    Fiber& me = *current_;
    me.waits_for = what;
    me.mask = mask;
    current_ = failure_ ? nullptr : next_fiber();
    switch_context(me.context, current_ ? current_->context : scheduler_);
    me.waits_for = nullptr;
    if (failure_) throw Cancelled();
    threadIdx = me.index;
  }

  const dim3 blocks_, threads_;
  const std::function<void()>& body_;
  const unsigned count_;  // threads per block
  std::vector<unsigned> order_;
  Context scheduler_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  Fiber* current_ = nullptr;
  bool ending_ = false;

  // The state of the current block.
  unsigned next_ = 0;  // the next thread to start, in order_
  unsigned returned_count_ = 0;
  std::vector<unsigned> gone_;  // per warp, the lanes that have returned or do not exist
  std::deque<Fiber*> ready_;
  std::vector<Fiber*> at_barrier_;
  std::vector<std::vector<std::shared_ptr<Meeting>>> meetings_;  // per warp
  std::exception_ptr failure_;
};

}  // namespace

bool add_kernels(const void* inside) {
  SharedMemory::get().add(inside);
  return true;
}

void run_grid(dim3 blocks, dim3 threads, const std::function<void()>& thread) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  Grid grid(blocks, threads, thread);
  running = &grid;
  grid.run();
}

void block_barrier() { running->barrier(); }

const Values& exchange(const char* intrinsic, unsigned mask, std::uint64_t mine) {
  return running->exchange(intrinsic, mask, mine);
}

int my_lane() { return running->lane(); }

}  // namespace tandem::executor
