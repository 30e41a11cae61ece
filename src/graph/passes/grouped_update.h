// Updates of many variables as one operation.
#pragma once

#include "graph/passes/tiles.h"

namespace tandem {

struct GroupedUpdateAttrs {
  MemberAttrs rule;  // the update of each variable
  int inputs_each = 0;

  GroupedUpdateAttrs() = default;
  // Each run updates the rule's attributes, so a copy has its own.
  GroupedUpdateAttrs(const GroupedUpdateAttrs& other)
      : rule(other.rule.own()), inputs_each(other.inputs_each) {}
  GroupedUpdateAttrs& operator=(const GroupedUpdateAttrs&) = delete;

  TANDEM_FIELDS()
};

// Its inputs are those of the grouped operations, one after another. All have the same
// dtypes.
extern const OpDef kGroupedUpdate;

}  // namespace tandem
