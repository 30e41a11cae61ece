// Typed attributes of operations: plain structs that list their fields once (TANDEM_FIELDS). The
// runtime compares, hashes, prints and stores them by that list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include "op/attribute_fields.h"
#include "op/fields.h"

namespace tandem {

// The functions of an attribute struct. One static instance per type.
struct AttrsType {
  std::shared_ptr<const void> (*copy)(const void* attrs);
  bool (*equal)(const void* a, const void* b);
  std::size_t (*hash)(const void* attrs);
  std::string (*print)(const void* attrs);
  // Calls visit(user, number) for every std::int64_t in `attrs`, including those of shapes and
  // lists: they may be sizes, also unknown ones (graph/symbolic_shape.h). It may change them. A
  // number that may have any value, and so be mistaken for an unknown size, is a std::uint64_t.
  void (*visit_integers)(void* attrs, void (*visit)(void* user, std::int64_t& number), void* user);
  // The fields by name, for serialisation.
  AttrFields (*save)(const void* attrs);
  // Creates attributes from fields. Throws InvalidArgumentError if one is missing, unknown or has
  // an invalid value.
  std::shared_ptr<const void> (*load)(const AttrFields& fields);
  // Sets the field of that name, if there is one.
  void (*set)(void* attrs, const AttrField& field);
};

struct NoAttrs {
  TANDEM_FIELDS()
};

namespace detail {

// Floating numbers are compared by bits: -0.0 differs from 0.0, because 1 / x does, and a NaN
// equals itself.
template <class T>
bool same_value(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>)
    return std::memcmp(&a, &b, sizeof(T)) == 0;
  else
    return a == b;
}

template <class T>
std::size_t hash_value(const T& value) {
  if constexpr (std::is_enum_v<T>)
    return std::hash<std::underlying_type_t<T>>()(static_cast<std::underlying_type_t<T>>(value));
  else if constexpr (requires { std::hash<T>()(value); })
    return std::hash<T>()(value);
  else {
    std::size_t seed = 0;
    for (const auto& item : value) seed = seed * 1099511628211u + hash_value(item);
    return seed;
  }
}

template <class T, class F>
void visit_field(T& value, const F& visit) {
  if constexpr (std::is_same_v<T, std::int64_t>)
    visit(value);
  else if constexpr (std::is_same_v<T, Shape>)
    for (int axis = 0; axis < value.rank(); ++axis) {
      std::int64_t size = value[axis];
      visit(size);
      value.set(axis, size);
    }
  else if constexpr (requires { value.begin() == value.end(); })
    for (auto& item : value) visit_field(item, visit);
}

template <class T>
void print_field(std::string& out, const char* name, const T& value) {
  if (!out.empty()) out += ", ";
  out += name;
  out += '=';
  if constexpr (std::is_same_v<T, bool>)
    out += value ? "true" : "false";
  else if constexpr (std::is_enum_v<T>)
    out += std::to_string(static_cast<long long>(value));
  else if constexpr (std::is_arithmetic_v<T>)
    out += std::to_string(value);
  else {
    out += '[';
    bool first = true;
    for (const auto& item : value) {
      if (!first) out += ' ';
      first = false;
      out += std::to_string(item);
    }
    out += ']';
  }
}

// The functions of an AttrsType for the attributes A.
template <class A>
struct AttrsFunctions {
  static std::shared_ptr<const void> copy(const void* attrs) {
    if constexpr (std::is_empty_v<A>) return nullptr;
    return std::make_shared<const A>(of(attrs));
  }

  // Field by field, by address offset within the two structs.
  static bool equal(const void* a, const void* b) {
    bool equal = true;
    of(a).fields([&](const char*, const auto& value) {
      using T = std::remove_cvref_t<decltype(value)>;
      const auto offset = reinterpret_cast<const char*>(&value) - static_cast<const char*>(a);
      equal = equal &&
              same_value(value, *reinterpret_cast<const T*>(static_cast<const char*>(b) + offset));
    });
    return equal;
  }

  static std::size_t hash(const void* attrs) {
    std::size_t seed = 14695981039346656037u;
    of(attrs).fields([&](const char*, const auto& value) {
      seed = (seed ^ hash_value(value)) * 1099511628211u;
    });
    return seed;
  }

  static std::string print(const void* attrs) {
    std::string out;
    of(attrs).fields([&](const char* name, const auto& value) { print_field(out, name, value); });
    return out;
  }

  static void visit(void* attrs, void (*visitor)(void*, std::int64_t&), void* user) {
    of(attrs).fields([&](const char*, const auto& value) {
      using T = std::remove_cvref_t<decltype(value)>;
      visit_field(const_cast<T&>(value), [&](std::int64_t& number) { visitor(user, number); });
    });
  }

  static AttrFields save(const void* attrs) {
    AttrFields saved;
    of(attrs).fields([&](const char* name, const auto& value) {
      save_field(saved.emplace_back(AttrField{.name = name}), value);
    });
    return saved;
  }

  static std::shared_ptr<const void> load(const AttrFields& fields) {
    auto loaded = std::make_shared<A>();
    std::size_t known = 0;
    loaded->fields([&](const char* name, const auto& value) {
      using T = std::remove_cvref_t<decltype(value)>;
      load_field(field_named(fields, name), const_cast<T&>(value));
      ++known;
    });
    check_count(known, fields.size());
    if constexpr (std::is_empty_v<A>) return nullptr;
    return loaded;
  }

  static void set(void* attrs, const AttrField& field) {
    of(attrs).fields([&](const char* name, const auto& value) {
      using T = std::remove_cvref_t<decltype(value)>;
      if (field.name == name) load_field(field, const_cast<T&>(value));
    });
  }

 private:
  static const A& of(const void* attrs) { return *static_cast<const A*>(attrs); }
};

}  // namespace detail

// `A` lists its fields by TANDEM_FIELDS.
template <class A>
const AttrsType& attrs_type() {
  using F = detail::AttrsFunctions<A>;
  static const AttrsType type = {F::copy,  F::equal, F::hash, F::print,
                                 F::visit, F::save,  F::load, F::set};
  return type;
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
