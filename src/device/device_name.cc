#include "device/device_name.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "core/nearest.h"
#include "core/status.h"

namespace tandem {
namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

// Reads tokens from the front of a string.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool empty() const { return rest_.empty(); }

  bool prefix(std::string_view wanted) {
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(wanted.size());
    return true;
  }

  bool prefix_in_any_case(std::string_view wanted_upper) {
    if (upper(rest_.substr(0, wanted_upper.size())) != wanted_upper) return false;
    rest_.remove_prefix(wanted_upper.size());
    return true;
  }

  // Reads a letter, then letters, digits or '_', up to the end or to one of `stops`.
  bool word(std::string_view stops, std::optional<std::string>& value) {
    const std::string_view found = rest_.substr(0, rest_.find_first_of(stops));
    if (found.empty() || !is_letter(found[0]) || !std::all_of(found.begin(), found.end(), is_word))
      return false;
    value = std::string(found);
    rest_.remove_prefix(found.size());
    return true;
  }

  bool number(std::optional<int>& value) {
    std::int64_t result = 0;
    std::size_t digits = 0;
    for (; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
      result = result * 10 + (rest_[digits] - '0');
      if (result > std::numeric_limits<int>::max()) return false;
    }
    if (digits == 0) return false;
    value = static_cast<int>(result);
    rest_.remove_prefix(digits);
    return true;
  }

  // Reads a number, or `*`, which clears the value.
  bool number_or_any(std::optional<int>& value) {
    if (!prefix("*")) return number(value);
    value.reset();
    return true;
  }

  bool word_or_any(std::string_view stops, std::optional<std::string>& value) {
    if (!prefix("*")) return word(stops, value);
    value.reset();
    return true;
  }

 private:
  std::string_view rest_;
};

// Legacy forms exist only for two types. Users may write TPUs like these (TensorFlow's guides do).
bool legacy_type(Scanner& scanner, bool any_case, std::optional<std::string>& type) {
  struct Form {
    const char* type;
    const char* upper;
    const char* lower;
  };
  for (const Form& form : {Form{"CPU", "/CPU:", "/cpu:"}, Form{"GPU", "/GPU:", "/gpu:"}}) {
    if (any_case ? scanner.prefix_in_any_case(form.upper)
                 : scanner.prefix(form.upper) || scanner.prefix(form.lower)) {
      type = form.type;
      return true;
    }
  }
  if (!any_case || !scanner.prefix_in_any_case("/TPU:")) return false;
  type = "TPU";
  return true;
}

