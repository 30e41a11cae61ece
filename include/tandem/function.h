/// @file
/// function(): compiles a C++ callable into a program. Its operations are traced once per signature
/// and then replayed without dispatch overhead. As tf.function.
/// @code
/// auto step = td::function([&](const td::Tensor& x, const td::Tensor& y) {
///   td::GradientTape tape;
///   ...
///   return loss;
/// });
/// for (const auto& batch : batches) step(batch[0], batch[1]);
/// @endcode
///
/// A trace runs the callable once with symbolic tensors. Its host code (printing, counting,
/// branches on C++ values) runs only then. Its operations, random numbers, assignments to variables
/// and optimizer steps happen in every call. Reading the elements of a symbolic tensor throws
/// FailedPreconditionError; branches and loops that depend on elements are in
/// tandem/control_flow.h.
///
/// Gradients may be computed inside, by a tape or minimize(), or outside: a call that reads
/// something tracked (an argument, a trainable variable) is recorded as one operation whose
/// gradient is a program as well. (With control flow inside, the callable runs eagerly instead.) A
/// recorded call keeps what its gradient needs; under NoGradScope it keeps nothing. Records
/// that the callable itself has backpropagated through are freed. Calls inside another traced
/// function become part of its trace.
///
/// A function keeps the 64 programs that were used last, one per signature and set of sizes; an
/// evicted signature is traced again. Programs of a function share one block of memory per device,
/// as large as the largest program needs. config::trim_memory() frees it while none runs.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/autodiff.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

class ElementPass;
class ProgramMemory;
struct TracedFunction;

/// Dtype and shape of a tensor argument. A negative size matches any size, independently of other
/// negative ones; ensure_shape() (tandem/array.h) states that two are equal. As tf.TensorSpec.
struct InputSpec {
  Shape shape{};          ///< shape
  DType dtype = float32;  ///< dtype
};

/// An InputSpec in the form of tf.TensorSpec: `TensorSpec({-1, 4}, float32)`.
struct TensorSpec : InputSpec {
  /// A tensor of this shape and dtype; {}: a scalar.
  explicit TensorSpec(const Shape& shape_, DType dtype_ = float32)
      : InputSpec{shape_.known() ? shape_ : Shape::scalar(), dtype_} {}
};

/// Options of function().
struct FunctionOptions {
  std::string name{};  ///< name in messages and execution traces
  /// Specs for the tensors among the arguments, in order. The function is then traced for these
  /// specs only, and a call that does not match throws InvalidArgumentError. Default: one trace per
  /// set of dtypes and shapes.
  std::vector<InputSpec> input_signature{};
  /// As the option of tf.function. A traced function is always compiled as a whole, by Tandem's own
  /// compiler (under TPUStrategy by the plug-in's), so `true` states only what happens anyway.
  /// `false` throws InvalidArgumentError: there is no other way to run a trace.
  std::optional<bool> jit_compile{};
};

namespace detail {

// Calls visit(Tensor&) for the tensors of a value, and key(number) or key(string) for the other
// parts of the signature. Custom types are supported by an overload visit_tensors(T&, visit, key)
// in the namespace of the type.
template <class V, class K>
void visit_tensors(Tensor& tensor, const V& visit, const K&) {
  visit(tensor);
}
template <class T, class V, class K>
requires std::is_arithmetic_v<T> || std::is_enum_v<T>
void visit_tensors(T& value, const V&, const K& key) {
  std::uint64_t bits = 0;
  static_assert(sizeof(T) <= sizeof(bits), "numbers among the arguments have up to 64 bits");
  std::memcpy(&bits, &value, sizeof(T));
  key(bits);
}
// Throws InvalidArgumentError if the size is unknown.
template <class V, class K>
void visit_tensors(Dim& size, const V&, const K& key) {
  key(static_cast<std::uint64_t>(size.value()));
}
template <class V, class K>
void visit_tensors(std::string& value, const V&, const K& key) {
  key(std::string_view(value));
}
template <class V, class K>
void visit_tensors(std::string_view& value, const V&, const K& key) {
  key(value);
}
template <class V, class K>
void visit_tensors(const char*& value, const V&, const K& key) {
  key(std::string_view(value));
}
template <class V, class K, std::size_t kSize>
void visit_tensors(char (&text)[kSize], const V&, const K& key) {
  key(std::string_view(text));
}
template <class V, class K>
void visit_tensors(Variable& variable, const V&, const K& key) {
  key(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&variable.impl())));
}
template <class T, class V, class K>
void visit_tensors(std::vector<T>& values, const V& visit, const K& key);
template <class T, class V, class K>
void visit_tensors(std::optional<T>& value, const V& visit, const K& key);
template <class T, std::size_t kSize, class V, class K>
void visit_tensors(std::array<T, kSize>& values, const V& visit, const K& key);
template <class A, class B, class V, class K>
void visit_tensors(std::pair<A, B>& pair, const V& visit, const K& key);
template <class... T, class V, class K>
void visit_tensors(std::tuple<T...>& tuple, const V& visit, const K& key);

