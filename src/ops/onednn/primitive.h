// Describes, runs and caches primitives, for the functions of onednn.h.
#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "core/status.h"
#include "core/thread_object.h"
#include "ops/onednn/onednn.h"

namespace tandem::onednn {

using dnnl::memory;

const dnnl::engine& cpu();

inline memory::data_type data_type(DType dtype) {
  return dtype == bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// Creates a primitive descriptor for both generations of oneDNN: 2.x needs an additional operation
// descriptor. `hint` is the forward descriptor, which backward ones need.
#if DNNL_VERSION_MAJOR < 3
template <class P, class... Args>
typename P::primitive_desc describe(const dnnl::primitive_attr& attr, const Args&... args) {
  return typename P::primitive_desc(typename P::desc(args...), attr, cpu());
}
template <class P, class Hint, class... Args>
typename P::primitive_desc describe_backward(const dnnl::primitive_attr& attr, const Hint& hint,
                                             const Args&... args) {
  return typename P::primitive_desc(typename P::desc(args...), attr, cpu(), hint);
}
#else
template <class P, class... Args>
typename P::primitive_desc describe(const dnnl::primitive_attr& attr, const Args&... args) {
  return typename P::primitive_desc(cpu(), args..., attr);
}
template <class P, class Hint, class... Args>
typename P::primitive_desc describe_backward(const dnnl::primitive_attr& attr, const Hint& hint,
                                             const Args&... args) {
  return typename P::primitive_desc(cpu(), args..., hint, attr);
}
#endif

inline dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// A primitive with the memory objects of its arguments, whose addresses are set at each run. Not
// thread-safe.
class Executable {
 public:
  struct Argument {
    int id;
    memory::desc desc;
  };

  Executable(const dnnl::primitive& primitive, const memory::desc& scratchpad,
             std::initializer_list<Argument> arguments);

  // `addresses` has one address per argument, in the order of the constructor's arguments.
  void run(KernelContext& context, std::initializer_list<const void*> addresses);
  // The same with the caller's scratch memory of scratchpad_bytes(). Does not throw.
  dnnl_status_t run_in(void* scratchpad, std::initializer_list<const void*> addresses);
  std::size_t scratchpad_bytes() const { return scratchpad_bytes_; }

 private:
  void add(const Argument& argument);

  dnnl::primitive primitive_;
  std::size_t scratchpad_bytes_;
  std::vector<memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// Throws InternalError if a run failed.
void check(dnnl_status_t status);

std::unique_ptr<Executable> make_reorder(const memory::desc& from, const memory::desc& to);

enum class PrimitiveKind : std::int64_t {
  kMatMul,
  kPackedMatMul,
  kConvForward,
  kConvInput,
  kConvFilter
};

// The key of a cached plan: everything that the plan depends on, as integers.
class PrimitiveKey {
 public:
  explicit PrimitiveKey(PrimitiveKind kind, DType dtype) {
    // oneDNN decides how to divide the work over threads when a primitive is created.
    add(static_cast<std::int64_t>(kind), static_cast<std::int64_t>(dtype), omp_get_max_threads());
  }
  template <class... T>
  void add(T... values) {
    ((words_[size_++] = static_cast<std::int64_t>(values)), ...);
  }
  void add(const Dims& dims) {
    add(dims.size());
    for (std::int64_t dim : dims) add(dim);
  }
  friend bool operator==(const PrimitiveKey& a, const PrimitiveKey& b) {
    return a.size_ == b.size_ &&
           std::equal(a.words_.begin(), a.words_.begin() + a.size_, b.words_.begin());
  }
  struct Hash {
    std::size_t operator()(const PrimitiveKey& key) const {
      std::uint64_t hash = key.size_;
      for (std::size_t i = 0; i < key.size_; ++i)
        hash = (hash ^ static_cast<std::uint64_t>(key.words_[i])) * 0x9e3779b97f4a7c15u,
        hash ^= hash >> 29;
      return hash;
    }
  };

 private:
  std::array<std::int64_t, 32> words_;
  std::size_t size_ = 0;
};

template <class Make>
auto made(const Make& make) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    fail<InternalError>("[oneDNN] cannot create a primitive: {} (status {})", error.message,
                        static_cast<int>(error.status));
  }
}

// The calling thread's plan for `key`, which `make` creates on the first call.
template <class Plan, class Make>
Plan& cached_plan_of_thread(const PrimitiveKey& key, const Make& make) {
  // Limits the memory of programs whose shapes never repeat.
  constexpr std::size_t kMaxPlans = 1024;
  auto& plans = thread_object<std::unordered_map<PrimitiveKey, Plan, PrimitiveKey::Hash>>();
  const auto found = plans.find(key);
  if (found != plans.end()) [[likely]]
    return found->second;
  Plan plan = made(make);
  if (plans.size() >= kMaxPlans) plans.clear();
  return plans.emplace(key, std::move(plan)).first->second;
}

// The plan for a call. A step of a program keeps its own; other calls look one up by key().
template <class Plan, class MakeKey, class Make>
Plan& plan_for(KernelContext& context, const MakeKey& key, const Make& make) {
  struct StepPlan {
    int threads;
    Plan plan;
  };
  std::shared_ptr<void>* storage = context.keep();
  if (!storage) return cached_plan_of_thread<Plan>(key(), make);
  auto* step_plan = static_cast<StepPlan*>(storage->get());
  if (!step_plan || step_plan->threads != omp_get_max_threads()) {
    auto created = std::make_shared<StepPlan>(StepPlan{omp_get_max_threads(), made(make)});
    step_plan = created.get();
    *storage = std::move(created);
  }
  return step_plan->plan;
}

}  // namespace tandem::onednn
