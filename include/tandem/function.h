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
// tensor for its elements is a FailedPreconditionError.
#pragma once

#include <any>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

// What a tensor argument may be: any size where the shape is negative.
struct InputSpec {
  Shape shape;
  DType dtype = float32;
};

struct FunctionOptions {
  std::string name;  // in messages and traces of execution
  // Traced for these from the first call on, one for each tensor among the arguments, in order: a
  // call that does not suit them is an InvalidArgumentError. Empty: a trace for each set of dtypes
  // and shapes that comes.
  std::vector<InputSpec> input_signature;
};

namespace detail {

// Calls visit(Tensor&) for the tensors of a value and key(text) for what else tells one call's
// trace from another's. Types of one's own take part by an overload visit_tensors(T&, visit, key)
// beside the type.
template <class V, class K>
void visit_tensors(Tensor& tensor, const V& visit, const K&) {
  visit(tensor);
}
template <class T, class V, class K>
requires std::is_arithmetic_v<T> || std::is_enum_v<T>
void visit_tensors(T& value, const V&, const K& key) {
  if constexpr (std::is_enum_v<T>)
    key(std::to_string(static_cast<long long>(value)));
  else if constexpr (std::is_floating_point_v<T>)
    key(std::to_string(std::hash<T>()(value)));
  else
    key(std::to_string(value));
}
template <class V, class K>
void visit_tensors(std::string& value, const V&, const K& key) {
  key(std::to_string(value.size()) + ":");
  key(value);
}
template <class V, class K>
void visit_tensors(const char*& value, const V&, const K& key) {
  key(value);
}
template <class V, class K>
void visit_tensors(Variable& variable, const V&, const K& key) {
  key(std::to_string(reinterpret_cast<std::uintptr_t>(&variable.impl())));
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
  key(std::to_string(values.size()) + "v");
  for (auto& value : values) visit_tensors(value, visit, key);
}
template <class T, class V, class K>
void visit_tensors(std::optional<T>& value, const V& visit, const K& key) {
  key(value ? "o1" : "o0");
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

// The traces of one function and their programs.
class FunctionTraces {
 public:
  // Runs the callable on symbolic tensors and returns the tensors of its result.
  using Body = std::function<std::vector<Tensor>(std::vector<Tensor> inputs)>;

  explicit FunctionTraces(FunctionOptions options);
  ~FunctionTraces();

  // Whether operations of the calling thread are being traced already: the callable then takes part
  // in that trace.
  static bool tracing();
  // The tensors of the result for `inputs`: traced with `body` unless there is a trace for the
  // signature and `key`. `trace` tells which one it was.
  std::vector<Tensor> call(const std::string& key, std::vector<Tensor> inputs, const Body& body,
                           std::size_t* trace);
  std::size_t num_traces() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace detail

// A callable that is traced. Copies share their traces. Thread-safe: calls of one function wait for
// each other.
template <class F>
class Function {
 public:
  Function(F callable, FunctionOptions options)
      : shared_(std::make_shared<Shared>(std::move(callable), std::move(options))) {}

  // Arguments: tensors, variables, examples, per-replica values, containers of these, numbers, enumerations
  // and strings. Numbers and strings are part of the signature: each new value is traced anew.
  template <class... Args>
  auto operator()(const Args&... args) const {
    using Result = std::invoke_result_t<F&, const Args&...>;
    Shared& shared = *shared_;
    if (detail::FunctionTraces::tracing()) return shared.callable(args...);

    std::tuple<Args...> held(args...);
    std::vector<Tensor> inputs;
    std::string key;
    const auto ignore = [](const std::string&) {};
    using detail::visit_tensors;
    visit_tensors(
        held, [&](Tensor& tensor) { inputs.push_back(tensor); },
        [&](const std::string& part) { (key += part) += ';'; });

    std::optional<std::conditional_t<std::is_void_v<Result>, char, Result>> traced;
    const auto body = [&](std::vector<Tensor> symbols) {
      std::size_t next = 0;
      visit_tensors(
          held, [&](Tensor& tensor) { tensor = std::move(symbols[next++]); }, ignore);
      std::vector<Tensor> outputs;
      if constexpr (std::is_void_v<Result>) {
        std::apply(shared.callable, std::as_const(held));
      } else {
        traced.emplace(std::apply(shared.callable, std::as_const(held)));
        visit_tensors(
            *traced, [&](Tensor& tensor) { outputs.push_back(tensor); }, ignore);
      }
      return outputs;
    };
    std::size_t trace = 0;
    std::vector<Tensor> outputs = shared.traces.call(key, std::move(inputs), body, &trace);
    if constexpr (!std::is_void_v<Result>) {
      // What the callable returned while it was traced, with this call's tensors in it.
      const std::lock_guard lock(shared.mutex);
      if (traced) {
        if (shared.results.size() <= trace) shared.results.resize(trace + 1);
        shared.results[trace] = std::move(*traced);
      }
      Result result = std::any_cast<const Result&>(shared.results[trace]);
      std::size_t next = 0;
      visit_tensors(
          result, [&](Tensor& tensor) { tensor = std::move(outputs[next++]); }, ignore);
      return result;
    }
  }

  // How many signatures have been traced.
  std::size_t num_traces() const { return shared_->traces.num_traces(); }

 private:
  struct Shared {
    Shared(F callable_, FunctionOptions options)
        : callable(std::move(callable_)), traces(std::move(options)) {}
    F callable;
    detail::FunctionTraces traces;
    std::mutex mutex;
    std::vector<std::any> results;
  };
  std::shared_ptr<Shared> shared_;
};

template <class F>
Function<std::decay_t<F>> function(F&& callable, FunctionOptions options = {}) {
  return Function<std::decay_t<F>>(std::forward<F>(callable), std::move(options));
}

}  // namespace tandem
