// Writes the operations of a StableHLO function as text. Uses features of StableHLO 1.13 at most.
//
// https://openxla.org/stablehlo/spec
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/stablehlo/axes.h"
#include "tensor/tensor_impl.h"

namespace tandem::stablehlo {

// Element types, in the order of DType.
enum class Element : std::uint8_t {
  kF32,
  kF64,
  kF16,
  kBF16,
  kI32,
  kI64,
  kU8,
  kBool,
  kI8,
  kI16,
  kU16,
  kU32,
  kU64,
  kF8E4M3FN,
  kF8E5M2
};
Element element_of(DType dtype);
bool is_floating(Element element);
int bits_of(Element element);

struct Type {
  Type(Element its_element, const Shape& its_shape) : element(its_element), shape(its_shape) {}
  Type(const TensorType& spec) : Type(element_of(spec.dtype), spec.shape) {}  // NOLINT: implicit

  // "tensor<2x3xf32>"
  std::string text() const;
  Element element;
  Shape shape;
};

// A result of an operation.
struct Value {
  std::string name;  // "%12"
  Type type;

  const Shape& shape() const { return type.shape; }
  Element element() const { return type.element; }
  int rank() const { return type.shape.rank(); }
};

// "array<i64: 1, 2>"
std::string array_text(std::span<const std::int64_t> numbers);
// A table of rows of two numbers, "dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>".
std::string pairs_text(std::span<const std::int64_t> first, std::span<const std::int64_t> second);

// How a convolution or a pooling window moves over two axes.
struct Window {
  Axes size;  // of the window in every axis of the operand; not for convolutions
  Axes strides;
  Axes low, high;            // padding
  Axes dilations = {};       // of the window; empty: 1
  Axes base_dilations = {};  // of the operand; empty: 1
};

// The axes of a product: pairs of batch axes and of contracted axes. The result has the batch axes,
// the other axes of `a`, the other axes of `b`.
struct DotAxes {
  Axes batch_a = {}, batch_b = {};
  Axes contracted_a, contracted_b;
};

// The operands of binary functions have the same shape; nothing is broadcast unless said so. Where
// a shape has unknown sizes (core/dim.h), its dimensions are dynamic, and operations get them
// as operands. Functions that have no form for unknown sizes throw InvalidArgumentError.
class Builder {
 public:
  // The operations so far, as MLIR. Nothing may be added after it.
  std::string take() { return std::move(text_); }

  // Any operation, in MLIR's generic form. `operation`: of StableHLO, or with a dialect
  // ("chlo.erf"). `attributes`: without braces. `regions`: their text, see region().
  Value add(std::string_view operation, std::span<const Value> operands,
            std::string_view attributes, const Type& result);
  std::vector<Value> add(std::string_view operation, std::span<const Value> operands,
                         std::span<const std::string> regions, std::string_view attributes,
                         std::span<const Type> results);
  // A region with arguments. `body` adds its operations and returns what the region returns.
  std::string region(std::span<const Type> arguments,
                     const std::function<std::vector<Value>(std::span<const Value>)>& body);

  // Constants. A number is rounded to the element type, as static_cast does.
  Value constant(double number, const Type& type);
  Value integer(std::uint64_t number, const Type& type);
  Value like(const Value& value, double number) { return constant(number, value.type); }
  // Elements from host memory.
  Value literal(const TensorType& spec, const std::byte* elements);
  // 0, 1, 2 and so on along `axis`.
  Value iota(const Type& type, int axis);

  // Unknown sizes. A symbol is a size of an argument; others are computed from symbols.
  void add_symbol(std::int64_t symbol, const Value& argument, int axis);
  // A size as an int64 scalar.
  Value size(std::int64_t size);
  // A size as a number of this type, repeated to its shape.
  Value size(std::int64_t size, const Type& type);
  // States that two sizes are equal, for tools that put numbers in the place of unknown sizes.
  void require_equal(std::int64_t a, std::int64_t b, std::string_view message);

