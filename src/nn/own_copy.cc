#include "tandem/own_copy.h"

namespace tandem::detail {
namespace {

constinit thread_local const void* copied = nullptr;

}  // namespace

OwnCopy::OwnCopy(const void* object) : previous_(copied), outermost_(copied != object) {
  copied = object;
}
OwnCopy::~OwnCopy() { copied = previous_; }

}  // namespace tandem::detail
