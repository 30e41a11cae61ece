/// @file
/// The elements of datasets.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/errors.h"
#include "tandem/function.h"
#include "tandem/tensor.h"

namespace tandem {

/// For Tandem's own code: base of classes of other namespaces that convert to a Tensor, so that the
/// operators of tensors (tandem/math.h) are found for them.
struct HasTensorOperators {};

}  // namespace tandem

/// Input pipelines and data loaders.
namespace tandem::data {

/// One element of a dataset: the components of an example ({image, label}) or of a batch of them.
///
/// An example of one component is usable where a tensor is. An example of two components can be
/// taken apart: `auto [x, y] = example`.
class Example : private HasTensorOperators {
 public:
  Example() = default;
  /// The given components.
  Example(std::initializer_list<Tensor> components) : components_(components) {}
  /// The components of these examples one after another; of one example: a copy.
  template <std::same_as<Example> E>
  Example(std::initializer_list<E> examples) {
    for (const Example& example : examples)
      for (const Tensor& component : example.components_) push_back(component);
  }
  /// A single component.
  Example(Tensor component) { components_.push_back(std::move(component)); }  // NOLINT: implicit
  /// The given components.
  explicit Example(std::vector<Tensor> components) : components_(std::move(components)) {}
  /// The two components of a pair.
  template <std::convertible_to<Tensor> X, std::convertible_to<Tensor> Y>
  Example(const std::pair<X, Y>& components)  // NOLINT: a pair is an example
      : Example({static_cast<Tensor>(components.first), static_cast<Tensor>(components.second)}) {}

  /// @{
  /// Component `index`. Throws OutOfRangeError unless index < size().
  const Tensor& operator[](std::size_t index) const { return components_[checked(index)]; }
  Tensor& operator[](std::size_t index) { return components_[checked(index)]; }
  /// @}
  std::size_t size() const { return components_.size(); }  ///< number of components
  bool empty() const { return components_.empty(); }       ///< whether there are no components
  const std::vector<Tensor>& components() const { return components_; }  ///< all components
  /// @{
  /// Iterates over the components.
  auto begin() const { return components_.begin(); }
  auto end() const { return components_.end(); }
  /// @}
  /// Appends a component.
  void push_back(Tensor component) { components_.push_back(std::move(component)); }

  /// @{
  /// The only component, and its properties. Throws InvalidArgumentError for another number of
  /// components.
  operator const Tensor&() const { return *only(); }  // NOLINT: implicit
  const Shape& shape() const { return only()->shape(); }
  DType dtype() const { return only()->dtype(); }
  template <class T>
  T item() const {
    return only()->item<T>();
  }
  double item() const { return only()->item(); }
  Tensor numpy() const { return *only(); }
  template <class T>
  std::vector<T> to_vector() const {
    return only()->to_vector<T>();
  }
  /// @}

  /// For Tandem's own code: the components of `auto [x, y]`. Throws InvalidArgumentError unless
  /// there are two.
  const Tensor* pair() const;

 private:
  const Tensor* only() const;  // throws InvalidArgumentError unless there is one component
  std::size_t checked(std::size_t index) const {
    return tandem::detail::checked_index("Example", index, components_.size());
  }

  std::vector<Tensor> components_;
};

/// Prints the components: "(1., [2. 3.])".
std::ostream& operator<<(std::ostream& out, const Example& example);

/// @{
/// Component I of an example of two components, for `auto [x, y] = example`. Throws
/// InvalidArgumentError for another number of components.
template <std::size_t I>
const Tensor& get(const Example& example) {
  return example.pair()[I];
}
template <std::size_t I>
Tensor& get(Example& example) {
  return const_cast<Tensor&>(example.pair()[I]);
}
template <std::size_t I>
Tensor&& get(Example&& example) {
  return std::move(const_cast<Tensor&>(example.pair()[I]));
}
/// @}

/// Lets an Example be an argument of a traced function (tandem/function.h).
template <class V, class K>
void visit_tensors(Example& example, const V& visit, const K& key) {
  key(static_cast<std::uint64_t>(example.size()));
  for (std::size_t i = 0; i < example.size(); ++i) visit(example[i]);
}

/// Result of Iterator::next(): the next example, or empty at the end of the epoch.
class NextExample : public std::optional<Example> {
 public:
  using std::optional<Example>::optional;
  /// Component `index` of the example. Throws OutOfRangeError at the end of the epoch.
  const Tensor& operator[](std::size_t index) const;
  /// The example. Throws OutOfRangeError at the end of the epoch.
  const Example& value() const;
};

/// Component I of an example of two components, for `auto [x, y] = iterator.next()`. Throws
/// OutOfRangeError at the end of the epoch, and InvalidArgumentError for another number of
/// components.
template <std::size_t I>
const Tensor& get(const NextExample& example) {
  return example.value().pair()[I];
}

}  // namespace tandem::data

/// @cond
template <>
struct std::tuple_size<tandem::data::Example> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, tandem::data::Example> {
  using type = tandem::Tensor;
};
template <>
struct std::tuple_size<tandem::data::NextExample> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, tandem::data::NextExample> {
  using type = const tandem::Tensor;
};
/// @endcond

/// For Tandem's own code: an example remains one, although it converts to a tensor.
template <>
inline constexpr bool tandem::detail::kConsistsOfTensors<tandem::data::Example> = true;
