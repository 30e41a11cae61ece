/// @file
/// Handles to registrations, such as those of hooks.
#pragma once

#include <functional>
#include <utility>

namespace tandem {

/// Undoes a registration, such as that of a hook. As torch's RemovableHandle.
class RemovableHandle {
 public:
  RemovableHandle() = default;
  /// Undoes it; a second call does nothing.
  void remove() {
    if (const std::function<void()> undo = std::exchange(remove_, nullptr)) undo();
  }

  /// For Tandem's own code.
  explicit RemovableHandle(std::function<void()> remove) : remove_(std::move(remove)) {}

 private:
  std::function<void()> remove_;
};

}  // namespace tandem
