// The objects that handles of the C interface stand for.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/status.h"

namespace tandem::c {

// A number that no other handle of the process has or had, so that a freed handle is known as one.
std::uintptr_t next_handle();

// The objects of one kind. A handle is a number in the form of a pointer, which nothing follows.
// Thread-safe. Calls keep their object while another thread frees it.
template <class Handle, class Object>
class Handles {
 public:
  explicit Handles(const char* kind) : kind_(kind) {}

  Handle* add(std::shared_ptr<Object> object) {
    const std::uintptr_t handle = next_handle();
    const std::lock_guard lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return reinterpret_cast<Handle*>(handle);
  }

  // Throws InvalidArgumentError for a handle that stands for no object.
  std::shared_ptr<Object> get(const Handle* handle, const char* what) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == objects_.end()) fail_unknown(handle, what);
    return found->second;
  }

  // Likewise, except for null, which gives null. Takes the object out.
  std::shared_ptr<Object> remove(Handle* handle, const char* what) {
    if (!handle) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == objects_.end()) fail_unknown(handle, what);
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  [[noreturn]] void fail_unknown(const Handle* handle, const char* what) const {
    fail<InvalidArgumentError>("[{}] expected a {}, got {}", what, kind_,
                               handle ? "a handle that was freed or is none" : "null");
  }

  const char* kind_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<Object>> objects_;
};

// Throws InvalidArgumentError for null. `name`: of the argument.
template <class T>
T& required(T* pointer, const char* what, const char* name) {
  if (!pointer) fail<InvalidArgumentError>("[{}] expected {}, got null", what, name);
  return *pointer;
}

}  // namespace tandem::c
