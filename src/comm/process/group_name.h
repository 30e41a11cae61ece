// The names of groups, which are parts of keys of the store and of messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tandem {

// The name of the group that `ranks` of `parent` make for the `count`-th time: the same on every
// rank, and no other group's. 32 hexadecimal digits, however many ranks there are and however deep
// the groups are nested.
std::string subgroup_name(std::string_view parent, std::span<const int> ranks, int count);

}  // namespace tandem
