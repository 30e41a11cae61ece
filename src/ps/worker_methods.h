// The names of a worker's calls.
#pragma once

namespace tandem::ps {

inline constexpr const char* kProbe = "Worker/Probe";
inline constexpr const char* kAddFunction = "Worker/AddFunction";
inline constexpr const char* kRemoveFunctions = "Worker/RemoveFunctions";
inline constexpr const char* kAddIterator = "Worker/AddIterator";
inline constexpr const char* kRemoveIterators = "Worker/RemoveIterators";
inline constexpr const char* kRun = "Worker/Run";

}  // namespace tandem::ps
