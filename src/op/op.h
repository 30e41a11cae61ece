// Definitions of operations. One constant OpDef per operation holds its name, attributes, shape
// rule, gradient, kernels and traits. Dispatch, recording, tracing and passes only use OpDefs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/dim.h"
#include "core/registered.h"
#include "device/device.h"
#include "op/attributes.h"
#include "op/chain_role.h"
#include "tensor/tensor_impl.h"

namespace tandem {

inline constexpr int kMaxInlineTensors = 6;

// A list of specs or views that does not allocate for up to kMaxInlineTensors elements. Unused
// elements are not initialised, because each operation has several lists of one or two elements.
template <class T>
class InlineList {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  InlineList() {}
  InlineList(const InlineList& other) : heap_(other.heap_), size_(other.size_) {
    if (heap_.empty()) std::copy_n(other.inline_, size_, inline_);
  }
  InlineList& operator=(const InlineList& other) {
    heap_ = other.heap_;
    size_ = other.size_;
    if (heap_.empty()) std::copy_n(other.inline_, size_, inline_);
    return *this;
  }

  int size() const { return size_; }
  T& operator[](int i) { return begin()[i]; }
  const T& operator[](int i) const { return begin()[i]; }
  T* begin() { return heap_.empty() ? inline_ : heap_.data(); }
  T* end() { return begin() + size_; }
  const T* begin() const { return heap_.empty() ? inline_ : heap_.data(); }
  const T* end() const { return begin() + size_; }
  T& push_back(const T& value) {
    if (size_ >= kMaxInlineTensors) [[unlikely]] {
      if (heap_.empty()) heap_.assign(inline_, inline_ + size_);
      heap_.push_back(value);
      ++size_;
      return heap_.back();
    }
    return *std::construct_at(inline_ + size_++, value);
  }
  void clear() {
    heap_.clear();
    size_ = 0;
  }

 private:
  union {  // not initialised
    T inline_[kMaxInlineTensors];
  };
  std::vector<T> heap_;
  int size_ = 0;
};

struct OpDef;

// Identifies the random numbers of one operation. The counter-based generator computes an element
// from this key and the element's position.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t number = 0;  // of the random operation
  std::uint32_t stream = 0;  // the replica if replicas get different numbers, else 0
};

// The argument of shape rules: the dtypes and shapes of inputs, and the attributes. A rule adds the
// outputs, or throws InvalidArgumentError "[Op] expected ..., got ...". Sizes may be unknown, of
// inputs and in attributes: rules compute and compare them by the functions of core/dim.h.
class InferContext {
 public:
  InferContext(const OpDef& op, AttrsRef attrs) : op_(op), attrs_(attrs) {}

  const OpDef& op() const { return op_; }
  int num_inputs() const { return inputs.size(); }
  const Shape& shape(int input) const { return spec(input).shape; }
  DType dtype(int input) const { return spec(input).dtype; }
  template <class A>
  const A& attrs() const {
    return *static_cast<const A*>(attrs_.data);
  }
  // Adds the outputs by the operation's rule. Throws InvalidArgumentError as the rule does, and
  // DTypeError if the operation computes and an input or output has a dtype of storage.
  void add_outputs();
  // Throws InvalidArgumentError if the shape is too large for a tensor.
  void add_output(DType dtype, const Shape& shape);
  // Compute sizes from others, which may be unknown (core/dim.h). Throw InvalidArgumentError if the
  // result exceeds kMaxElements. REQUIRES: arguments are sizes.
  std::int64_t product(std::int64_t a, std::int64_t b) const {
    if (!dim::both_known(a, b)) [[unlikely]]
      return dim::product(a, b);
    std::int64_t result;
    if (__builtin_mul_overflow(a, b, &result) || result > kMaxElements) [[unlikely]]
      refuse_size(a, '*', b);
    return result;
  }
  std::int64_t sum(std::int64_t a, std::int64_t b) const {
    if (!dim::both_known(a, b)) [[unlikely]]
      return dim::sum(a, b);
    std::int64_t result;
    if (__builtin_add_overflow(a, b, &result) || result > kMaxElements) [[unlikely]]
      refuse_size(a, '+', b);
    return result;
  }

