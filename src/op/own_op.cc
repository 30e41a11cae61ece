#include "op/own_op.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "core/status.h"

namespace tandem {
namespace {

struct OwnOps {
  std::shared_mutex mutex;
  std::map<std::string_view, const OwnOp*> by_name;
};

OwnOps& own_ops() {
  static auto* const ops = new OwnOps;
  return *ops;
}

}  // namespace

void add_own_op(const OwnOp& op) {
  OwnOps& ops = own_ops();
  const std::lock_guard lock(ops.mutex);
  if (!ops.by_name.emplace(op.name, &op).second)
    fail<AlreadyExistsError>("[custom_operation] '{}' is registered already", op.name);
}

const OwnOp* find_own_op(std::string_view name) {
  OwnOps& ops = own_ops();
  const std::shared_lock lock(ops.mutex);
  const auto found = ops.by_name.find(name);
  return found == ops.by_name.end() ? nullptr : found->second;
}

const OpDef* find_op(std::string_view name) {
  const auto ops = all_ops();
  const auto found =
      std::lower_bound(ops.begin(), ops.end(), name,
                       [](const OpDef* op, std::string_view wanted) { return op->name < wanted; });
  return found != ops.end() && (*found)->name == name ? *found : find_own_op(name);
}

}  // namespace tandem
