// Loops compiled for several instruction sets and chosen when the library is loaded: the library
// runs on any x86-64 and is vectorised for the machine at hand.
#pragma once

// Put before a function (template) that holds a hot loop; what it calls must be inlinable.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(TANDEM_NO_FUNCTION_CLONES)
#define TANDEM_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define TANDEM_CLONES
#endif

// Put before a function (template) that such loops call. A call that is left in a loop keeps it
// from being vectorised, and computes without the instructions of the loop's own set: it may round
// differently.
#define TANDEM_INLINED [[gnu::always_inline]] inline
