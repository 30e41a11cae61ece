// Automatic mixed precision: while a scope is open, operations cast their floating inputs as
// OpDef::autocast says.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/registered.h"
#include "device/device.h"
#include "op/context.h"
#include "op/op.h"

namespace tandem {

// Casts a tensor. ops/math/cast.cc registers it.
extern constinit Registered<Tensor(const Tensor&, DType)> cast_tensor;

// The casts of float32 leaves, so that a weight is cast once. As in PyTorch, only of leaves that
// require gradients. Graphs have none: equal casts are merged there.
class CastCache {
 public:
  // Returns `tensor` as `dtype`.
  Tensor cast(const Tensor& tensor, DType dtype);

 private:
  struct Entry {
    Tensor from;  // held, so that assignments to the variable do not write its memory
    Tensor to;
  };
  std::unordered_map<const void*, Entry> entries_;  // by the memory
};

// Switches autocast on or off for the calling thread while it lives. All scopes within the
// outermost one share its cache.
class AutocastScope {
 public:
  // No settings: off.
  explicit AutocastScope(const std::optional<AutocastSettings>& settings)
      : settings_(context.autocast, settings),
        cache_(context.cast_cache, context.cast_cache ? context.cast_cache : &own_cache_) {}

 private:
  CastCache own_cache_;
  Scoped<std::optional<AutocastSettings>> settings_;
  Scoped<CastCache*> cache_;
};

// The input of a composed operation with kAutocastFloat32OnGpus.
Tensor autocast_float32_on_gpus(const Tensor& x);

// The inputs of an operation after autocast. REQUIRES: autocast is on.
class AutocastInputs {
 public:
  AutocastInputs(const OpDef& op, std::span<const Tensor* const> inputs);

  // False if all inputs have the wanted dtypes already.
  bool changed() const { return !cast_.empty(); }
  std::span<const Tensor* const> get() const { return pointers_; }

 private:
  void cast_to(DType dtype, std::span<const Tensor* const> inputs);

  std::vector<Tensor> cast_;
  std::vector<const Tensor*> pointers_;
};

}  // namespace tandem
