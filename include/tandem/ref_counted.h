/// @file
/// Intrusive reference counts for Tandem's handles (Tensor, Variable). A handle is one pointer, and
/// checking whether it is the only one is cheap, which in-place updates need.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace tandem {

/// Base class of reference-counted objects; the count starts at 0. As c10::intrusive_ptr_target.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

  /// Adds a reference.
  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  /// Removes a reference; deletes the object with the last one.
  void release() const noexcept {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  /// Whether there is exactly one reference, so that its holder may change the object in place.
  bool unique() const noexcept { return count_.load(std::memory_order_acquire) == 1; }

 private:
  mutable std::atomic<std::int32_t> count_{0};
};

/// A pointer to a RefCounted that holds a reference. As thread-safe as std::shared_ptr: the count
/// is atomic, the pointer is not. As c10::intrusive_ptr.
template <class T>
class RefPtr {
 public:
  RefPtr() = default;
  /// Adds a reference to the object, if not null.
  RefPtr(T* pointer) noexcept : pointer_(pointer) {  // NOLINT: implicit, as for raw `new`
    if (pointer_) pointer_->RefCounted::retain();    // whatever T calls so
  }
  /// Adds a reference.
  RefPtr(const RefPtr& other) noexcept : RefPtr(other.pointer_) {}
  /// Takes over the reference.
  RefPtr(RefPtr&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  /// Adds a reference; converts to a base class.
  template <class U>
  RefPtr(const RefPtr<U>& other) noexcept : RefPtr(other.get()) {}  // NOLINT: upcast
  /// Takes over the reference; converts to a base class.
  template <class U>
  RefPtr(RefPtr<U>&& other) noexcept : pointer_(other.detach()) {}  // NOLINT: upcast
  /// Replaces the pointer.
  RefPtr& operator=(RefPtr other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  /// Removes the reference.
  ~RefPtr() {
    if (pointer_) pointer_->RefCounted::release();
  }

  T* get() const noexcept { return pointer_; }  ///< the pointer
  /// Releases ownership: returns the pointer, for which the caller must call release().
  T* detach() noexcept { return std::exchange(pointer_, nullptr); }
  /// @{
  /// The object.
  T* operator->() const noexcept { return pointer_; }
  T& operator*() const noexcept { return *pointer_; }
  /// @}
  /// Whether it is not null.
  explicit operator bool() const noexcept { return pointer_ != nullptr; }
  /// Whether both point to the same object.
  friend bool operator==(const RefPtr& a, const RefPtr& b) { return a.pointer_ == b.pointer_; }

 private:
  T* pointer_ = nullptr;
};

/// Makes an object and a RefPtr to it. As std::make_shared.
template <class T, class... Args>
RefPtr<T> make_ref(Args&&... args) {
  return RefPtr<T>(new T(std::forward<Args>(args)...));
}

}  // namespace tandem