template <class T, class V, class K>
void visit_tensors(std::vector<T>& values, const V& visit, const K& key) {
  key(static_cast<std::uint64_t>(values.size()));
  for (auto& value : values) visit_tensors(value, visit, key);
}
template <class T, class V, class K>
void visit_tensors(std::optional<T>& value, const V& visit, const K& key) {
  key(std::uint64_t{value.has_value()});
  if (value) visit_tensors(*value, visit, key);
}
template <class T, std::size_t kSize, class V, class K>
void visit_tensors(std::array<T, kSize>& values, const V& visit, const K& key) {
  for (auto& value : values) visit_tensors(value, visit, key);
}
template <class A, class B, class V, class K>
void visit_tensors(std::pair<A, B>& pair, const V& visit, const K& key) {
  visit_tensors(pair.first, visit, key);
  visit_tensors(pair.second, visit, key);
}
template <class... T, class V, class K>
void visit_tensors(std::tuple<T...>& tuple, const V& visit, const K& key) {
  std::apply([&](auto&... item) { (visit_tensors(item, visit, key), ...); }, tuple);
}

// The type in which an argument is stored during a trace.
template <class T>
using Held = std::conditional_t<std::is_array_v<T>, const char*, T>;

// How the callable gets an argument of type T. Handles whose functions change what they refer to
// (data::Iterator) are not constant.
template <class T>
struct Passed {
  using type = const T&;
};
template <class T>
typename Passed<T>::type passed(const T& argument) {
  return const_cast<typename Passed<T>::type>(argument);
}

// Whether a type that converts to Tensor is a structure of tensors all the same (data::Example).
template <class T>
inline constexpr bool kConsistsOfTensors = false;

// Pairs and tuples of what converts to tensors, and the same with tensors.
template <class R>
inline constexpr bool kTupleOfTensors = false;
template <class... T>
inline constexpr bool kTupleOfTensors<std::tuple<T...>> = (std::is_convertible_v<T, Tensor> && ...);
template <class A, class B>
inline constexpr bool kTupleOfTensors<std::pair<A, B>> =
    std::is_convertible_v<A, Tensor>&& std::is_convertible_v<B, Tensor>;
template <class R>
struct TensorTuple;
template <class... T>
struct TensorTuple<std::tuple<T...>> {
  using type = std::tuple<std::conditional_t<true, Tensor, T>...>;
};
template <class A, class B>
struct TensorTuple<std::pair<A, B>> {
  using type = std::pair<Tensor, Tensor>;
};

template <std::size_t>
using TensorAt = const Tensor&;
template <class F, class Indices>
inline constexpr bool kTakesTensors = false;
template <class F, std::size_t... I>
inline constexpr bool kTakesTensors<F, std::index_sequence<I...>> =
    std::is_invocable_v<F&, TensorAt<I>...>;

// The number of tensors that the callable takes, from 1 to 8; 0 if it takes something else.
template <class F, std::size_t kCount = 1>
constexpr std::size_t number_of_tensors() {
  if constexpr (kCount > 8)
    return 0;
  else if constexpr (kTakesTensors<F, std::make_index_sequence<kCount>>)
    return kCount;
  else
    return number_of_tensors<F, kCount + 1>();
}

// Calls the callable with the first tensors of an array.
template <class F, std::size_t... I>
decltype(auto) call_with(F& callable, const Tensor* tensors, std::index_sequence<I...>) {
  return callable(tensors[I]...);
}

