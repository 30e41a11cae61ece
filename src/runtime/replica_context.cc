#include "runtime/replica_context.h"

#include "core/profile.h"

namespace tandem {
namespace {

thread_local ReplicaContext* current_context = nullptr;

}  // namespace

ReplicaContext* ReplicaContext::current() { return current_context; }

ReplicaContextScope::ReplicaContextScope(ReplicaContext* context) : previous_(current_context) {
  current_context = context;
  profile::current_replica = context ? context->replica_id() : -1;
}

ReplicaContextScope::~ReplicaContextScope() {
  current_context = previous_;
  profile::current_replica = previous_ ? previous_->replica_id() : -1;
}

}  // namespace tandem
