// Identifies the strategy of a variable, a replica or a per-replica value.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tandem {

// One per strategy object. Compared by address.
struct StrategyMark {
  std::string description;  // "MirroredStrategy(CPU:0, CPU:1)"
};

// Throws RuntimeError "Mixing different tandem::distribute::Strategy objects: A is not B. ...".
// `advice`: where they were mixed, and what to do.
[[noreturn]] void fail_mixed_strategies(const StrategyMark& a, const StrategyMark& b,
                                        std::string_view advice);

}  // namespace tandem
