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

struct AutocastSettings {
  DType dtype = bfloat16;                // of operations with AutocastRule::kLower
  DeviceType device = DeviceType::kCpu;  // whose rules apply
  bool caches = true;
};

struct AutocastState {
  AutocastSettings settings;
  CastCache* cache = nullptr;  // null if casts are not cached
};

// The state of the calling thread's innermost scope; null if autocast is off.
extern constinit thread_local const AutocastState* autocast;

// Switches autocast on or off for the calling thread while it lives. All scopes within the
// outermost one share its cache.
class AutocastScope {
 public:
  // No settings: off.
  explicit AutocastScope(const std::optional<AutocastSettings>& settings);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  CastCache own_cache_;
  AutocastState state_;
  const AutocastState* previous_;
  CastCache* previous_cache_;
};

// The dtype in which the calling thread reads the floating variables of layers
// (VariableImpl::of_layer); none: their own.
extern constinit thread_local std::optional<DType> weight_dtype;

class WeightDTypeScope {
 public:
  explicit WeightDTypeScope(std::optional<DType> dtype)
      : previous_(std::exchange(weight_dtype, dtype)) {}
  ~WeightDTypeScope() { weight_dtype = previous_; }
  WeightDTypeScope(const WeightDTypeScope&) = delete;
  WeightDTypeScope& operator=(const WeightDTypeScope&) = delete;

 private:
  std::optional<DType> previous_;
};

// The settings of the calling thread, for threads that work for it.
std::optional<AutocastSettings> autocast_settings();

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
