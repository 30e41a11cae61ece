// function(): a C++ callable whose operations are traced once for each signature and then replayed
// as one program, without the cost of dispatch. After TensorFlow's tf.function.
//
//   auto step = td::function([&](const td::Tensor& x, const td::Tensor& y) {
//     td::GradientTape tape;
//     ...
//     return loss;
//   });
//   for (const auto& batch : batches) step(batch[0], batch[1]);
//
// While it is traced the callable runs once with symbolic tensors. Its host code (printing,
// counting, branching on C++ values) acts then and not in later calls; its operations, draws of
// random numbers, assignments to variables and optimizer steps act in every call. Asking a symbolic
// tensor for its elements is a FailedPreconditionError; branches and loops that depend on elements
// are in tandem/control_flow.h.
//
// Gradients are taken inside, by a tape or minimize(), or outside: a call that reads something
// tracked (an argument, a trainable variable) is recorded as one operation, whose gradient is a
// program. (Where there is control flow, the callable runs operation by operation instead.) It
// keeps what its gradient needs; under NoGradScope, nothing. What the callable has itself gone back
// through is gone. Inside another traced function a call takes part in that trace.
//
// A function keeps the 64 programs that it used last, one for each signature and set of sizes; a
// signature whose programs are gone is traced anew. Its programs share one block of memory on each
// device, as large as the largest of them needs, which config::trim_memory() frees while none runs.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
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

class ProgramMemory;

// The dtype and shape of a tensor argument. A negative size may be any, independently of the
// others; ensure_shape() (tandem/array.h) states that two are the same.
struct InputSpec {
  Shape shape{};
  DType dtype = float32;
};

struct FunctionOptions {
  std::string name{};  // in messages and traces of execution
  // Traced for these from the first call on, one for each tensor among the arguments, in order: a
  // call that does not suit them is an InvalidArgumentError. Empty: a trace for each set of dtypes
  // and shapes that comes.
  std::vector<InputSpec> input_signature{};
};

namespace detail {

// Calls visit(Tensor&) for the tensors of a value and key(number) or key(text) for what else tells
// one call's trace from another's. Types of one's own take part by an overload
// visit_tensors(T&, visit, key) beside the type.
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

// How an argument is kept while the callable is traced.
template <class T>
using Held = std::conditional_t<std::is_array_v<T>, const char*, T>;

// One call of a function: what came in, what goes out.
struct FunctionCall {
  std::string key;  // of everything but the tensors
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  // The value that the callable returned when it was traced; the caller knows its type. The body
  // of the trace sets it, and so does each run of the trace.
  std::shared_ptr<const void> result;

  void add_to_key(std::uint64_t number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  void add_to_key(std::string_view text) {
    add_to_key(static_cast<std::uint64_t>(text.size()));
    key.append(text);
  }
};

// The traces of one function and their programs: those that were used last, up to kMaxPrograms.
class FunctionTraces {
 public:
  // Runs the callable on symbolic tensors and returns the tensors of its result.
  using Body = std::function<std::vector<Tensor>(std::vector<Tensor> inputs)>;

  static constexpr std::size_t kMaxPrograms = 64;

  // `memory`: what the programs share with others that do not run at the same time; null: nothing.
  explicit FunctionTraces(FunctionOptions options, std::shared_ptr<ProgramMemory> memory = nullptr);
  ~FunctionTraces();

  // Whether operations of the calling thread are being traced already: the callable then takes part
  // in that trace.
  static bool tracing();
  // An empty call, with the memory of the thread's last one, which keep() takes back.
  static FunctionCall start_call();
  static void keep(FunctionCall call);
  // Sets the outputs for the call's inputs and key: traced with `body` unless there is a trace.
  // False: the callable is to be run instead.
  bool run(FunctionCall& call, const Body& body);
  std::size_t num_traces() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a call that has run gives back: the traced result, with this call's tensors in it.
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

// A callable that is traced. Copies share their traces. Thread-safe: calls that share a trace wait
// for each other, and so do those that trace.
template <class F>
class Function {
 public:
  Function(F callable, FunctionOptions options)
      : shared_(std::make_shared<Shared>(std::move(callable), std::move(options))) {}

  // Arguments: tensors, variables, examples, per-replica values, containers of these, numbers,
  // enumerations and strings. Numbers and strings are part of the signature: each new value is
  // traced anew.
  template <class... Args>
  auto operator()(const Args&... args) const {
    using Result = std::invoke_result_t<F&, const Args&...>;
    Shared& shared = *shared_;
    if (detail::FunctionTraces::tracing()) return shared.callable(args...);

    using detail::visit_tensors;
    const auto no_key = [](const auto&) {};
    detail::FunctionCall call = detail::FunctionTraces::start_call();
    const auto collect = [&](Tensor& tensor) {
      call.add_to_key(std::uint64_t{tensor.defined()});
      if (tensor.defined()) call.inputs.push_back(tensor);
    };
    const auto key = [&](const auto& part) { call.add_to_key(part); };
    std::tuple<Args&...> given(const_cast<Args&>(args)...);  // visiting changes nothing here
    visit_tensors(given, collect, key);

    const auto body = [&](std::vector<Tensor> symbols) {
      std::tuple<detail::Held<Args>...> held(args...);
      std::size_t next = 0;
      const auto replace = [&](Tensor& tensor) {
        if (tensor.defined()) tensor = std::move(symbols[next++]);
      };
      visit_tensors(held, replace, no_key);
      std::vector<Tensor> outputs;
      if constexpr (std::is_void_v<Result>) {
        std::apply(shared.callable, std::as_const(held));
      } else {
        const auto traced =
            std::make_shared<Result>(std::apply(shared.callable, std::as_const(held)));
        const auto give = [&](Tensor& tensor) {
          if (!tensor.defined()) return;
          outputs.push_back(tensor);
          tensor = tensor.detach();  // what is kept of the result holds no record of gradients
        };
        visit_tensors(*traced, give, no_key);
        call.result = traced;
      }
      return outputs;
    };
    if (!shared.traces.run(call, std::ref(body))) {
      detail::FunctionTraces::keep(std::move(call));
      return shared.callable(args...);
    }
    return detail::result_of<Result>(std::move(call));
  }

  // For how many signatures there is a trace.
  std::size_t num_traces() const { return shared_->traces.num_traces(); }

 private:
  struct Shared {
    Shared(F callable_, FunctionOptions options)
        : callable(std::move(callable_)), traces(std::move(options)) {}
    F callable;
    detail::FunctionTraces traces;
  };
  std::shared_ptr<Shared> shared_;
};

template <class F>
Function<std::decay_t<F>> function(F&& callable, FunctionOptions options = {}) {
  return Function<std::decay_t<F>>(std::forward<F>(callable), std::move(options));
}

}  // namespace tandem
