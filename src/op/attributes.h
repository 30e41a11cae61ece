// Typed attributes of operations: plain structs that list their fields once (TANDEM_FIELDS). The
// runtime compares and stores them by that list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "op/fields.h"
#include "tandem/shape.h"

namespace tandem {

// The serialised form of a field: its name with a list of numbers.
struct AttrField {
  std::string name;
  std::vector<std::int64_t> integers = {};  // also booleans, enumerations, strings and shapes
  std::vector<double> reals = {};
  bool known_shape = true;  // false for a shape of unknown rank
  friend bool operator==(const AttrField&, const AttrField&) = default;
};
using AttrFields = std::vector<AttrField>;

// An attribute struct as a table of its fields, for code that does not know its type.
class AttrsType {
 public:
  // std::int64_t is a kSize; booleans, enumerations and other integers are a kNumber.
  enum class Kind { kSize, kNumber, kReal, kText, kDims, kShape, kSizes };
  struct Field {
    const char* name;
    std::size_t offset;
    Kind kind;
    std::size_t bytes;
    std::int64_t smallest, largest;  // of kNumber
  };
  // `make` copies a struct, or makes one of default values of null. It returns null for structs
  // without members.
  using Make = std::shared_ptr<void> (*)(const void* attrs);

  AttrsType(Make make, std::vector<Field> fields) : make_(make), fields_(std::move(fields)) {}

  std::shared_ptr<const void> copy(const void* attrs) const { return make_(attrs); }
  // Floating numbers are compared by bits: -0.0 differs from 0.0, because 1 / x does, and a NaN
  // equals itself.
  bool equal(const void* a, const void* b) const;
  // Visits every std::int64_t in `attrs`, including those of shapes and lists: they may be sizes,
  // also unknown ones (core/dim.h). `visit` may change them. A number that may have any
  // value, and so be mistaken for an unknown size, is a std::uint64_t.
  void visit_integers(void* attrs, const std::function<void(std::int64_t&)>& visit) const;
  // The fields by name, for serialisation.
  AttrFields save(const void* attrs) const;
  // Creates attributes from fields. Throws InvalidArgumentError if one is missing, unknown or has
  // an invalid value.
  std::shared_ptr<const void> load(const AttrFields& saved) const;
  // Sets the field of that name, if there is one.
  void set(void* attrs, const AttrField& saved) const;

 private:
  Make make_;
  std::vector<Field> fields_;
};

struct NoAttrs {
  TANDEM_FIELDS()
};

namespace detail {

// Lists the fields of the struct at `attrs`.
struct FieldLister {
  const void* attrs;
  std::vector<AttrsType::Field> fields = {};

  template <class T>
  void operator()(const char* name, const T& value) {
    const auto offset = reinterpret_cast<const char*>(&value) - static_cast<const char*>(attrs);
    AttrsType::Field field = {
        name,     static_cast<std::size_t>(offset), AttrsType::Kind::kNumber, sizeof(T), INT64_MIN,
        INT64_MAX};
    if constexpr (std::is_enum_v<T>) {  // it declares last_value(T)
      field.smallest = 0;
      field.largest = static_cast<std::int64_t>(last_value(T()));
    } else if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(std::int64_t)) {
      field.smallest = std::numeric_limits<T>::min();
      field.largest = std::numeric_limits<T>::max();
    } else if constexpr (!std::is_same_v<T, std::uint64_t>) {  // which is stored by its bits
      field.kind = kind_of(&value);
    }
    fields.push_back(field);
  }

  using Kind = AttrsType::Kind;
  static Kind kind_of(const std::int64_t*) { return Kind::kSize; }
  static Kind kind_of(const double*) { return Kind::kReal; }
  static Kind kind_of(const std::string*) { return Kind::kText; }
  static Kind kind_of(const Dims*) { return Kind::kDims; }
  static Kind kind_of(const Shape*) { return Kind::kShape; }
  static Kind kind_of(const std::vector<std::int64_t>*) { return Kind::kSizes; }
};

template <class A>
std::shared_ptr<void> make_attrs(const void* attrs) {
  if constexpr (std::is_empty_v<A>)
    return nullptr;
  else
    return attrs ? std::make_shared<A>(*static_cast<const A*>(attrs)) : std::make_shared<A>();
}

template <class A>
AttrsType* make_attrs_type() {
  const A attrs{};
  FieldLister lister{&attrs};
  attrs.fields(lister);
  return new AttrsType(&make_attrs<A>, std::move(lister.fields));
}

}  // namespace detail

// `A` lists its fields by TANDEM_FIELDS. Never destroyed: threads may run while the process exits.
template <class A>
const AttrsType& attrs_type() {
  static const AttrsType* const type = detail::make_attrs_type<A>();
  return *type;
}

// A borrowed attribute struct with its type.
struct AttrsRef {
  const AttrsType* type;
  const void* data;

  template <class A>
  AttrsRef(const A& attrs) : type(&attrs_type<A>()), data(&attrs) {}  // NOLINT: implicit
  AttrsRef(const AttrsType* attrs_type, const void* attrs) : type(attrs_type), data(attrs) {}
};

}  // namespace tandem