  InlineList<const TensorType*> inputs;
  InlineList<TensorType> outputs;

 private:
  // Deserialised graphs may have operations with too few inputs.
  const TensorType& spec(int input) const {
    if (input >= inputs.size()) [[unlikely]]
      missing_input(input);
    return *inputs[input];
  }
  [[noreturn]] void missing_input(int input) const;
  void check_computed(DType dtype) const;
  [[noreturn]] void refuse_size(std::int64_t a, char with, std::int64_t b) const;

  const OpDef& op_;
  AttrsRef attrs_;
};

// A tensor argument of a kernel. `data` is memory of the kernel's device.
struct TensorView {
  void* data = nullptr;
  DType dtype = float32;
  Shape shape;
  // For inputs of contexts that are used again (KernelContext::keep): calls with the same data and
  // the same version have the same elements, so that a kernel can keep another form of them.
  // 0: unknown.
  std::uint64_t version = 0;

  static constexpr std::uint64_t kConstant = 1;  // the version of constants
  // The first one of variables, of which no two writes have the same.
  static constexpr std::uint64_t kFirstVersion = 2;

  std::int64_t size() const { return shape.num_elements(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// The argument of kernels. Kernels run when all inputs are ready, write every element of the
// outputs, and must not keep the context. CPU kernels may use the threads of the calling thread's
// team (parallel_for, oneDNN).
class KernelContext {
 public:
  const OpDef* op = nullptr;
  const void* attrs_data = nullptr;
  void* native_stream = nullptr;    // CUDA: the stream to launch on
  DeviceImpl* workspace = nullptr;  // allocates scratch memory; null for the host
  std::vector<std::shared_ptr<void>>* kept = nullptr;  // see keep()
  InlineList<TensorView> inputs;
  InlineList<TensorView> outputs;

  template <class A>
  const A& attrs() const {
    return *static_cast<const A*>(attrs_data);
  }
  // At least `bytes` of 256-byte aligned memory, valid until the kernel returns; null for 0 bytes.
  // Each call returns distinct memory. Throws ResourceExhaustedError.
  void* scratch(std::size_t bytes);

  // Frees the scratch memory after a kernel call, for a context that is used again.
  void end_call();

  // An object that a kernel can keep between calls, such as a primitive for this context's shapes.
  // The n-th keep() of a call returns the n-th object. Null if the context is not used again.
  std::shared_ptr<void>* keep();

  KernelContext() = default;
  KernelContext(const KernelContext& other);  // without its scratch memory
  KernelContext& operator=(const KernelContext&) = delete;
  ~KernelContext();

 private:
  InlineList<void*> scratch_;
  std::size_t keeps_ = 0;  // calls of keep() in this kernel call
};

// The device that allocates scratch memory for kernels of `device`: itself, or the host for
// emulated GPUs, whose kernels run on host threads.
DeviceImpl& workspace_for(DeviceImpl& device);

// Callbacks of a tiled kernel, which processes its data in ranges, while a range is in the cache.
// Each range is processed once, by one thread.
class TileHooks {
 public:
  virtual ~TileHooks() = default;
  // Elements [begin, begin + count) of input 0 are about to be read for the first time.
  virtual void before([[maybe_unused]] std::int64_t begin,
                      [[maybe_unused]] std::int64_t count) const {}
  // Elements [begin, begin + count) of output 0 have been written.
  virtual void after([[maybe_unused]] std::int64_t begin,
                     [[maybe_unused]] std::int64_t count) const {}
};

using KernelFn = void (*)(KernelContext&);
using TiledKernelFn = void (*)(KernelContext&, const TileHooks&);
using InferFn = void (*)(InferContext&);

class GradContext;  // op/record.h
using GradFn = void (*)(GradContext&);

// Properties that dispatch and graph passes use.
enum OpTraits : std::uint32_t {
  kNoTraits = 0,
  kElementwise = 1u << 0,  // output element i depends only on input elements i (after broadcasting)
  // Output 0 may share the memory of input 0 if shapes and dtypes agree, that of element-wise
  // operations of any such input: element i is written when all elements i have been read.
  kInPlace = 1u << 1,
  kStateful = 1u << 2,  // two runs may differ (random): never merged, folded or dropped
  kView = 1u << 3,      // output 0 shares input 0's storage (see view_offset); no kernel
  kCommutative = 1u << 4,
  kMetadata = 1u << 5,        // placed on its input's device; too little work to copy the input
  kIdentityIfSame = 1u << 6,  // output 0 is input 0 if their shapes agree; removed from programs
  // An update of a variable. In programs, a 16-bit copy of a float32 variable may follow the
  // gradient: the operation writes it, too, and the gradient may have its dtype.
  kWritesCast = 1u << 7,
  // Moves or converts elements: its inputs and outputs may have dtypes of storage. Views may, too.
  kStorage = 1u << 8,
};

// How autocast (runtime/autocast.h) treats the floating inputs of an operation.
enum class AutocastRule : std::uint8_t {
  kNone,     // it runs in the dtypes that it gets
  kLower,    // casts them to the scope's dtype
  kFloat32,  // casts 16-bit ones to float32
  kWidest,   // casts them to the widest dtype among them
};

// The rules on CPUs and on GPUs, which differ in PyTorch.
struct AutocastRules {
  AutocastRule cpu = AutocastRule::kNone;
  AutocastRule gpu = AutocastRule::kNone;
};
inline constexpr AutocastRules kAutocastLower = {AutocastRule::kLower, AutocastRule::kLower};
inline constexpr AutocastRules kAutocastFloat32 = {AutocastRule::kFloat32, AutocastRule::kFloat32};
inline constexpr AutocastRules kAutocastFloat32OnGpus = {.gpu = AutocastRule::kFloat32};
inline constexpr AutocastRules kAutocastWidest = {AutocastRule::kWidest, AutocastRule::kWidest};

struct OpDef {
  std::string_view name;  // "MatMul", as TensorFlow spells it where it has the operation
  const AttrsType& (*attrs)() = &attrs_type<NoAttrs>;
  InferFn infer = nullptr;
  GradFn gradient = nullptr;  // null if not differentiable
  KernelFn cpu_kernel = nullptr;
  TiledKernelFn tiled_kernel = nullptr;  // the same with callbacks, if it processes ranges
  bool gpu = true;                       // has a GPU kernel (emulated GPUs run the CPU's)
  std::uint32_t traits = kNoTraits;
  AutocastRules autocast = {};
  ChainRole chain = {};  // in chains of element-wise operations on GPUs
  // The inputs and outputs that the gradient reads (bit i: tensor i). Only these are kept for it.
  std::uint32_t saved_inputs = 0;
  std::uint32_t saved_outputs = 0;
  // The inputs whose memory the kernel writes (variable updates). Such an operation runs on the
  // device of input 0.
  std::uint32_t mutated_inputs = 0;
  // kView: the byte offset of the output in the input.
  std::int64_t (*view_offset)(const InferContext&) = nullptr;
  // Random operations: sets the key in the attributes and returns the previous one.
  RandomKey (*exchange_key)(void* attrs, const RandomKey& key) = nullptr;
};
inline constexpr std::uint32_t kAllTensors = 0xffffffffu;

constexpr OpDef with_autocast(AutocastRules rules, OpDef op) {
  op.autocast = rules;
  return op;
}

// All operations of this build, sorted by name. ops/all_ops.cc registers the list.
extern constinit Registered<std::span<const OpDef* const>()> all_ops;
// Returns null for an unknown name.
const OpDef* find_op(std::string_view name);

}  // namespace tandem
