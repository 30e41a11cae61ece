// The names of groups, which appear in store keys and in messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tandem {

// The name of the group that `ranks` of `parent` form for the `count`-th time: equal on every rank,
// and unique. It has 32 hexadecimal digits whatever the number of ranks and the nesting.
std::string subgroup_name(std::string_view parent, std::span<const int> ranks, int count);

}  // namespace tandem
