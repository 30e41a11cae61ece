#include "ops/onednn/onednn.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "core/status.h"

namespace tandem::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

// Lives as long as the process: threads that end late may still hold primitives.
const dnnl::engine& cpu() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::stream& thread_stream() {
  thread_local dnnl::stream stream(cpu());
  return stream;
}

memory::data_type data_type(DType dtype) {
  return dtype == bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// A primitive's descriptor from what both generations take: 2.x wants it wrapped in an operation
// descriptor. `hint` is the forward descriptor that backward ones want.
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

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// A primitive with the memory objects of its arguments, whose addresses are set at each run.
// Belongs to one thread.
class Executable {
 public:
  struct Argument {
    int id;
    memory::desc desc;
  };

  Executable(const dnnl::primitive& primitive, const memory::desc& scratchpad,
             std::initializer_list<Argument> arguments)
      : primitive_(primitive), scratchpad_bytes_(scratchpad.get_size()) {
    for (const Argument& argument : arguments) add(argument);
    if (scratchpad_bytes_ > 0) add({DNNL_ARG_SCRATCHPAD, scratchpad});
  }

  // `addresses`: one an argument, in the order of the constructor's.
  void run(KernelContext& context, std::initializer_list<const void*> addresses) {
    std::size_t i = 0;
    // oneDNN takes inputs as mutable, and does not write them.
    for (const void* address : addresses) set(i++, const_cast<void*>(address));
    if (scratchpad_bytes_ > 0) set(i++, context.scratch(scratchpad_bytes_));
    TANDEM_ASSERT(i == memories_.size());
    check(dnnl_primitive_execute(primitive_.get(), thread_stream().get(),
                                 static_cast<int>(arguments_.size()), arguments_.data()));
  }

 private:
  void add(const Argument& argument) {
    memories_.push_back(memory(argument.desc, cpu(), DNNL_MEMORY_NONE));
    arguments_.push_back({argument.id, memories_.back().get()});
  }
  void set(std::size_t i, void* address) {
    check(dnnl_memory_set_data_handle(memories_[i].get(), address));
  }
  static void check(dnnl_status_t status) {
    if (status != dnnl_success) [[unlikely]]
      fail<InternalError>("[oneDNN] a primitive failed with status {}", static_cast<int>(status));
  }

  dnnl::primitive primitive_;
  std::size_t scratchpad_bytes_;
  std::vector<memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// What one of the calls below runs: a primitive, and the reorder of its weights between the
// tensor's layout and the one that the primitive prefers.
struct Plan {
  std::unique_ptr<Executable> main;
  std::unique_ptr<Executable> reorder;  // null: the layouts agree
  std::size_t packed_bytes = 0;
};

std::unique_ptr<Executable> make_reorder(const memory::desc& from, const memory::desc& to) {
  const dnnl::reorder::primitive_desc desc(cpu(), from, cpu(), to, attributes());
  return std::make_unique<Executable>(
      dnnl::reorder(desc), desc.scratchpad_desc(),
      std::initializer_list<Executable::Argument>{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

enum class Kind : std::int64_t { kMatMul, kConvForward, kConvInput, kConvFilter };

// All that a plan depends on, as integers.
class Key {
 public:
  explicit Key(Kind kind, DType dtype) {
    // oneDNN fixes the split of the work over threads when a primitive is made.
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
  friend bool operator==(const Key& a, const Key& b) {
    return a.size_ == b.size_ &&
           std::equal(a.words_.begin(), a.words_.begin() + a.size_, b.words_.begin());
  }
  struct Hash {
    std::size_t operator()(const Key& key) const {
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
Plan made(const Make& make) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    fail<InternalError>("[oneDNN] cannot make a primitive: {} (status {})", error.message,
                        static_cast<int>(error.status));
  }
}

// The calling thread's plan for `key`; `make` makes it on the first call.
template <class Make>
Plan& threads_plan(const Key& key, const Make& make) {
  // Programs whose shapes never repeat must not grow without end.
  constexpr std::size_t kMaxPlans = 1024;
  thread_local std::unordered_map<Key, Plan, Key::Hash> plans;
  const auto found = plans.find(key);
  if (found != plans.end()) [[likely]]
    return found->second;
  Plan plan = made(make);
  if (plans.size() >= kMaxPlans) plans.clear();
  return plans.emplace(key, std::move(plan)).first->second;
}

// The plan for a call: a step of a program keeps its own, other calls look up their thread's by
// key().
template <class MakeKey, class Make>
Plan& plan_for(KernelContext& context, const MakeKey& key, const Make& make) {
  struct Kept {
    int threads;
    Plan plan;
  };
  std::shared_ptr<void>* place = context.keep();
  if (!place) return threads_plan(key(), make);
  auto* kept = static_cast<Kept*>(place->get());
  if (!kept || kept->threads != omp_get_max_threads()) {
    auto fresh = std::make_shared<Kept>(Kept{omp_get_max_threads(), made(make)});
    kept = fresh.get();
    *place = std::move(fresh);
  }
  return kept->plan;
}

// A matrix of `rows` x `columns` behind the batch axes, dense; `transposed`: stored the other way.
memory::desc matrices(const MatMul& shape, const Dims& batch, std::int64_t rows,
                      std::int64_t columns, bool transposed) {
  const std::size_t rank = static_cast<std::size_t>(batch.size()) + 2;
  memory::dims sizes(batch.begin(), batch.end());
  sizes.push_back(rows);
  sizes.push_back(columns);
  memory::dims strides(rank);
  strides[rank - 1] = transposed ? rows : 1;
  strides[rank - 2] = transposed ? 1 : columns;
  std::int64_t step = rows * columns;
  for (std::size_t i = rank - 2; i-- > 0;) {
    strides[i] = step;
    step *= sizes[i];
  }
  return {sizes, data_type(shape.dtype), strides};
}

Plan make_matmul(const MatMul& shape) {
  Dims batch = shape.batch_a;
  for (int i = 0; i < batch.size(); ++i) batch[i] = std::max(batch[i], shape.batch_b[i]);
  const memory::desc a = matrices(shape, shape.batch_a, shape.m, shape.k, shape.transpose_a);
  const memory::desc b = matrices(shape, shape.batch_b, shape.k, shape.n, shape.transpose_b);
  const memory::desc c = matrices(shape, batch, shape.m, shape.n, false);
  const dnnl::primitive_attr attr = attributes();
  Plan plan;
  if (shape.bias) {
    memory::dims sizes(static_cast<std::size_t>(batch.size()) + 1, 1);
    sizes.push_back(shape.n);
    memory::dims strides(sizes.size(), shape.n);
    strides.back() = 1;
    const memory::desc bias(sizes, data_type(shape.dtype), strides);
    const auto desc = describe<dnnl::matmul>(attr, a, b, bias, c);
    plan.main.reset(new Executable(
        dnnl::matmul(desc), desc.scratchpad_desc(),
        {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}, {DNNL_ARG_BIAS, bias}}));
  } else {
    const auto desc = describe<dnnl::matmul>(attr, a, b, c);
    plan.main.reset(new Executable(dnnl::matmul(desc), desc.scratchpad_desc(),
                                   {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}));
  }
  return plan;
}

// The tensors of a convolution as oneDNN describes them: sizes in the order n, c, h, w (kernels: o,
// i, h, w, behind the groups if there are several), strides as they lie in memory.
struct ConvDescs {
  memory::desc x, y, bias;
  memory::desc kernel;      // as the tensor lies
  memory::desc kernel_any;  // of a layout that the primitive chooses
  memory::dims strides, dilations, pad_begin, pad_end;

  explicit ConvDescs(const ConvShape& c) {
    const memory::data_type type = data_type(c.dtype);
    x = {{c.n, c.in, c.h, c.w}, type, Tag::nhwc};
    y = {{c.n, c.out, c.oh, c.ow}, type, Tag::nhwc};
    bias = {{c.out}, type, Tag::a};
    const std::int64_t in = c.in / c.groups, out = c.out / c.groups;
    if (c.groups == 1) {
      kernel = {{out, in, c.kh, c.kw}, type, Tag::hwio};
      kernel_any = {{out, in, c.kh, c.kw}, type, Tag::any};
    } else {
      kernel = {
          {c.groups, out, in, c.kh, c.kw}, type, {out, 1, c.out, c.kw * in * c.out, in * c.out}};
      kernel_any = {{c.groups, out, in, c.kh, c.kw}, type, Tag::any};
    }
    strides = {c.stride_h, c.stride_w};
    dilations = {c.dilation_h - 1, c.dilation_w - 1};
    pad_begin = {c.pad_top, c.pad_left};
    pad_end = {c.pad_bottom, c.pad_right};
  }
};

using Forward = dnnl::convolution_forward;
using BackwardInput = dnnl::convolution_backward_data;
using BackwardFilter = dnnl::convolution_backward_weights;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

Forward::primitive_desc describe_forward(const ConvDescs& d, bool bias) {
  const dnnl::primitive_attr attr = attributes();
  constexpr auto kTraining = dnnl::prop_kind::forward_training;
  return bias ? describe<Forward>(attr, kTraining, kDirect, d.x, d.kernel_any, d.bias, d.y,
                                  d.strides, d.dilations, d.pad_begin, d.pad_end)
              : describe<Forward>(attr, kTraining, kDirect, d.x, d.kernel_any, d.y, d.strides,
                                  d.dilations, d.pad_begin, d.pad_end);
}

Plan make_conv_forward(const ConvShape& conv, bool bias) {
  const ConvDescs d(conv);
  const auto desc = describe_forward(d, bias);
  const memory::desc packed = desc.weights_desc();
  Plan plan;
  plan.main.reset(
      bias
          ? new Executable(Forward(desc), desc.scratchpad_desc(),
                           {{DNNL_ARG_SRC, d.x},
                            {DNNL_ARG_WEIGHTS, packed},
                            {DNNL_ARG_DST, d.y},
                            {DNNL_ARG_BIAS, d.bias}})
          : new Executable(Forward(desc), desc.scratchpad_desc(),
                           {{DNNL_ARG_SRC, d.x}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, d.y}}));
  if (packed != d.kernel) plan.reorder = make_reorder(d.kernel, packed);
  plan.packed_bytes = packed.get_size();
  return plan;
}

Plan make_conv_backward_input(const ConvShape& conv) {
  const ConvDescs d(conv);
  const auto hint = describe_forward(d, false);
  const auto desc =
      describe_backward<BackwardInput>(attributes(), hint, kDirect, d.x, d.kernel_any, d.y,
                                       d.strides, d.dilations, d.pad_begin, d.pad_end);
  const memory::desc packed = desc.weights_desc();
  Plan plan;
  plan.main.reset(new Executable(
      BackwardInput(desc), desc.scratchpad_desc(),
      {{DNNL_ARG_DIFF_DST, d.y}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DIFF_SRC, d.x}}));
  if (packed != d.kernel) plan.reorder = make_reorder(d.kernel, packed);
  plan.packed_bytes = packed.get_size();
  return plan;
}

Plan make_conv_backward_filter(const ConvShape& conv) {
  const ConvDescs d(conv);
  const auto hint = describe_forward(d, false);
  const auto desc =
      describe_backward<BackwardFilter>(attributes(), hint, kDirect, d.x, d.kernel_any, d.y,
                                        d.strides, d.dilations, d.pad_begin, d.pad_end);
  const memory::desc packed = desc.diff_weights_desc();
  Plan plan;
  plan.main.reset(new Executable(
      BackwardFilter(desc), desc.scratchpad_desc(),
      {{DNNL_ARG_SRC, d.x}, {DNNL_ARG_DIFF_DST, d.y}, {DNNL_ARG_DIFF_WEIGHTS, packed}}));
  if (packed != d.kernel) plan.reorder = make_reorder(packed, d.kernel);
  plan.packed_bytes = packed.get_size();
  return plan;
}

Key conv_key(Kind kind, const ConvShape& c) {
  Key key(kind, c.dtype);
  key.add(c.n, c.h, c.w, c.in, c.kh, c.kw, c.out, c.groups, c.oh, c.ow, c.stride_h, c.stride_w,
          c.dilation_h, c.dilation_w, c.pad_top, c.pad_bottom, c.pad_left, c.pad_right);
  return key;
}

// The kernel in the layout that the plan's primitive wants.
const void* pack(KernelContext& context, const Plan& plan, const void* kernel) {
  if (!plan.reorder) return kernel;
  void* packed = context.scratch(plan.packed_bytes);
  plan.reorder->run(context, {kernel, packed});
  return packed;
}

}  // namespace

bool computes(DType dtype) {
  static const bool native_bfloat16 = __builtin_cpu_supports("avx512bf16");
  return dtype == float32 || (dtype == bfloat16 && native_bfloat16);
}

void matmul(KernelContext& context, const MatMul& shape, const void* a, const void* b,
            const void* bias, void* c) {
  const auto key = [&] {
    Key key(Kind::kMatMul, shape.dtype);
    key.add(shape.m, shape.n, shape.k, shape.transpose_a, shape.transpose_b, shape.bias);
    key.add(shape.batch_a);
    key.add(shape.batch_b);
    return key;
  };
  const Plan& plan = plan_for(context, key, [&] { return make_matmul(shape); });
  if (shape.bias)
    plan.main->run(context, {a, b, c, bias});
  else
    plan.main->run(context, {a, b, c});
}

void gemm(const Gemm& shape, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
          float* c, std::int64_t ldc) {
  const dnnl_status_t status =
      dnnl_sgemm(shape.transpose_a ? 'T' : 'N', shape.transpose_b ? 'T' : 'N', shape.m, shape.n,
                 shape.k, 1.0f, a, lda, b, ldb, shape.accumulate ? 1.0f : 0.0f, c, ldc);
  if (status != dnnl_success) [[unlikely]]
    fail<InternalError>("[oneDNN] a matrix product failed with status {}",
                        static_cast<int>(status));
}

void conv_forward(KernelContext& context, const ConvShape& conv, const void* x, const void* kernel,
                  const void* bias, void* y) {
  const auto key = [&] {
    Key key = conv_key(Kind::kConvForward, conv);
    key.add(bias != nullptr);
    return key;
  };
  const Plan& plan =
      plan_for(context, key, [&] { return make_conv_forward(conv, bias != nullptr); });
  const void* packed = pack(context, plan, kernel);
  if (bias)
    plan.main->run(context, {x, packed, y, bias});
  else
    plan.main->run(context, {x, packed, y});
}

void conv_backward_input(KernelContext& context, const ConvShape& conv, const void* dy,
                         const void* kernel, void* dx) {
  const Plan& plan = plan_for(
      context, [&] { return conv_key(Kind::kConvInput, conv); },
      [&] { return make_conv_backward_input(conv); });
  plan.main->run(context, {dy, pack(context, plan, kernel), dx});
}

void conv_backward_filter(KernelContext& context, const ConvShape& conv, const void* x,
                          const void* dy, void* dkernel) {
  const Plan& plan = plan_for(
      context, [&] { return conv_key(Kind::kConvFilter, conv); },
      [&] { return make_conv_backward_filter(conv); });
  void* packed = plan.reorder ? context.scratch(plan.packed_bytes) : dkernel;
  plan.main->run(context, {x, dy, packed});
  if (plan.reorder) plan.reorder->run(context, {packed, dkernel});
}

}  // namespace tandem::onednn
