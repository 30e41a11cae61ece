// Runs jobs of `tandem run`, and parses their output.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace tandem::testing {

using Words = std::vector<std::string>;

// tandem run OPTIONS -- sh -c SCRIPT
inline Words script(Words options, const std::string& text) {
  options.insert(options.begin(), "run");
  options.insert(options.end(), {"--", "sh", "-c", text});
  return options;
}

inline Words sorted_lines(const std::string& text) {
  std::istringstream in(text);
  Words lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tandem::testing
