#include "ops/onednn/primitive.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <thread>

#include "core/mutex.h"
#include "core/parallel.h"

namespace tandem::onednn {
namespace {

dnnl::stream& thread_stream() {
  struct Stream {
    dnnl::stream stream{cpu()};
  };
  return thread_object<Stream>().stream;
}

}  // namespace

// Never destroyed, because threads that end late may still hold primitives.
const dnnl::engine& cpu() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

Executable::Executable(const dnnl::primitive& primitive, const memory::desc& scratchpad,
                       std::initializer_list<Argument> arguments)
    : primitive_(primitive), scratchpad_bytes_(scratchpad.get_size()) {
  for (const Argument& argument : arguments) add(argument);
  if (scratchpad_bytes_ > 0) add({DNNL_ARG_SCRATCHPAD, scratchpad});
}

void Executable::run(KernelContext& context, std::initializer_list<const void*> addresses) {
  check(run_in(context.scratch(scratchpad_bytes_), addresses));
}

dnnl_status_t Executable::run_in(void* scratchpad, std::initializer_list<const void*> addresses) {
  TANDEM_ASSERT(addresses.size() + (scratchpad_bytes_ > 0) == memories_.size());
  std::size_t i = 0;
  const auto set = [&](void* address) {
    return dnnl_memory_set_data_handle(memories_[i++].get(), address);
  };
  // oneDNN's API takes mutable pointers, but does not write to inputs.
  for (const void* address : addresses)
    if (const dnnl_status_t status = set(const_cast<void*>(address)); status != dnnl_success)
      return status;
  if (scratchpad_bytes_ > 0)
    if (const dnnl_status_t status = set(scratchpad); status != dnnl_success) return status;
  return dnnl_primitive_execute(primitive_.get(), thread_stream().get(),
                                static_cast<int>(arguments_.size()), arguments_.data());
}

void Executable::add(const Argument& argument) {
  memories_.push_back(memory(argument.desc, cpu(), DNNL_MEMORY_NONE));
  arguments_.push_back({argument.id, memories_.back().get()});
}

void check(dnnl_status_t status) {
  if (status != dnnl_success) [[unlikely]]
    fail<InternalError>("[oneDNN] a primitive failed with status {}", static_cast<int>(status));
}

std::unique_ptr<Executable> make_reorder(const memory::desc& from, const memory::desc& to) {
  const dnnl::reorder::primitive_desc desc(cpu(), from, cpu(), to, attributes());
  return std::make_unique<Executable>(
      dnnl::reorder(desc), desc.scratchpad_desc(),
      std::initializer_list<Executable::Argument>{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

namespace {

// Whether oneDNN uses these instructions: ONEDNN_MAX_CPU_ISA may leave it less than the processor
// has.
bool uses_instructions(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

}  // namespace

bool computes(DType dtype) {
  static const bool native_bfloat16 = uses_instructions(dnnl::cpu_isa::avx512_core_bf16);
  return dtype == float32 || (dtype == bfloat16 && native_bfloat16);
}

// --- the end of the process ---

namespace {

using Clock = std::chrono::steady_clock;

// Uses of something that exit() destroys, and that has locks. A fork waits for them.
class Uses final : public AtFork {
 public:
  Uses() : AtFork(Step::kCalls) { AtFork::begin(); }
  // Returns false once end() has begun.
  bool begin() {
    Thread& mine = thread();
    std::atomic<int>& uses = counts_[mine.number].uses;
    ++uses;
    while (state_ != State::kOpen) [[unlikely]] {
        if (state_ == State::kForking && mine.uses > 0) break;  // one that the fork waits for
        --uses;
        if (state_ == State::kEnding) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        ++uses;
      }
    ++mine.uses;
    return true;
  }
  void finish() {
    --thread().uses;
    --counts_[thread().number].uses;
  }
  bool ending() const { return state_ == State::kEnding; }
  // Waits for the uses under way, up to kExitLimit.
  void end() {
    if (ending()) return;
    ender_ = std::this_thread::get_id();
    limit_ = Clock::now() + kExitLimit;
    state_ = State::kEnding;
    for (const Count& count : counts_)
      while (count.uses > 0 && Clock::now() < limit_)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  bool hold() override {
    State open = State::kOpen;
    state_.compare_exchange_strong(open, State::kForking);
    return open == State::kEnding ||
           std::ranges::none_of(counts_, [](const Count& count) { return count.uses > 0; });
  }
  void after(bool) override {
    State forking = State::kForking;
    state_.compare_exchange_strong(forking, State::kOpen);
  }
  // The new process has none of the threads whose uses were under way.
  void forked(bool) override {
    for (Count& count : counts_) count.uses = 0;
  }
  // REQUIRES: ending().
  void wait_for_the_end() const {
    if (std::this_thread::get_id() != ender_) std::this_thread::sleep_until(limit_);
  }

 private:
  // Each thread counts in one of them, so that they rarely share one.
  struct alignas(64) Count {
    std::atomic<int> uses{0};
  };
  struct Thread {
    std::size_t number;
    int uses = 0;  // of all kinds
  };
  static Thread& thread() {
    static constinit std::atomic<std::size_t> threads = 0;
    static thread_local Thread mine{.number = threads.fetch_add(1) % 64};
    return mine;
  }
  enum class State { kOpen, kForking, kEnding };

  std::array<Count, 64> counts_;
  std::atomic<State> state_ = State::kOpen;
  std::thread::id ender_;  // set before kEnding
  Clock::time_point limit_;
};

// Never destroyed: threads go on until the process has ended.
Uses& primitive_uses() {
  static auto& uses = *new Uses;
  return uses;
}
Uses& gemm_uses() {
  static auto& uses = *new Uses;
  return uses;
}

// Those of the first run of a primitive for AMX, which set its tiles up and release them.
void make_static_objects_of_amx() {
  const memory::desc one({1, 1, 1, 1}, memory::data_type::bf16, memory::format_tag::nhwc),
      kernel({1, 1, 1, 1}, memory::data_type::bf16, memory::format_tag::any);
  const auto desc = describe<dnnl::convolution_forward>(
      dnnl::primitive_attr(), dnnl::prop_kind::forward_inference,
      dnnl::algorithm::convolution_direct, one, kernel, one, memory::dims{1, 1}, memory::dims{0, 0},
      memory::dims{0, 0}, memory::dims{0, 0});
  dnnl::stream stream(cpu());
  dnnl::convolution_forward(desc).execute(stream,
                                          {{DNNL_ARG_SRC, memory(desc.src_desc(), cpu())},
                                           {DNNL_ARG_WEIGHTS, memory(desc.weights_desc(), cpu())},
                                           {DNNL_ARG_DST, memory(desc.dst_desc(), cpu())}});
  stream.wait();
}

// Makes the static objects that oneDNN makes when a primitive of a kind is first created. exit()
// destroys them after those of the host, which are made later.
void make_static_objects() {
  const ThreadBudget alone(1);  // starts no threads
  const memory::desc image({1, 1, 1, 1}, memory::data_type::f32, memory::format_tag::nhwc),
      kernel({1, 1, 1, 1}, memory::data_type::f32, memory::format_tag::any);
  const memory::dims one = {1, 1}, zero = {0, 0};
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const auto forward =
      describe<dnnl::convolution_forward>(attributes(), dnnl::prop_kind::forward_training, kDirect,
                                          image, kernel, image, one, zero, zero, zero);
  describe_backward<dnnl::convolution_backward_data>(attributes(), forward, kDirect, image, kernel,
                                                     image, one, zero, zero, zero);
  describe_backward<dnnl::convolution_backward_weights>(attributes(), forward, kDirect, image,
                                                        kernel, image, one, zero, zero, zero);
  const memory::desc rows({1, 1}, memory::data_type::f32, memory::dims{1, 1});
  make_reorder(rows, rows);
  const dnnl::matmul product(describe<dnnl::matmul>(attributes(), rows, rows, rows));
  if (uses_instructions(dnnl::cpu_isa::avx512_core_amx)) make_static_objects_of_amx();
}

const bool ends_with_the_process = [] {
  try {
    make_static_objects();
  } catch (const std::exception&) {  // for want of memory, say; the first use reports it
  }
  gemm_uses();  // which a fork expects
  return std::atexit([] { primitive_uses().end(); }) == 0;
}();

}  // namespace

Use::Use() {
  if (primitive_uses().begin()) [[likely]]
    return;
  primitive_uses().wait_for_the_end();
  fail<FailedPreconditionError>(
      "[oneDNN] matrix products and convolutions are not possible any more: the process is ending, "
      "and its libraries are being finalized");
}

Use::~Use() { primitive_uses().finish(); }

namespace {

// dnnl_sgemm() makes static objects as it meets new cases, and they take long, so they are not made
// when the library is loaded. An exit of the main thread begins with its thread-local objects: this
// one is made when the library is loaded.
struct MainThreadEnd {
  ~MainThreadEnd() {
    if (gettid() == getpid()) gemm_uses().end();
  }
};
const bool gemm_ends_with_the_main_thread = [] {
  static thread_local const MainThreadEnd end;
  return true;
}();

}  // namespace

GemmUse::GemmUse() : counts_(gemm_uses().begin()) {}

GemmUse::~GemmUse() {
  if (!counts_) return;
  gemm_uses().finish();
  // For an exit on another thread. Handlers and destructors run in reverse order, so the handler is
  // registered again, at increasing intervals.
  static constinit std::atomic<std::uint64_t> ended = 0;
  if (std::has_single_bit(++ended)) std::atexit([] { gemm_uses().end(); });
}

bool GemmUse::possible() { return !gemm_uses().ending(); }

}  // namespace tandem::onednn
