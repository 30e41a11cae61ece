// Updates of many variables as one operation.
#pragma once

#include "graph/passes/tiles.h"

namespace tandem {

struct GroupedUpdateAttrs {
  MemberAttrs rule;  // that all variables are updated by
  int inputs_each = 0;

  GroupedUpdateAttrs() = default;
  // Each run changes the rule's attributes: a copy has its own.
  GroupedUpdateAttrs(const GroupedUpdateAttrs& other)
      : rule(other.rule.own()), inputs_each(other.inputs_each) {}
  GroupedUpdateAttrs& operator=(const GroupedUpdateAttrs&) = delete;

  TANDEM_FIELDS()
};

// The inputs of one operation after those of the other; variables have one dtype.
extern const OpDef kGroupedUpdate;

}  // namespace tandem
