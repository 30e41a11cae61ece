// The registry: what an operation is. One constant OpDef per operation holds its name, attributes,
// shape rule, gradient, kernels and traits; everything else (dispatch, recording, tracing, passes)
// works on OpDefs alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "device/device.h"
#include "op/attributes.h"
#include "op/chain_role.h"
#include "tensor/tensor_impl.h"

namespace tandem {

inline constexpr int kMaxInlineTensors = 6;

// A list of specs or views without allocation for the usual operation. Only the elements in use are
// ever written: there are several lists an operation, and most have one or two elements.
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

// What a shape rule sees: the inputs' dtypes and shapes and the attributes. It fills in the
// outputs, or throws InvalidArgumentError "[Op] expected ..., got ...".
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
  // Throws InvalidArgumentError for a shape that is too large for any tensor.
  void add_output(DType dtype, const Shape& shape) {
    if (shape.too_large()) [[unlikely]]
      refuse_shape(shape);
    outputs.push_back({dtype, shape});
  }
  // Sizes that are computed from others. Throw InvalidArgumentError past kMaxElements. REQUIRES:
  // none is negative.
  std::int64_t product(std::int64_t a, std::int64_t b) const {
    std::int64_t result;
    if (__builtin_mul_overflow(a, b, &result) || result > kMaxElements) [[unlikely]]
      refuse_size(a, '*', b);
    return result;
  }
  std::int64_t sum(std::int64_t a, std::int64_t b) const {
    std::int64_t result;
    if (__builtin_add_overflow(a, b, &result) || result > kMaxElements) [[unlikely]]
      refuse_size(a, '+', b);
    return result;
  }

  InlineList<const TensorSpec*> inputs;
  InlineList<TensorSpec> outputs;

 private:
  // Graphs that come from outside may have operations with too few inputs.
  const TensorSpec& spec(int input) const {
    if (input >= inputs.size()) [[unlikely]]
      missing_input(input);
    return *inputs[input];
  }
  [[noreturn]] void missing_input(int input) const;
  [[noreturn]] void refuse_shape(const Shape& shape) const;
  [[noreturn]] void refuse_size(std::int64_t a, char with, std::int64_t b) const;

  const OpDef& op_;
  AttrsRef attrs_;
};

// One tensor as a kernel sees it. `data` is memory of the kernel's device.
struct TensorView {
  void* data = nullptr;
  DType dtype = float32;
  Shape shape;

  std::int64_t size() const { return shape.num_elements(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// What a kernel sees. Kernels run when all inputs are ready, write all of every output, and must
// not keep the context. CPU kernels run on the thread whose team they may use (parallel_for,
// oneDNN).
class KernelContext {
 public:
  const OpDef* op = nullptr;
  const void* attrs_data = nullptr;
  void* native_stream = nullptr;  // CUDA: the stream to launch on
  Device* workspace = nullptr;    // where scratch memory comes from; null: the host
  std::vector<std::shared_ptr<void>>* kept = nullptr;  // see keep()
  InlineList<TensorView> inputs;
  InlineList<TensorView> outputs;

  template <class A>
  const A& attrs() const {
    return *static_cast<const A*>(attrs_data);
  }
  // At least `bytes` of 256-byte aligned memory, good until the kernel returns; null for 0. Several
  // calls give distinct memory. Throws ResourceExhaustedError.
  void* scratch(std::size_t bytes);

  // Ends a call of the kernel for a context that is used again: gives the scratch memory back.
  void end_call();

  // Where a kernel may keep what it prepares for this context's shapes from call to call; the n-th
  // time that a call asks it gets the n-th place. Null where the context is not used again.
  std::shared_ptr<void>* keep();

  KernelContext() = default;
  KernelContext(const KernelContext& other);  // without its scratch memory
  KernelContext& operator=(const KernelContext&) = delete;
  ~KernelContext();

 private:
  InlineList<void*> scratch_;
  std::size_t keeps_ = 0;  // asked for in this call
};

// Where kernels of `device` take scratch memory from: itself, or the host where they run later, on
// the host's own threads.
Device& workspace_for(Device& device);

// What is done around a kernel that goes over its data range by range, while a range is in the
// cache: each range is taken by one thread, and once.
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

// Properties that dispatch and the graph passes act upon.
enum OpTraits : std::uint32_t {
  kNoTraits = 0,
  kElementwise =
      1u << 0,          // output element i depends on input elements i alone (after broadcasting)
  kInPlace = 1u << 1,   // output 0 may share the memory of input 0 when shapes and dtypes agree
  kStateful = 1u << 2,  // two runs may differ (random): never merged, folded or dropped
  kView = 1u << 3,      // output 0 shares input 0's storage (see view_offset); no kernel
  kCommutative = 1u << 4,
  kMetadata = 1u << 5,  // follows its input's device, does no work worth moving
  kIdentityIfSame =
      1u << 6,  // output 0 is input 0 where their shapes agree: programs go without it
};

struct OpDef {
  std::string_view name;  // "MatMul", as TensorFlow spells it where it has the operation
  const AttrsType& (*attrs)() = &attrs_type<NoAttrs>;
  InferFn infer = nullptr;
  GradFn gradient = nullptr;  // null: not differentiable
  KernelFn cpu_kernel = nullptr;
  TiledKernelFn tiled_kernel = nullptr;  // the same with hooks, where it goes range by range
  bool gpu = true;                       // has a kernel on GPUs (emulated ones run the CPU's)
  std::uint32_t traits = kNoTraits;
  ChainRole chain = {};  // in chains of element-wise operations on GPUs
  // Which inputs and outputs (bit i: tensor i) the gradient reads; only these are kept until then.
  std::uint32_t saved_inputs = 0;
  std::uint32_t saved_outputs = 0;
  // Inputs whose memory the kernel writes (variable updates). Such an operation runs where input 0
  // is.
  std::uint32_t mutated_inputs = 0;
  // kView: the byte offset of the output in the input.
  std::int64_t (*view_offset)(const InferContext&) = nullptr;
  // Random operations: sets the key in the attributes and returns the previous one.
  RandomKey (*exchange_key)(void* attrs, const RandomKey& key) = nullptr;
};
inline constexpr std::uint32_t kAllTensors = 0xffffffffu;

// All operations of this build, from the one list in ops/all_ops.cc, sorted by name.
std::span<const OpDef* const> all_ops();
// Null when there is none of that name.
const OpDef* find_op(std::string_view name);

// The kernel that runs `op` on devices of this backend; null where there is none.
KernelFn find_kernel(const OpDef& op, DeviceBackend backend);

}  // namespace tandem
