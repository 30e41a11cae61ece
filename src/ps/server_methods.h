// The names of a parameter server's calls.
#pragma once

namespace tandem::ps {

inline constexpr const char* kCreate = "ParameterServer/Create";
inline constexpr const char* kRead = "ParameterServer/Read";
inline constexpr const char* kReadRows = "ParameterServer/ReadRows";
inline constexpr const char* kAssign = "ParameterServer/Assign";
inline constexpr const char* kRemove = "ParameterServer/Remove";
inline constexpr const char* kAddUpdates = "ParameterServer/AddUpdates";
inline constexpr const char* kRemoveUpdates = "ParameterServer/RemoveUpdates";
inline constexpr const char* kApply = "ParameterServer/Apply";
inline constexpr const char* kCommit = "ParameterServer/Commit";
inline constexpr const char* kClose = "ParameterServer/Close";

}  // namespace tandem::ps
