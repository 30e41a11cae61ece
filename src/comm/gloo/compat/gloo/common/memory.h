// In place of a header of Gloo's that Debian's libgloo-dev leaves out, though other headers of the
// package include it: what those declare members with. Each holds one smart pointer, as in Gloo.
#pragma once

#include <memory>

namespace gloo {

template <class T>
class ShareableNonOwningPtr;

template <class T>
class WeakNonOwningPtr {
 public:
  WeakNonOwningPtr() = default;
  explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T>& owner);  // for the library alone

 private:
  std::weak_ptr<T> pointer_;
};

template <class T>
class NonOwningPtr {
  std::shared_ptr<T> pointer_;
};

template <class T>
class ShareableNonOwningPtr {
  std::shared_ptr<T> pointer_;
};

}  // namespace gloo
