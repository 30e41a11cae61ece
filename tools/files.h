// Writes the commands' output files.
#pragma once

#include <string>

namespace tandem::tools {

// Replaces a file atomically: an earlier one survives a full disk. A device or a pipe is
// written to as it is. Throws throw_file_error(`message`, ...) of core/file_error.h.
void replace_file(const std::string& path, const std::string& text, const std::string& message);

}  // namespace tandem::tools
