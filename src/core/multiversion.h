// Function multiversioning: loops are compiled for several instruction sets, and one version is
// chosen at load time. The library runs on any x86-64 and vectorises for the current CPU.
#pragma once

#include <type_traits>

// Goes before a function (template) with a hot loop. Functions that it calls must be inlinable.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(TANDEM_NO_FUNCTION_CLONES)
#define TANDEM_MULTIVERSION \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define TANDEM_MULTIVERSION
#endif

// Goes before a function (template) that such a loop calls. A call that is not inlined prevents
// vectorisation, and its body is compiled for the baseline instruction set, so it may round
// differently.
#define TANDEM_INLINED [[gnu::always_inline]] inline

namespace tandem {

// Calls kLoop, which is TANDEM_INLINED, in its version for the processor. Static, because the
// resolver would otherwise be an exported symbol.
template <auto kLoop, class... Args>
TANDEM_MULTIVERSION static void run_version(Args... args) {
  kLoop(args...);
}

// Whether loops on elements of type T are compiled for several instruction sets. Versions for
// integers would make the library larger, and no training faster.
template <class T>
inline constexpr bool has_versions = !std::is_integral_v<T>;

// Calls kLoop, which is TANDEM_INLINED, for elements of type T.
template <class T, auto kLoop, class... Args>
void run_loop(Args... args) {
  if constexpr (has_versions<T>)
    run_version<kLoop>(args...);
  else
    kLoop(args...);
}

}  // namespace tandem
