/// @file
/// Positions, specs and iterators of datasets (tandem/data.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tandem/errors.h"
#include "tandem/example.h"
#include "tandem/function.h"
#include "tandem/tensor.h"

/// Input pipelines and data loaders.
namespace tandem::data {

/// Selects a pass over a dataset and where it starts.
struct IterateOptions {
  std::uint64_t epoch = 0;  ///< number of the epoch, from 0
  std::int64_t skip = 0;    ///< number of elements to skip at the start
  /// Equal epoch and skip.
  friend bool operator==(const IterateOptions&, const IterateOptions&) = default;
};

/// The dtype and shape of one component. Sizes that differ between elements are -1. As
/// tf.TensorSpec.
struct ComponentSpec {
  DType dtype = float32;  ///< dtype
  Shape shape{};          ///< shape
};
/// Prints the dtype and the shape: "float32 (-1, 4)".
std::ostream& operator<<(std::ostream& out, const ComponentSpec& spec);

/// Result of Dataset::element_spec(): dtypes and shapes of the components, or empty if they are not
/// known.
class ElementSpec : public std::optional<std::vector<ComponentSpec>> {
 public:
  ElementSpec() = default;
  /// These specs; none: not known.
  ElementSpec(std::optional<std::vector<ComponentSpec>> specs)  // NOLINT: implicit
      : std::optional<std::vector<ComponentSpec>>(std::move(specs)) {}
  /// The specs of the components. Throws FailedPreconditionError if they are not known.
  const std::vector<ComponentSpec>& value() const;
  /// The spec of component `index`. Throws FailedPreconditionError if the specs are not known, and
  /// OutOfRangeError.
  const ComponentSpec& operator[](std::size_t index) const;
};
/// Prints the specs: "(float32 (-1, 4), int64 (-1))", or "unknown".
std::ostream& operator<<(std::ostream& out, const ElementSpec& spec);

/// Iterates over one epoch of a dataset. A handle: copies share the position. Not thread-safe.
///
/// May be used in a traced function, as an argument or captured: each call of next() there takes an
/// element in every run. The run throws OutOfRangeError "End of sequence" if there is none left,
/// and InvalidArgumentError for an element that does not match element_spec(). (An iterator that is
/// created while a function is traced is read during the trace.)
/// @code
/// const auto step = td::function([&](td::data::Iterator& batches) {
///   const auto batch = batches.next();
///   return optimizer.minimize(loss(model(batch[0]), batch[1]), variables);
/// });
/// td::data::Iterator batches = dataset.repeat().batch(32).iterate();
/// for (int i = 0; i < 1000; ++i) step(batches);
/// @endcode
class Iterator {
 public:
  Iterator() = default;

  /// Returns the next element. Throws the error of a map, filter or generator of the pipeline; the
  /// iterator is then at its end.
  ///
  /// Throws UnimplementedError inside the branches and loops of a traced function (call it before
  /// them, or use for_each()) and in the graph of a session.
  NextExample next();
  /// Dtypes and shapes of the components: Dataset::element_spec(), or if that is not known those of
  /// the next element, with first axes of any size. Throws FailedPreconditionError if there is no
  /// next element either. As tf.data.Iterator.element_spec.
  std::vector<ComponentSpec> element_spec() const;
  /// The current position. Dataset::iterate(position()) continues from it, in this or another
  /// process.
  IterateOptions position() const;

  class Cursor;
  /// For loops: `for (const Example& e : iterator)` iterates over the remaining elements. Throws
  /// FailedPreconditionError in a traced function, where such a loop would not end.
  Cursor begin();
  /// The end of the iteration.
  std::default_sentinel_t end() const { return {}; }

  /// For Tandem's own code.
  struct State;
  /// For Tandem's own code.
  explicit Iterator(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// For Tandem's own code.
  std::shared_ptr<ElementPass> pass() const;

 private:
  State& state() const;
  NextExample advance();  // next() of a loop

  std::shared_ptr<State> state_;
};

/// Lets an Iterator be an argument of a traced function (tandem/function.h). The specs of its
/// elements are part of the signature.
template <class V, class K>
void visit_tensors(Iterator& iterator, const V&, const K& key) {
  for (const ComponentSpec& component : iterator.element_spec()) {
    key(static_cast<std::uint64_t>(component.dtype));
    key(static_cast<std::uint64_t>(component.shape.rank()));
    for (const std::int64_t size : component.shape) key(static_cast<std::uint64_t>(size));
  }
  key(iterator.pass());
}

/// A C++ input iterator over the elements of an Iterator.
class Iterator::Cursor {
 public:
  /// Element type.
  using value_type = Example;
  /// Difference type.
  using difference_type = std::ptrdiff_t;

  Cursor() = default;
  /// Takes the first element of `iterator`.
  explicit Cursor(Iterator iterator) : iterator_(std::move(iterator)) { ++*this; }
  /// @{
  /// The current element.
  const Example& operator*() const { return *current_; }
  const Example* operator->() const { return &*current_; }
  /// @}
  /// @{
  /// Takes the next element.
  Cursor& operator++() {
    current_ = iterator_.advance();
    return *this;
  }
  void operator++(int) { ++*this; }
  /// @}
  /// Whether there are no more elements.
  friend bool operator==(const Cursor& cursor, std::default_sentinel_t) { return !cursor.current_; }

 private:
  Iterator iterator_;
  NextExample current_;
};

inline Iterator::Cursor Iterator::begin() { return Cursor(*this); }

}  // namespace tandem::data

/// For Tandem's own code: callables may take an iterator by a reference that is not constant.
template <>
struct tandem::detail::Passed<tandem::data::Iterator> {
  using type = tandem::data::Iterator&;  ///< how it is passed
};
