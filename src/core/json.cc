#include "core/json.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "core/status.h"

namespace tandem {

using Library = nlohmann::ordered_json;

Json::Json(Array values) : value_(std::move(values)) {}
Json::Json(Object members) : value_(std::move(members)) {}
Json::Json(std::initializer_list<Member> members) : value_(Object(members)) {}
Json::Json(bool negative, std::uint64_t bits) {
  if (negative)
    value_ = std::bit_cast<std::int64_t>(bits);
  else
    value_ = bits;
}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(Json other) noexcept {
  value_.swap(other.value_);
  return *this;
}
Json::~Json() = default;

// Receives the events of the library's parser.
class JsonParser {
 public:
  JsonParser(std::string_view what, std::size_t max_depth) : what_(what), max_depth_(max_depth) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Library::binary_t&) { return false; }  // not in text
  bool start_array(std::size_t) { return open(Json::Array()); }
  bool start_object(std::size_t) { return open(Json::Object()); }
  bool key(std::string& name) {
    members().push_back({std::move(name), nullptr});
    return true;
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool end_object() {
    std::vector<std::string_view> names;
    for (const Json::Member& member : members()) names.push_back(member.name);
    std::sort(names.begin(), names.end());
    const auto doubled = std::adjacent_find(names.begin(), names.end());
    if (doubled != names.end() && problem_.empty())
      problem_ = fmt::format("{} has '{}' twice", what_, *doubled);
    return end_array();
  }
  bool parse_error(std::size_t, const std::string&, const Library::exception& error) {
    return refuse(error.what());
  }

  Json finish() {
    if (!problem_.empty()) throw JsonError(problem_, too_deep_);
    return std::move(root_);
  }

 private:
  Json::Object& members() { return std::get<Json::Object>(open_.back()->value_); }

  bool refuse(std::string_view why) {
    problem_ = fmt::format("{} is not JSON ({:.200})", what_, why);
    return false;
  }

  bool add(Json value) {
    place(std::move(value));
    return ++values_ <= kMostValues || refuse("it has too many values");
  }

  bool open(Json value) {
    too_deep_ = open_.size() == max_depth_;
    if (too_deep_) return refuse("it has too many levels");
    open_.push_back(&place(std::move(value)));
    return ++values_ <= kMostValues || refuse("it has too many values");
  }

  Json& place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_object()) return members().back().value = std::move(value);
    return std::get<Json::Array>(open_.back()->value_).emplace_back(std::move(value));
  }

  static constexpr std::size_t kMostValues = 1 << 24;
  const std::string_view what_;
  const std::size_t max_depth_;
  std::size_t values_ = 0;
  std::string problem_;
  bool too_deep_ = false;
  Json root_;
  std::vector<Json*> open_;  // the arrays and objects that have not ended
};

Json Json::parse(const std::string& text, std::string_view what, std::size_t max_depth) {
  JsonParser parser(what, max_depth);
  Library::sax_parse(text, &parser);
  return parser.finish();
}

// Copies values into the library's type, which prints them.
class JsonWriter {
 public:
  static Library copy(const Json& json) {
    return std::visit([](const auto& value) { return copy_value(value); }, json.value_);
  }

 private:
  template <class T>
  static Library copy_value(const T& value) {
    return value;
  }
  static Library copy_value(const Json::Array& values) {
    Library made = Library::array();
    for (const Json& value : values) made.push_back(copy(value));
    return made;
  }
  static Library copy_value(const Json::Object& members) {
    Library made = Library::object();
    for (const auto& [name, value] : members) made[name] = copy(value);
    return made;
  }
};

std::string Json::dump(const JsonStyle& style) const {
  using Invalid = Library::error_handler_t;
  try {
    return JsonWriter::copy(*this).dump(style.indent, ' ', style.ascii,
                                        style.strict ? Invalid::strict : Invalid::replace);
  } catch (const Library::exception& error) {
    throw JsonError(error.what());
  }
}

template <class T>
const T& Json::get(const char* expected) const {
  if (!holds<T>()) throw JsonError(fmt::format("expected {}, got {}", expected, shown(*this)));
  return std::get<T>(value_);
}

bool Json::boolean() const { return get<bool>("true or false"); }
std::uint64_t Json::count() const { return get<std::uint64_t>("a whole number of at least 0"); }
std::int64_t Json::integer() const {
  if (is_count() && count() <= INT64_MAX) return static_cast<std::int64_t>(count());
  return get<std::int64_t>("a whole number");
}
double Json::number() const {
  if (is_count()) return static_cast<double>(count());
  return holds<std::int64_t>() ? static_cast<double>(integer()) : get<double>("a number");
}
const std::string& Json::text() const { return get<std::string>("a string"); }
const Json::Array& Json::array() const { return get<Array>("an array"); }
const Json::Object& Json::object() const { return get<Object>("an object"); }

const Json* Json::find(std::string_view name) const {
  if (!is_object()) return nullptr;
  const auto found = std::ranges::find(object(), name, &Member::name);
  return found == object().end() ? nullptr : &found->value;
}

const Json& Json::at(std::string_view name) const {
  const Json* found = find(name);
  if (!found)
    throw JsonError(fmt::format("expected an object with '{}', got {}", name, shown(*this)));
  return *found;
}

Json& Json::operator[](std::string_view name) {
  if (const Json* found = find(name)) return const_cast<Json&>(*found);
  if (is_null()) value_ = Object();
  Object& members = std::get<Object>(value_);
  members.push_back({std::string(name), nullptr});
  return members.back().value;
}

void Json::push_back(Json value) {
  if (is_null()) value_ = Array();
  std::get<Array>(value_).push_back(std::move(value));
}

Json parse_json_variable(const char* variable, const std::string& text) {
  constexpr std::size_t kMaxDepth = 8;  // far more than valid input has
  try {
    Json root = Json::parse(text, variable, kMaxDepth);
    if (!root.is_object())
      fail<InvalidArgumentError>("[{}] expected a JSON object, got {}", variable, shown(root));
    return root;
  } catch (const JsonError& error) {
    if (error.too_deep)
      fail<InvalidArgumentError>(
          "[{}] expected JSON of the form that TensorFlow describes, got deeper nesting", variable);
    fail<InvalidArgumentError>("[{}] expected JSON, got '{}'", variable, text);
  }
}

std::string shown(const Json& value) {
  constexpr std::size_t kMost = 80;
  std::string text = value.dump({.ascii = true});
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

}  // namespace tandem