// One call of a function: its inputs and outputs.
struct FunctionCall {
  std::string key;  // signature without the tensors
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  std::vector<std::shared_ptr<ElementPass>> passes;  // of the iterators among the arguments
  // The value that the callable returned in the trace, of a type that the caller knows. Set by the
  // body of the trace and by each run.
  std::shared_ptr<const void> result;

  void add_to_key(std::uint64_t number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  void add_to_key(std::string_view text) {
    add_to_key(static_cast<std::uint64_t>(text.size()));
    key.append(text);
  }
  void add_to_key(const std::shared_ptr<ElementPass>& pass);
};

// A function as traced for the arguments of a call.
struct TracedCall {
  std::shared_ptr<const TracedFunction> function;
  std::vector<Tensor> inputs{};                        // the tensors among the arguments
  std::vector<std::shared_ptr<ElementPass>> passes{};  // of the iterators among the arguments
};

// The module of a traced function; see Function::stablehlo(). For all sizes if the call has no
// inputs.
std::string stablehlo_text(const TracedCall& call);

// The traces and programs of one function: the last ProgramCache::kMaxPrograms that were used.
class FunctionTraces {
 public:
  // Runs the callable on symbolic tensors and returns the tensors of its result.
  using Body = std::function<std::vector<Tensor>(std::vector<Tensor> inputs)>;

  // `memory`: memory that the programs share with others that never run at the same time; may be
  // null.
  explicit FunctionTraces(FunctionOptions options, std::shared_ptr<ProgramMemory> memory = nullptr);
  ~FunctionTraces();

  // Whether the calling thread is tracing already; the callable then becomes part of that trace.
  static bool tracing();
  // An empty call that reuses the memory of the thread's last one, which keep() returns.
  static FunctionCall start_call();
  static void keep(FunctionCall call);
  // Sets the outputs of the call; traces `body` if there is no trace for its inputs and key.
  // Returns false if the caller must run the callable instead.
  bool run(FunctionCall& call, const Body& body);
  // The same for calls of one signature, in this order. If all operations of the function are on
  // devices that run compiled programs, the calls are one program there.
  bool run_in_order(std::span<FunctionCall> calls, const Body& body);
  // The trace for the inputs and the key of the call, which does not run.
  std::shared_ptr<const TracedFunction> trace(FunctionCall& call, const Body& body);
  std::size_t num_traces() const;
  const FunctionOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A function's name, and the specs of its arguments and results.
struct Signature {
  std::string name;
  std::vector<InputSpec> inputs, outputs;
};
std::ostream& operator<<(std::ostream& out, const Signature& signature);
Signature signature_of(const TracedCall& call, std::vector<InputSpec> inputs);
// Tensors that suit the specs, whose elements are not set. Throws InvalidArgumentError unless there
// are `count`.
std::vector<Tensor> tensors_like(const std::vector<InputSpec>& specs, std::size_t count);

inline InputSpec spec_of(const InputSpec& spec) { return spec; }
inline InputSpec spec_of(const Tensor& tensor) { return {tensor.shape(), tensor.dtype()}; }

// The result of a finished call: the traced result with this call's tensors.
template <class Result>
Result result_of(FunctionCall call) {
  if constexpr (std::is_void_v<Result>) {
    FunctionTraces::keep(std::move(call));
  } else {
    Result result = *static_cast<const Result*>(call.result.get());
    std::size_t next = 0;
    const auto fill = [&](Tensor& tensor) {
      if (tensor.defined()) tensor = std::move(call.outputs[next++]);
    };
    visit_tensors(result, fill, [](const auto&) {});
    FunctionTraces::keep(std::move(call));
    return result;
  }
}

}  // namespace detail

template <class F>
class Function;

/// A function that is traced for one set of shapes and dtypes: the result of
/// Function::get_concrete_function(). As ConcreteFunction of TensorFlow. Printing it shows the
/// signature: "function(float32 (2, 2), int64 ()) -> (float32 (2, 2))".
template <class F, std::size_t kCount>
class ConcreteFunction {
 public:
  /// Use Function::get_concrete_function() instead.
  ConcreteFunction(Function<F> function, detail::Signature signature)
      : function_(std::move(function)), signature_(std::move(signature)) {}

