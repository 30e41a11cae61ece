#include "core/json_text.h"

#include "core/status.h"

namespace tandem {

using json = nlohmann::json;

std::string shown(const json& value) {
  constexpr std::size_t kMost = 80;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

json parse_json_variable(const char* variable, const std::string& text) {
  constexpr int kMaxDepth = 8;  // far more than valid input has; limits the recursion of printing
  bool deep = false;
  json root = json::parse(
      text,
      [&](int depth, json::parse_event_t, const json&) {
        deep = deep || depth > kMaxDepth;
        return !deep;
      },
      /*allow_exceptions=*/false);
  if (deep)
    fail<InvalidArgumentError>(
        "[{}] expected JSON of the form that TensorFlow describes, got deeper nesting", variable);
  if (root.is_discarded())
    fail<InvalidArgumentError>("[{}] expected JSON, got '{}'", variable, text);
  if (!root.is_object())
    fail<InvalidArgumentError>("[{}] expected a JSON object, got {}", variable, shown(root));
  return root;
}

}  // namespace tandem
