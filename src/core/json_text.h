// JSON in environment variables.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tandem {

// Parses the JSON object that an environment variable holds. Throws InvalidArgumentError, naming
// the variable, for other text, and for nesting that is deeper than such variables have.
nlohmann::json parse_json_variable(const char* variable, const std::string& text);

// A value for messages: its beginning, with invalid UTF-8 replaced.
std::string shown(const nlohmann::json& value);

}  // namespace tandem
