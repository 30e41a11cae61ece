// JSON. Its library has headers that are slow to compile: only json.cc includes them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tandem {

// Text that is not JSON, or a value that is not what the caller needs.
class JsonError : public std::runtime_error {
 public:
  explicit JsonError(const std::string& message, bool deep = false)
      : std::runtime_error(message), too_deep(deep) {}
  bool too_deep;  // more levels than the caller accepts
};

struct JsonStyle {
  int indent = -1;  // of nested lines; -1: one line
  bool ascii = false;
  bool strict = false;  // throw JsonError for invalid UTF-8, instead of replacing it
};

class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;  // in the order of parsing or insertion

  Json();
  Json(std::nullptr_t) : Json() {}
  Json(bool value);
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value)
      : Json(value < 0, static_cast<std::uint64_t>(value)) {}
  Json(double value);
  Json(std::string value);
  Json(std::string_view value) : Json(std::string(value)) {}
  Json(const char* value) : Json(std::string(value)) {}
  Json(Array values);
  Json(Object members);
  Json(std::initializer_list<Member> members);  // an object
  template <class T>
  Json(const std::vector<T>& values) : Json(Array(values.begin(), values.end())) {}
  template <class T>
  Json(const std::map<std::string, T>& members);
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(Json) noexcept;
  ~Json();

  // Throws JsonError for text that is not JSON, has a name twice in an object, or has more than
  // `max_depth` levels or 2^24 values. `what` begins its message.
  static Json parse(const std::string& text, std::string_view what, std::size_t max_depth = 64);
  std::string dump(const JsonStyle& style = {}) const;

  bool is_null() const { return holds<std::nullptr_t>(); }
  bool is_string() const { return holds<std::string>(); }
  bool is_array() const { return holds<Array>(); }
  bool is_object() const { return holds<Object>(); }
  bool is_count() const { return holds<std::uint64_t>(); }  // a whole number of at least 0

  // The value. Throw JsonError for one of another type.
  bool boolean() const;
  std::uint64_t count() const;
  std::int64_t integer() const;
  double number() const;
  const std::string& text() const;
  const Array& array() const;
  const Object& object() const;

  // A member of an object; null if there is none, or this is no object.
  const Json* find(std::string_view name) const;
  // Throws JsonError if there is no such member.
  const Json& at(std::string_view name) const;
  // Adds the member if there is none. A null becomes an object.
  Json& operator[](std::string_view name);
  // A null becomes an array.
  void push_back(Json value);

 private:
  friend class JsonParser;
  friend class JsonWriter;

  Json(bool negative, std::uint64_t bits);
  template <class T>
  bool holds() const {
    return std::holds_alternative<T>(value_);
  }
  template <class T>
  const T& get(const char* expected) const;

  // Whole numbers are a std::int64_t if negative.
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array,
               Object>
      value_;
};

struct Json::Member {
  std::string name;
  Json value;
};

inline Json::Json() = default;
inline Json::Json(bool value) : value_(value) {}
inline Json::Json(double value) : value_(value) {}
inline Json::Json(std::string value) : value_(std::move(value)) {}
template <class T>
Json::Json(const std::map<std::string, T>& members) : value_(Object()) {
  for (const auto& [name, value] : members) (*this)[name] = value;
}

// Parses the JSON object that an environment variable holds. Throws InvalidArgumentError, naming
// the variable, for other text, and for nesting that is deeper than such variables have.
Json parse_json_variable(const char* variable, const std::string& text);

// A value for messages: its beginning.
std::string shown(const Json& value);

}  // namespace tandem
