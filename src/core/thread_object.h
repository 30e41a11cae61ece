// Objects of a thread that a process may use until its very end.
#pragma once

#include <utility>

namespace tandem {

// The calling thread's only T, made at its first use and destroyed with the thread. The main
// thread's is destroyed before static objects are: what their destructors use is a new T, which is
// never destroyed. A `thread_local T` would be used after its destruction.
template <class T>
T& thread_object() {
  constinit static thread_local T* object = nullptr;
  if (!object) [[unlikely]] {
    struct End {
      ~End() { delete std::exchange(object, nullptr); }
    };
    object = new T;
    static thread_local End end;
    static_cast<void>(end);
  }
  return *object;
}

}  // namespace tandem
