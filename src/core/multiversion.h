// Function multiversioning: loops are compiled for several instruction sets, and one version is
// chosen at load time. The library runs on any x86-64 and vectorises for the current CPU.
#pragma once

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
