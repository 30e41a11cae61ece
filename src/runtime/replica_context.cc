#include "runtime/replica_context.h"

#include "core/profile.h"

namespace tandem {
namespace {

thread_local ReplicaContext* current_context = nullptr;

}  // namespace

ReplicaContext* ReplicaContext::current() { return current_context; }

ReplicaContextScope::ReplicaContextScope(ReplicaContext* context) : previous_(current_context) {
  current_context = context;
  if (context && context->part() >= 0) return;  // a part has the replica's context
  profile::current_replica = context ? context->replica_id() : -1;
}

ReplicaContextScope::~ReplicaContextScope() {
  const bool was_part = current_context && current_context->part() >= 0;
  current_context = previous_;
  if (!was_part) profile::current_replica = previous_ ? previous_->replica_id() : -1;
}

}  // namespace tandem
