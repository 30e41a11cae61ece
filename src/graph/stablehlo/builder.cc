#include "graph/stablehlo/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "core/dim.h"
#include "core/joined.h"
#include "core/size_table.h"
#include "core/status.h"
#include "tandem/dtype.h"

namespace tandem::stablehlo {
namespace {

constexpr std::array<std::string_view, 15> kElements = {
    "f32", "f64", "f16",  "bf16", "i32",  "i64",      "ui8",   "i1",
    "i8",  "i16", "ui16", "ui32", "ui64", "f8E4M3FN", "f8E5M2"};
constexpr std::array<int, 15> kBits = {32, 64, 16, 16, 32, 64, 8, 8, 8, 16, 16, 32, 64, 8, 8};

template <class Items, class Text>
std::string listed(const Items& items, const Text& text) {
  std::string all;
  for (const auto& item : items) {
    if (!all.empty()) all += ", ";
    all += text(item);
  }
  return all;
}

std::string operand_names(std::span<const Value> operands) {
  return listed(operands, [](const Value& operand) { return operand.name; });
}

std::string operand_types(std::span<const Value> operands) {
  return listed(operands, [](const Value& operand) { return operand.type.text(); });
}
std::string result_types(std::span<const Type> results) {
  return listed(results, [](const Type& type) { return type.text(); });
}

// A number as MLIR's literal of the element type. Floating ones are written as their bits.
std::string number_text(double number, Element element) {
  switch (element) {
    case Element::kF32:
      return fmt::format("0x{:08X}", std::bit_cast<std::uint32_t>(static_cast<float>(number)));
    case Element::kF64: return fmt::format("0x{:016X}", std::bit_cast<std::uint64_t>(number));
    case Element::kF16: return fmt::format("0x{:04X}", Half(static_cast<float>(number)).bits);
    case Element::kBF16: return fmt::format("0x{:04X}", BFloat16(static_cast<float>(number)).bits);
    case Element::kBool: return number != 0.0 ? "true" : "false";
    case Element::kF8E4M3FN:
      return fmt::format("0x{:02X}", Float8E4M3FN(static_cast<float>(number)).bits);
    case Element::kF8E5M2:
      return fmt::format("0x{:02X}", Float8E5M2(static_cast<float>(number)).bits);
    default: return fmt::format("{}", static_cast<std::int64_t>(number));
  }
}

bool any_unknown(const Axes& numbers) { return std::ranges::any_of(numbers, dim::is_unknown); }

Axes filled(std::size_t count, std::int64_t value) { return Axes(count, value); }

std::string window_text(const Window& window) {
  return fmt::format("window_strides = {}, padding = {}", array_text(window.strides),
                     pairs_text(window.low, window.high));
}

const Axes& or_ones(const Axes& given, const Axes& ones) { return given.empty() ? ones : given; }

}  // namespace

Element element_of(DType dtype) { return static_cast<Element>(dtype); }
bool is_floating(Element element) { return element <= Element::kBF16; }
int bits_of(Element element) { return kBits[static_cast<std::size_t>(element)]; }

std::string Type::text() const {
  std::string text = "tensor<";
  for (const std::int64_t size : shape.words())
    if (dim::is_unknown(size))
      static_cast<void>(SizeTable::of(size)), text += "?x";
    else
      text += fmt::format("{}x", size);
  text += kElements[static_cast<std::size_t>(element)];
  text += '>';
  return text;
}

namespace {

void expect_known(std::span<const std::int64_t> numbers) {
  for (const std::int64_t number : numbers)
    if (dim::is_unknown(number))
      fail<InvalidArgumentError>("an attribute depends on an unknown size");
}

}  // namespace

std::string array_text(std::span<const std::int64_t> numbers) {
  expect_known(numbers);
  if (numbers.empty()) return "array<i64>";
  return fmt::format("array<i64: {}>", joined(numbers, ", "));
}

std::string pairs_text(std::span<const std::int64_t> first, std::span<const std::int64_t> second) {
  expect_known(first);
  expect_known(second);
  if (first.empty()) return "dense<> : tensor<0x2xi64>";
  std::string rows;
  for (std::size_t i = 0; i < first.size(); ++i)
    rows += fmt::format("{}[{}, {}]", i > 0 ? ", " : "", first[i], second[i]);
  return fmt::format("dense<[{}]> : tensor<{}x2xi64>", rows, first.size());
}

std::vector<Value> Builder::add(std::string_view operation, std::span<const Value> operands,
                                std::span<const std::string> regions, std::string_view attributes,
                                std::span<const Type> results) {
  std::vector<Value> made;
  for (const Type& type : results) made.push_back({new_name(), type});
  const bool has_dialect = operation.find('.') != std::string_view::npos;
  text_ += fmt::format("{}{}\"{}{}\"({})", operand_names(made), made.empty() ? "" : " = ",
                       has_dialect ? "" : "stablehlo.", operation, operand_names(operands));
  if (!regions.empty()) text_ += fmt::format(" ({})", joined(regions, ", "));
  if (!attributes.empty()) text_ += fmt::format(" {{{}}}", attributes);
  text_ += fmt::format(" : ({}) -> ({})\n", operand_types(operands), result_types(results));
  return made;
}

std::string Builder::new_name() { return fmt::format("%{}", next_++); }

Value Builder::add(std::string_view operation, std::span<const Value> operands,
                   std::string_view attributes, const Type& result) {
  return add(operation, operands, {}, attributes, {&result, 1}).front();
}

std::string Builder::region(std::span<const Type> arguments,
                            const std::function<std::vector<Value>(std::span<const Value>)>& body) {
  std::string outside = std::move(text_);
  text_.clear();
  std::vector<Value> given;
  std::string list;
  for (const Type& type : arguments) {
    given.push_back({new_name(), type});
    list += fmt::format("{}{}: {}", list.empty() ? "" : ", ", given.back().name, type.text());
  }
  text_ = arguments.empty() ? "{\n" : fmt::format("{{\n^bb0({}):\n", list);
  const std::vector<Value> returned = body(given);
  add("return", returned, {}, "", {});
  text_ += "}";
  return std::exchange(text_, std::move(outside));
}

// --- constants ---

Value Builder::constant(double number, const Type& type) {
  if (!type.shape.fully_defined())
    return broadcast(constant(number, {type.element, Shape::scalar()}), type.shape, {});
  return add("constant", {},
             fmt::format("value = dense<{}> : {}", number_text(number, type.element), type.text()),
             type);
}

Value Builder::integer(std::uint64_t number, const Type& type) {
  if (!type.shape.fully_defined())
    return broadcast(integer(number, {type.element, Shape::scalar()}), type.shape, {});
  const std::string text = type.element == Element::kI32 || type.element == Element::kI64
                               ? fmt::format("{}", static_cast<std::int64_t>(number))
                               : fmt::format("{}", number);
  return add("constant", {}, fmt::format("value = dense<{}> : {}", text, type.text()), type);
}

Value Builder::literal(const TensorType& spec, const std::byte* elements) {
  const std::int64_t count = spec.shape.num_elements();
  if (spec.dtype == bool_) {  // MLIR packs booleans into bits, so they come as bytes
    const Value bytes = literal({uint8, spec.shape}, elements);
    return compare("NE", bytes, like(bytes, 0));
  }
  std::string text;
  if (count > 0) {
    const std::size_t size = static_cast<std::size_t>(count) * size_of(spec.dtype);
    text.reserve(2 * size + 4);
    text = "\"0x";
    for (std::size_t i = 0; i < size; ++i)
      fmt::format_to(std::back_inserter(text), "{:02X}", std::to_integer<unsigned>(elements[i]));
    text += '"';
  }
  const Type type(spec);
  return add("constant", {}, fmt::format("value = dense<{}> : {}", text, type.text()), type);
}

Value Builder::iota(const Type& type, int axis) {
  const std::string attributes = fmt::format("iota_dimension = {} : i64", axis);
  if (!type.shape.fully_defined()) return with_sizes("dynamic_iota", {}, attributes, type);
  return add("iota", {}, attributes, type);
}

// --- unknown sizes ---

namespace {

const Type kSize(Element::kI64, Shape::scalar());

}  // namespace

void Builder::add_symbol(std::int64_t symbol, const Value& argument, int axis) {
  const Value size =
      add("get_dimension_size", {&argument, 1}, fmt::format("dimension = {} : i64", axis),
          {Element::kI32, Shape::scalar()});
  sizes_.insert_or_assign(symbol, convert(size, Element::kI64));
}

Value Builder::size(std::int64_t size) {
  if (!dim::is_unknown(size)) return integer(static_cast<std::uint64_t>(size), kSize);
  if (const auto found = sizes_.find(size); found != sizes_.end()) return found->second;
  const auto table = SizeTable::of(size);
  const SizeTable::Expression expression = table->at(table->index_of(size));
  using Kind = SizeTable::Kind;
  std::vector<Value> parts;
  for (const std::int64_t part : expression.parts) parts.push_back(this->size(part));
  std::optional<Value> result;
  switch (expression.kind) {
    case Kind::kSymbol:
      fail<InvalidArgumentError>("{} is no size of an argument", table->text(size));
    case Kind::kPolynomial:
      for (const Polynomial::Term& term : expression.polynomial.terms()) {
        Value product = this->size(term.factor);
        for (const std::int32_t atom : term.atoms)
          product = multiply(product, this->size(table->handle(atom)));
        result = result ? add(*result, product) : product;
      }
      break;
    case Kind::kQuotient:
    case Kind::kFloorQuotient: {  // `divide` rounds toward zero
      const Value quotient = divide(parts[0], parts[1]), zero = this->size(0);
      const Value rest = subtract(parts[0], multiply(quotient, parts[1]));
      result = select(compare("LT", rest, zero), subtract(quotient, this->size(1)), quotient);
      break;
    }
    case Kind::kScaled: {
      const Type wide(Element::kF64, Shape::scalar());
      const Value product = multiply(convert(parts[0], Element::kF64),
                                     constant(std::bit_cast<double>(expression.parts[1]), wide));
      result = convert(unary("floor", product), kSize.element);
      break;
    }
    case Kind::kMin:
    case Kind::kMax:
    case Kind::kBroadcast:
      for (const Value& part : parts)
        result = !result ? part
                 : expression.kind == Kind::kBroadcast
                     ? select(compare("EQ", *result, this->size(1)), part, *result)
                     : binary(expression.kind == Kind::kMin ? "minimum" : "maximum", *result, part);
  }
  return sizes_.emplace(size, *result).first->second;
}

Value Builder::size(std::int64_t size, const Type& type) {
  if (!dim::is_unknown(size)) return constant(static_cast<double>(size), type);
  return broadcast(convert(this->size(size), type.element), type.shape, {});
}

void Builder::require_equal(std::int64_t a, std::int64_t b, std::string_view message) {
  const Value equal = compare("EQ", size(a), size(b));
  std::string quoted(message);
  for (char& c : quoted)
    if (c == '"' || c == '\\' || c == '\n') c = ' ';
  add("custom_call", {&equal, 1}, {},
      fmt::format("call_target_name = \"shape_assertion\", error_message = \"{}\", "
                  "has_side_effect = true, api_version = 2 : i32",
                  quoted),
      {});
}

Value Builder::vector_of(std::span<const std::int64_t> sizes) {
  std::vector<Value> each;
  for (const std::int64_t one : sizes) each.push_back(reshape(size(one), {1}));
  return each.size() == 1 ? each[0] : concatenate(each, 0);
}

Value Builder::with_sizes(std::string_view operation, std::span<const Value> operands,
                          std::string_view attributes, const Type& result) {
  std::vector<Value> all(operands.begin(), operands.end());
  all.push_back(vector_of(result.shape.words().span()));
  return add(operation, all, attributes, result);
}

// --- element by element ---

Value Builder::unary(std::string_view operation, const Value& x) {
  return add(operation, {&x, 1}, "", x.type);
}

Value Builder::binary(std::string_view operation, const Value& a, const Value& b) {
  return add(operation, std::array{a, b}, "", a.type);
}

Value Builder::compare(std::string_view direction, const Value& a, const Value& b) {
  return add("compare", std::array{a, b},
             fmt::format("comparison_direction = #stablehlo<comparison_direction {}>", direction),
             {Element::kBool, a.shape()});
}

Value Builder::select(const Value& condition, const Value& a, const Value& b) {
  return add("select", std::array{condition, a, b}, "", a.type);
}

Value Builder::convert(const Value& x, Element element) {
  if (x.element() == element) return x;
  return add("convert", {&x, 1}, "", {element, x.shape()});
}

Value Builder::bitcast(const Value& x, Element element) {
  return add("bitcast_convert", {&x, 1}, "", {element, x.shape()});
}

// --- shapes ---

Value Builder::broadcast(const Value& x, const Shape& shape, const Axes& axes) {
  if (x.shape() == shape) return x;
  const std::string attributes = fmt::format("broadcast_dimensions = {}", array_text(axes));
  const Type result(x.element(), shape);
  if (!shape.fully_defined())
    return with_sizes("dynamic_broadcast_in_dim", {&x, 1}, attributes, result);
  return add("broadcast_in_dim", {&x, 1}, attributes, result);
}

Value Builder::broadcast_to(const Value& x, const Shape& shape) {
  Axes axes = all_axes(x.shape());
  for (std::int64_t& axis : axes) axis += shape.rank() - x.rank();
  return broadcast(x, shape, axes);
}

Value Builder::reshape(const Value& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const Type result(x.element(), shape);
  if (!shape.fully_defined()) return with_sizes("dynamic_reshape", {&x, 1}, "", result);
  return add("reshape", {&x, 1}, "", result);
}

Value Builder::transpose(const Value& x, const Axes& permutation) {
  Shape shape = x.shape();
  for (int axis = 0; axis < shape.rank(); ++axis)
    shape.set(axis, x.shape().word(static_cast<int>(permutation[static_cast<std::size_t>(axis)])));
  return add("transpose", {&x, 1}, fmt::format("permutation = {}", array_text(permutation)),
             {x.element(), shape});
}

Value Builder::slice(const Value& x, const Axes& begin, const Axes& end, const Axes& strides) {
  const Axes ones = filled(begin.size(), 1);
  const Axes& steps = or_ones(strides, ones);
  Shape shape = x.shape();
  for (std::size_t i = 0; i < begin.size(); ++i)
    shape.set(static_cast<int>(i), dim::ceil_quotient(dim::difference(end[i], begin[i]), steps[i]));
  if (any_unknown(begin) || any_unknown(end))
    return add("real_dynamic_slice",
               std::array{x, vector_of(begin), vector_of(end), vector_of(steps)}, "",
               {x.element(), shape});
  return add("slice", {&x, 1},
             fmt::format("start_indices = {}, limit_indices = {}, strides = {}", array_text(begin),
                         array_text(end), array_text(steps)),
             {x.element(), shape});
}

Value Builder::pad(const Value& x, const Value& padding, const Axes& low, const Axes& high,
                   const Axes& interior) {
  const Axes zeros = filled(low.size(), 0);
  const Axes& between = interior.empty() ? zeros : interior;
  Shape shape = x.shape();
  for (std::size_t i = 0; i < low.size(); ++i) {
    const std::int64_t size = shape.word(static_cast<int>(i));
    const std::int64_t inside = dim::product(dim::max(dim::difference(size, 1), 0), between[i]);
    shape.set(static_cast<int>(i), dim::sum(dim::sum(size, inside), dim::sum(low[i], high[i])));
  }
  if (any_unknown(low) || any_unknown(high))
    return add("dynamic_pad",
               std::array{x, padding, vector_of(low), vector_of(high), vector_of(between)}, "",
               {x.element(), shape});
  return add("pad", std::array{x, padding},
             fmt::format("edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}",
                         array_text(low), array_text(high), array_text(between)),
             {x.element(), shape});
}

Value Builder::reverse(const Value& x, const Axes& axes) {
  return add("reverse", {&x, 1}, fmt::format("dimensions = {}", array_text(axes)), x.type);
}

Value Builder::concatenate(std::span<const Value> parts, std::int64_t axis) {
  Shape shape = parts[0].shape();
  std::int64_t size = 0;
  for (const Value& part : parts) size = dim::sum(size, part.shape().word(static_cast<int>(axis)));
  shape.set(static_cast<int>(axis), size);
  return add("concatenate", parts, fmt::format("dimension = {} : i64", axis),
             {parts[0].element(), shape});
}

Value Builder::gather(const Value& x, const Value& indices, const Axes& offset_axes,
                      std::int64_t axis, const Axes& sizes, const Type& result) {
  return add("gather", std::array{x, indices},
             fmt::format("dimension_numbers = #stablehlo.gather<offset_dims = [{}], "
                         "collapsed_slice_dims = [{}], start_index_map = [{}], index_vector_dim = "
                         "{}>, slice_sizes = {}, indices_are_sorted = false",
                         joined(offset_axes, ", "), axis, axis, indices.rank(), array_text(sizes)),
             result);
}

Value Builder::scatter(std::string_view operation, const Value& x, const Value& indices,
                       const Value& updates, const Axes& window_axes, std::int64_t axis) {
  const std::string body = combination(operation, x.element());
  return add("scatter", std::array{x, indices, updates}, {&body, 1},
             fmt::format("scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = "
                         "[{}], inserted_window_dims = [{}], scatter_dims_to_operand_dims = [{}], "
                         "index_vector_dim = {}>, indices_are_sorted = false, unique_indices = "
                         "false",
                         joined(window_axes, ", "), axis, axis, indices.rank()),
             {&x.type, 1})
      .front();
}

Value Builder::dynamic_slice(const Value& x, std::span<const Value> begin, const Axes& sizes) {
  std::vector<Value> operands = {x};
  operands.insert(operands.end(), begin.begin(), begin.end());
  return add("dynamic_slice", operands, fmt::format("slice_sizes = {}", array_text(sizes)),
             {x.element(), Shape(std::span<const std::int64_t>(sizes))});
}

Value Builder::dynamic_update_slice(const Value& x, const Value& part,
                                    std::span<const Value> begin) {
  std::vector<Value> operands = {x, part};
  operands.insert(operands.end(), begin.begin(), begin.end());
  return add("dynamic_update_slice", operands, "", x.type);
}

namespace {

// Where the row of an index begins.
std::vector<Value> begin_of_row(Builder& build, const Value& rows, const Value& index) {
  std::vector<Value> begin = {index};
  while (static_cast<int>(begin.size()) < rows.rank())
    begin.push_back(build.integer(0, index.type));
  return begin;
}

}  // namespace

Value Builder::row(const Value& rows, const Value& index) {
  const Shape one = with_ones(rows.shape(), {0});
  const Value part = dynamic_slice(rows, begin_of_row(*this, rows, index),
                                   Axes(one.words().begin(), one.words().end()));
  return reshape(part, without(one, {0}));
}

Value Builder::with_row(const Value& rows, const Value& index, const Value& elements) {
  return dynamic_update_slice(rows, reshape(elements, stacked(1, elements.shape())),
                              begin_of_row(*this, rows, index));
}

// --- reductions ---

std::string Builder::combination(std::string_view operation, Element element) {
  const Type scalar(element, Shape::scalar());
  return region(std::array{scalar, scalar}, [&](std::span<const Value> both) {
    return std::vector<Value>{binary(operation, both[0], both[1])};
  });
}

Value Builder::reduce(std::string_view operation, const Value& x, const Value& start,
                      const Axes& axes) {
  const std::string body = combination(operation, x.element());
  const Type result(x.element(), without(x.shape(), axes));
  return add("reduce", std::array{x, start}, {&body, 1},
             fmt::format("dimensions = {}", array_text(axes)), {&result, 1})
      .front();
}

Value Builder::sum(const Value& x, const Axes& axes) {
  const bool narrow = is_floating(x.element()) && bits_of(x.element()) == 16;
  const Value wide = narrow ? convert(x, Element::kF32) : x;
  return reduce("add", wide, constant(0.0, {wide.element(), Shape::scalar()}), axes);
}

Value Builder::reduce_window(std::string_view operation, const Value& x, const Value& start,
                             const Window& window) {
  const std::string body = combination(operation, x.element());
  const Axes ones = filled(window.size.size(), 1);
  Shape shape = x.shape();
  for (std::size_t i = 0; i < window.size.size(); ++i) {
    const std::int64_t covered = (window.size[i] - 1) * or_ones(window.dilations, ones)[i] + 1;
    const std::int64_t padded =
        dim::sum(shape.word(static_cast<int>(i)), dim::sum(window.low[i], window.high[i]));
    const std::int64_t rest =
        dim::floor_quotient(dim::difference(padded, covered), window.strides[i]);
    shape.set(static_cast<int>(i), dim::max(dim::sum(rest, 1), 0));
  }
  const Type result(x.element(), shape);
  return add("reduce_window", std::array{x, start}, {&body, 1},
             fmt::format("window_dimensions = {}, window_dilations = {}, base_dilations = {}, {}",
                         array_text(window.size), array_text(or_ones(window.dilations, ones)),
                         array_text(ones), window_text(window)),
             {&result, 1})
      .front();
}

// --- products ---

Value Builder::dot(const Value& a, const Value& b, const DotAxes& axes, Element result) {
  Axes sizes;
  for (const std::int64_t axis : axes.batch_a)
    sizes.push_back(a.shape().word(static_cast<int>(axis)));
  const auto add_others = [&](const Value& x, Axes used, const Axes& contracted) {
    used.insert(used.end(), contracted.begin(), contracted.end());
    for (const std::int64_t axis : other_axes(x.shape(), used))
      sizes.push_back(x.shape().word(static_cast<int>(axis)));
  };
  add_others(a, axes.batch_a, axes.contracted_a);
  add_others(b, axes.batch_b, axes.contracted_b);
  const bool narrow = is_floating(a.element()) && bits_of(a.element()) == 16;
  const Element sum = narrow ? Element::kF32 : a.element();
  const Value product =
      add("dot_general", std::array{a, b},
          fmt::format("dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [{}], "
                      "rhs_batching_dimensions = [{}], lhs_contracting_dimensions = [{}], "
                      "rhs_contracting_dimensions = [{}]>, precision_config = "
                      "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]",
                      joined(axes.batch_a, ", "), joined(axes.batch_b, ", "),
                      joined(axes.contracted_a, ", "), joined(axes.contracted_b, ", ")),
          {sum, Shape(std::span<const std::int64_t>(sizes))});
  return convert(product, result);
}

Value Builder::convolution(const Value& x, const Value& filter, std::string_view layout,
                           const Window& window, Groups groups, const Type& result) {
  const Axes ones = filled(window.strides.size(), 1);
  const bool narrow = is_floating(x.element()) && bits_of(x.element()) == 16;
  const Type sums(narrow ? Element::kF32 : x.element(), result.shape);
  const Value made =
      add("convolution", std::array{x, filter},
          fmt::format("dimension_numbers = #stablehlo.conv<{}>, lhs_dilation = {}, rhs_dilation = "
                      "{}, {}, feature_group_count = {} : i64, batch_group_count = {} : i64, "
                      "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision "
                      "HIGHEST>]",
                      layout, array_text(or_ones(window.base_dilations, ones)),
                      array_text(or_ones(window.dilations, ones)), window_text(window),
                      groups.of_features, groups.of_batch),
          sums);
  return convert(made, result.element);
}

Value bound(Builder& build, Element element, bool greatest) {
  const Type type(element, Shape::scalar());
  const auto of = [&]<class T>(T) {
    using Limits = std::numeric_limits<T>;
    return build.integer(static_cast<std::uint64_t>(greatest ? Limits::max() : Limits::min()),
                         type);
  };
  switch (element) {
    case Element::kI32: return of(std::int32_t());
    case Element::kI64: return of(std::int64_t());
    case Element::kU8: return of(std::uint8_t());
    default: {
      const double infinity = std::numeric_limits<double>::infinity();
      return build.constant(greatest ? infinity : -infinity, type);
    }
  }
}

}  // namespace tandem::stablehlo
