/// @file
/// For Tandem's own code: how a handle is made of an object of a class that derives from it.
#pragma once

namespace tandem::detail {

/// Lives while a handle, such as a losses::Loss, copies an object of a derived class into itself.
/// The copy constructor of that class makes its base, a handle, of the same object: that one is
/// then a plain copy. For Tandem's own code.
class OwnCopy {
 public:
  explicit OwnCopy(const void* object);  ///< begins a copy of this object
  ~OwnCopy();                            ///< ends it
  OwnCopy(const OwnCopy&) = delete;
  OwnCopy& operator=(const OwnCopy&) = delete;
  /// Whether the thread does not copy this object already.
  bool outermost() const { return outermost_; }

 private:
  const void* previous_;
  bool outermost_;
};

}  // namespace tandem::detail
