#include "train/checkpoint/numbered_files.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace tandem {

std::vector<std::pair<std::int64_t, std::filesystem::path>> numbered_files(
    const std::filesystem::path& directory, const std::string& name) {
  constexpr std::string_view kSuffix = ".safetensors";
  const std::string prefix = name + "-";
  std::vector<std::pair<std::int64_t, std::filesystem::path>> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(prefix) || !file.ends_with(kSuffix)) continue;
    std::int64_t number = 0;
    const char* const end = file.data() + file.size() - kSuffix.size();
    const auto [stop, error] = std::from_chars(file.data() + prefix.size(), end, number);
    if (error == std::errc() && stop == end && number >= 0)
      found.emplace_back(number, entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace tandem