  // Element by element. `operation` is a name of StableHLO: "add", "tanh".
  Value unary(std::string_view operation, const Value& x);
  Value binary(std::string_view operation, const Value& a, const Value& b);
  Value compare(std::string_view direction, const Value& a, const Value& b);  // "LT"
  Value select(const Value& condition, const Value& a, const Value& b);
  Value convert(const Value& x, Element element);
  // The same bits as elements of another type of that size.
  Value bitcast(const Value& x, Element element);
  Value add(const Value& a, const Value& b) { return binary("add", a, b); }
  Value subtract(const Value& a, const Value& b) { return binary("subtract", a, b); }
  Value multiply(const Value& a, const Value& b) { return binary("multiply", a, b); }
  Value divide(const Value& a, const Value& b) { return binary("divide", a, b); }
  Value scale(const Value& x, double number) { return multiply(x, like(x, number)); }

  // Shapes.
  Value broadcast(const Value& x, const Shape& shape, const Axes& axes);  // axis i -> axes[i]
  // As NumPy: to the last axes; sizes of 1 are repeated.
  Value broadcast_to(const Value& x, const Shape& shape);
  Value reshape(const Value& x, const Shape& shape);
  Value transpose(const Value& x, const Axes& permutation);
  Value slice(const Value& x, const Axes& begin, const Axes& end, const Axes& strides = {});
  Value pad(const Value& x, const Value& padding, const Axes& low, const Axes& high,
            const Axes& interior = {});
  Value reverse(const Value& x, const Axes& axes);
  Value concatenate(std::span<const Value> parts, std::int64_t axis);
  // Slices of `x` of these sizes, with size 1 along `axis`, where each index selects one. The
  // result has the axes of the indices in the place of `axis`; `offset_axes` are its others.
  // Indices are clamped.
  Value gather(const Value& x, const Value& indices, const Axes& offset_axes, std::int64_t axis,
               const Axes& sizes, const Type& result);
  // The opposite: combines slices of `x` with those of `updates` by a binary operation, in any
  // order. Slices that are out of range are ignored.
  Value scatter(std::string_view operation, const Value& x, const Value& indices,
                const Value& updates, const Axes& window_axes, std::int64_t axis);

  // The part of `x` of these sizes that begins at `begin`, a scalar of an integer type per axis;
  // and `x` with such a part replaced. A begin is clamped so that the part is inside.
  Value dynamic_slice(const Value& x, std::span<const Value> begin, const Axes& sizes);
  Value dynamic_update_slice(const Value& x, const Value& part, std::span<const Value> begin);

  // The element of `rows` at `index` along the first axis, without that axis; and `rows` with
  // `elements` there. `index`: a scalar of an integer type.
  Value row(const Value& rows, const Value& index);
  Value with_row(const Value& rows, const Value& index, const Value& elements);

  // Sums and other reductions over `axes`, which the result does not have. It accumulates in
  // the type of `x`.
  Value reduce(std::string_view operation, const Value& x, const Value& start, const Axes& axes);
  // A sum in float32 if `x` has 16 bits; the result has the type of the sum.
  Value sum(const Value& x, const Axes& axes);
  Value reduce_window(std::string_view operation, const Value& x, const Value& start,
                      const Window& window);

  // Products. 16-bit operands are accumulated in float32; the result has element type `result`.
  Value dot(const Value& a, const Value& b, const DotAxes& axes, Element result);
  // `layout`: "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]".
  struct Groups {
    std::int64_t of_features = 1, of_batch = 1;
  };
  Value convolution(const Value& x, const Value& filter, std::string_view layout,
                    const Window& window, Groups groups, const Type& result);

 private:
  std::string new_name();
  // A shape, or other numbers, as an int64 vector.
  Value vector_of(std::span<const std::int64_t> sizes);
  Value with_sizes(std::string_view operation, std::span<const Value> operands,
                   std::string_view attributes, const Type& result);
  // The region of a reduction: two scalars, which it combines by a binary operation.
  std::string combination(std::string_view operation, Element element);

  std::string text_;
  int next_ = 0;
  std::map<std::int64_t, Value> sizes_;  // unknown ones that have been computed
};

// The least or the greatest number of an element type: infinities of floating ones.
Value bound(Builder& build, Element element, bool greatest);

}  // namespace tandem::stablehlo