std::optional<DeviceName> parse_components(std::string_view text, bool any_case) {
  DeviceName name;
  if (text == "/") return name;
  Scanner scanner(text);
  while (!scanner.empty()) {
    if (scanner.prefix("/job:")) {
      if (!scanner.word_or_any("/", name.job)) return std::nullopt;
    } else if (scanner.prefix("/replica:")) {
      if (!scanner.number_or_any(name.replica)) return std::nullopt;
    } else if (scanner.prefix("/task:")) {
      if (!scanner.number_or_any(name.task)) return std::nullopt;
    } else if (scanner.prefix("/device:")) {
      if (!scanner.word_or_any("/:", name.type)) return std::nullopt;
      if (!scanner.prefix(":"))
        name.id.reset();
      else if (!scanner.number_or_any(name.id))
        return std::nullopt;
    } else if (legacy_type(scanner, any_case, name.type)) {
      if (!scanner.number_or_any(name.id)) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return name;
}

// The types that TensorFlow programs use. Placement decides whether such devices exist.
constexpr std::string_view kTypes[] = {"CPU", "GPU", "TPU"};

// Returns `type` in upper case. Throws if it is unknown.
std::string known_type(const std::string& type, std::string_view text) {
  const std::string wanted = upper(type);
  if (std::find(std::begin(kTypes), std::end(kTypes), wanted) != std::end(kTypes)) return wanted;
  const std::string_view best = wanted == "CUDA" ? "GPU" : nearest(wanted, kTypes);
  fail<InvalidArgumentError>(
      "Could not parse {} into a device specification. Unknown device type '{}'; the types are "
      "CPU, GPU and TPU.{}",
      text, type, best.empty() ? std::string() : fmt::format(" The nearest is '{}'.", best));
}

template <class T>
bool specifies(const std::optional<T>& less, const std::optional<T>& more) {
  return !less || less == more;
}

template <class T>
bool conflicts(const std::optional<T>& a, const std::optional<T>& b) {
  return a && b && *a != *b;
}

// Components of `wins` override those of `base`.
template <class T>
void overlay(std::optional<T>& base, const std::optional<T>& wins) {
  if (wins) base = wins;
}

enum class OnConflict { kFail, kClear, kOverride };

void merge_names(DeviceName& target, const DeviceName& other, OnConflict mode) {
  const auto refuse = [&](const char* what) {
    fail<InvalidArgumentError>("Cannot merge devices with incompatible {}: '{}' and '{}'", what,
                               target.to_string(), other.to_string());
  };
  if (conflicts(target.job, other.job)) refuse("jobs");
  if (conflicts(target.replica, other.replica)) refuse("replicas");
  if (conflicts(target.task, other.task)) refuse("tasks");
  const bool types = conflicts(target.type, other.type), ids = conflicts(target.id, other.id);
  if (mode == OnConflict::kFail && types) refuse("types");
  if (mode == OnConflict::kFail && ids) refuse("ids");
  overlay(target.job, other.job);
  overlay(target.replica, other.replica);
  overlay(target.task, other.task);
  if (mode == OnConflict::kClear && types) {
    target.type.reset();
    target.id.reset();
    return;
  }
  overlay(target.type, other.type);
  if (mode == OnConflict::kClear && ids)
    target.id.reset();
  else
    overlay(target.id, other.id);
}

}  // namespace

std::optional<DeviceName> DeviceName::parse_full(std::string_view text) {
  return parse_components(text, /*any_case=*/false);
}

std::optional<DeviceName> DeviceName::parse_local(std::string_view text) {
  DeviceName name;
  Scanner scanner(text);
  if (!scanner.word("/:", name.type) || !scanner.prefix(":") || !scanner.number(name.id) ||
      !scanner.empty())
    return std::nullopt;
  return name;
}

DeviceName DeviceName::parse(std::string_view text) {
  std::optional<DeviceName> name = parse_local(text);
  if (!name) name = parse_components(text, /*any_case=*/true);
  if (!name) fail<InvalidArgumentError>("Could not parse {} into a device specification.", text);
  if (name->type) name->type = known_type(*name->type, text);
  return *name;
}

std::string DeviceName::to_string() const {
  std::string text;
  if (job) text += "/job:" + *job;
  if (replica) text += "/replica:" + std::to_string(*replica);
  if (task) text += "/task:" + std::to_string(*task);
  if (type) text += "/device:" + *type + ":" + (id ? std::to_string(*id) : "*");
  return text;
}

bool is_specification(const DeviceName& less, const DeviceName& more) {
  return specifies(less.job, more.job) && specifies(less.replica, more.replica) &&
         specifies(less.task, more.task) && specifies(less.type, more.type) &&
         specifies(less.id, more.id);
}

bool are_compatible(const DeviceName& a, const DeviceName& b) {
  return is_specification(a, b) || is_specification(b, a);
}

void merge(DeviceName& target, const DeviceName& other, bool soft) {
  merge_names(target, other, soft ? OnConflict::kClear : OnConflict::kFail);
}

void merge_override(DeviceName& target, const DeviceName& other) {
  merge_names(target, other, OnConflict::kOverride);
}

DeviceName nest(const DeviceName& outer, const DeviceName& inner) {
  DeviceName result = outer;
  overlay(result.job, inner.job);
  overlay(result.replica, inner.replica);
  overlay(result.task, inner.task);
  overlay(result.type, inner.type);
  overlay(result.id, inner.id);
  return result;
}

}  // namespace tandem
