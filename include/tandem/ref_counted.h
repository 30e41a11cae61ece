// Intrusive reference counts behind Tandem's value handles (Tensor, Variable): a handle is one
// pointer, and asking whether it is the only one is cheap, which is what in-place updates need.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace tandem {

class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  void release() const noexcept {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  // Whether exactly one reference is left: its holder may change the object in place.
  bool unique() const noexcept { return count_.load(std::memory_order_acquire) == 1; }

 private:
  mutable std::atomic<std::int32_t> count_{0};
};

// A counted pointer to a RefCounted. As thread-safe as shared_ptr: the count is atomic, the pointer
// itself is not.
template <class T>
class RefPtr {
 public:
  RefPtr() = default;
  RefPtr(T* pointer) noexcept : pointer_(pointer) {  // NOLINT: implicit, as for raw `new`
    if (pointer_) pointer_->retain();
  }
  RefPtr(const RefPtr& other) noexcept : RefPtr(other.pointer_) {}
  RefPtr(RefPtr&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  template <class U>
  RefPtr(const RefPtr<U>& other) noexcept : RefPtr(other.get()) {}  // NOLINT: upcast
  template <class U>
  RefPtr(RefPtr<U>&& other) noexcept : pointer_(other.detach()) {}  // NOLINT: upcast
  RefPtr& operator=(RefPtr other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~RefPtr() {
    if (pointer_) pointer_->release();
  }

  T* get() const noexcept { return pointer_; }
  // The pointer with its reference, which the caller now owes a release().
  T* detach() noexcept { return std::exchange(pointer_, nullptr); }
  T* operator->() const noexcept { return pointer_; }
  T& operator*() const noexcept { return *pointer_; }
  explicit operator bool() const noexcept { return pointer_ != nullptr; }
  friend bool operator==(const RefPtr& a, const RefPtr& b) { return a.pointer_ == b.pointer_; }

 private:
  T* pointer_ = nullptr;
};

template <class T, class... Args>
RefPtr<T> make_ref(Args&&... args) {
  return RefPtr<T>(new T(std::forward<Args>(args)...));
}

}  // namespace tandem