  /// Calls the function. Throws InvalidArgumentError for tensors of other dtypes or shapes.
  template <class... Args>
  requires(sizeof...(Args) == kCount && (std::is_convertible_v<const Args&, Tensor> && ...)) auto
  operator()(const Args&... args) const {
    return function_(static_cast<Tensor>(args)...);
  }
  /// Specs of the arguments. As structured_input_signature of TensorFlow.
  const std::vector<InputSpec>& inputs() const { return signature_.inputs; }
  /// Specs of the tensors of the result; -1: a size that depends on the arguments. As
  /// structured_outputs of TensorFlow.
  const std::vector<InputSpec>& outputs() const { return signature_.outputs; }
  const std::string& name() const { return signature_.name; }  ///< name of the function

  /// Prints the signature.
  friend std::ostream& operator<<(std::ostream& out, const ConcreteFunction& function) {
    return out << function.signature_;
  }

 private:
  Function<F> function_;
  detail::Signature signature_;
};

/// A traced callable. Copies share their traces. Thread-safe. Calls on several threads run at the
/// same time if the function is on one CPU, writes no variables, and has no random numbers, control
/// flow or collectives. Other calls of one trace run one at a time, and so does tracing.
template <class F>
class Function {
 public:
  /// Use function() instead.
  Function(F callable, FunctionOptions options)
      : shared_(std::make_shared<Shared>(std::move(callable), std::move(options))) {}

  /// Calls the function. Arguments: tensors, variables, examples, iterators, per-replica values,
  /// containers of these, numbers, enumerations and strings. Numbers and strings are part of the
  /// signature: each new value causes a new trace.
  template <class... Args>
  auto operator()(const Args&... args) const {
    using Result = std::invoke_result_t<F&, typename detail::Passed<Args>::type...>;
    Shared& shared = *shared_;
    if (detail::FunctionTraces::tracing()) return shared.callable(detail::passed(args)...);

    detail::FunctionCall call = detail::FunctionTraces::start_call();
    collect(call, args...);
    const auto body = [&](std::vector<Tensor> symbols) {
      return trace_body<Result>(call, std::move(symbols), args...);
    };
    if (!shared.traces.run(call, std::ref(body))) {
      detail::FunctionTraces::keep(std::move(call));
      return shared.callable(detail::passed(args)...);
    }
    return detail::result_of<Result>(std::move(call));
  }

  /// For Tandem's own code: the function as traced for these arguments, which does not run.
  template <class... Args>
  detail::TracedCall trace(const Args&... args) const {
    using Result = std::invoke_result_t<F&, typename detail::Passed<Args>::type...>;
    detail::FunctionCall call;
    collect(call, args...);
    const auto body = [&](std::vector<Tensor> symbols) {
      return trace_body<Result>(call, std::move(symbols), args...);
    };
    auto function = shared_->traces.trace(call, std::ref(body));
    return {std::move(function), std::move(call.inputs), std::move(call.passes)};
  }

  /// The function, as traced for these arguments, as a StableHLO module in text form: the program
  /// that a device of a PJRT plug-in would compile. Nothing runs. If parts of the function are
  /// placed on such devices, as under TPUStrategy, the modules of these parts. The parameters are
  /// the tensors among the arguments, elements of iterators, variables, and numbers that each run
  /// computes; the results are the tensors of the result and the new elements of written variables.
  /// Throws UnimplementedError for an operation that docs/operations.md lists without StableHLO.
  template <class... Args>
  std::string stablehlo(const Args&... args) const {
    return detail::stablehlo_text(trace(args...));
  }
  /// The same for tensors of all sizes that FunctionOptions::input_signature allows: its unknown
  /// sizes are dynamic dimensions ("tensor<?x784xf32>"); sizes that depend on them are computed.
  /// For tools that give them numbers or run dynamic shapes: PJRT plug-ins compile modules of known
  /// sizes. Throws UnimplementedError for an operation that cannot be written for all sizes, such
  /// as branches, loops, random numbers and convolutions of images of unknown height, and
  /// InvalidArgumentError if input_signature has not one entry per argument.
  std::string stablehlo() const requires(!std::is_invocable_v<F&>) {
    constexpr std::size_t kCount = detail::number_of_tensors<F>();
    const std::vector<Tensor> arguments =
        detail::tensors_like(shared_->traces.options().input_signature, kCount);
    const auto trace_for = [&](const auto&... argument) { return trace(argument...); };
    detail::TracedCall call =
        detail::call_with(trace_for, arguments.data(), std::make_index_sequence<kCount>());
    call.inputs.clear();
    return detail::stablehlo_text(call);
  }

