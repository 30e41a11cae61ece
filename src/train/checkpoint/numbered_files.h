// Checkpoints whose files are numbered.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// The files NAME-NUMBER.safetensors of the directory, by number. Throws std::filesystem errors if
// the directory cannot be read.
std::vector<std::pair<std::int64_t, std::filesystem::path>> numbered_files(
    const std::filesystem::path& directory, const std::string& name);

}  // namespace tandem
