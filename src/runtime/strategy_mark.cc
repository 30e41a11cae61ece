#include "runtime/strategy_mark.h"

#include "core/status.h"

namespace tandem {

void fail_mixed_strategies(const StrategyMark& a, const StrategyMark& b, std::string_view advice) {
  fail<RuntimeError>("Mixing different tandem::distribute::Strategy objects: {} is not {}{}. {}",
                     a.description, b.description,
                     a.description == b.description ? " (two objects that are made alike)" : "",
                     advice);
}

}  // namespace tandem