  /// Traces the function for tensors of these specs now, and returns what takes such tensors alone.
  /// Nothing runs. Arguments: an InputSpec (TensorSpec) or a tensor like the one that will be
  /// passed, for each argument; none: those of FunctionOptions::input_signature. Throws the errors
  /// of the trace. As get_concrete_function() of tf.function.
  template <class... Specs>
  auto get_concrete_function(const Specs&... specs) const {
    static_assert(((std::is_convertible_v<const Specs&, const InputSpec&> ||
                    std::is_convertible_v<const Specs&, const Tensor&>)&&...),
                  "get_concrete_function() takes a TensorSpec, or a tensor, for each argument");
    constexpr std::size_t kCount = sizeof...(Specs) > 0      ? sizeof...(Specs)
                                   : std::is_invocable_v<F&> ? 0
                                                             : detail::number_of_tensors<F>();
    static_assert(
        detail::kTakesTensors<F, std::make_index_sequence<kCount>>,
        "the function does not take as many tensors as get_concrete_function() has specs");
    FunctionOptions options = shared_->traces.options();
    if constexpr (sizeof...(Specs) > 0) options.input_signature = {detail::spec_of(specs)...};
    auto call = [shared = shared_](const auto&... args) {
      return shared->callable(detail::passed(args)...);
    };
    const Function<decltype(call)> traced(std::move(call), options);
    const std::vector<Tensor> arguments = detail::tensors_like(options.input_signature, kCount);
    const auto trace_for = [&](const auto&... argument) { return traced.trace(argument...); };
    detail::Signature signature = detail::signature_of(
        detail::call_with(trace_for, arguments.data(), std::make_index_sequence<kCount>()),
        std::move(options.input_signature));
    return ConcreteFunction<decltype(call), kCount>(traced, std::move(signature));
  }

  /// Number of signatures with a trace.
  std::size_t num_traces() const { return shared_->traces.num_traces(); }

 private:
  struct Shared {
    Shared(F callable_, FunctionOptions options)
        : callable(std::move(callable_)), traces(std::move(options)) {}
    F callable;
    detail::FunctionTraces traces;
  };

  // Adds the arguments to the inputs and the key of the call.
  template <class... Args>
  static void collect(detail::FunctionCall& call, const Args&... args) {
    using detail::visit_tensors;
    const auto collect_tensor = [&](Tensor& tensor) {
      call.add_to_key(std::uint64_t{tensor.defined()});
      if (tensor.defined()) call.inputs.push_back(tensor);
    };
    const auto key = [&](const auto& part) { call.add_to_key(part); };
    std::tuple<Args&...> given(const_cast<Args&>(args)...);  // visitors do not change them
    visit_tensors(given, collect_tensor, key);
  }

  // Calls the callable with `symbols` instead of the tensors of the arguments. Returns the tensors
  // of its result, and keeps the result in the call.
  template <class Result, class... Args>
  std::vector<Tensor> trace_body(detail::FunctionCall& call, std::vector<Tensor> symbols,
                                 const Args&... args) const {
    using detail::visit_tensors;
    const auto no_key = [](const auto&) {};
    std::tuple<detail::Held<Args>...> held(args...);
    std::size_t next = 0;
    const auto replace = [&](Tensor& tensor) {
      if (tensor.defined()) tensor = std::move(symbols[next++]);
    };
    visit_tensors(held, replace, no_key);
    const auto called = [&](const auto&... argument) -> Result {
      return shared_->callable(detail::passed(argument)...);
    };
    std::vector<Tensor> outputs;
    if constexpr (std::is_void_v<Result>) {
      std::apply(called, held);
    } else {
      const auto traced = std::make_shared<Result>(std::apply(called, held));
      const auto give = [&](Tensor& tensor) {
        if (!tensor.defined()) return;
        outputs.push_back(tensor);
        tensor = tensor.detach();  // the stored result must not keep records
      };
      visit_tensors(*traced, give, no_key);
      call.result = traced;
    }
    return outputs;
  }

  std::shared_ptr<Shared> shared_;
};

/// Wraps a callable for tracing. As tf.function.
template <class F>
Function<std::decay_t<F>> function(F&& callable, FunctionOptions options = {}) {
  return Function<std::decay_t<F>>(std::forward<F>(callable), std::move(options));
}

}  // namespace tandem
