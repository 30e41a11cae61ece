#include "runtime/replica_context.h"

namespace tandem {
namespace {

thread_local ReplicaContext* current_context = nullptr;

}  // namespace

ReplicaContext* ReplicaContext::current() { return current_context; }

ReplicaContextScope::ReplicaContextScope(ReplicaContext* context) : previous_(current_context) {
  current_context = context;
}

ReplicaContextScope::~ReplicaContextScope() { current_context = previous_; }

}  // namespace tandem
