// Tensor's conversions to another device and to another dtype.
#include "runtime/placement.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem {

Tensor Tensor::to(std::string_view device) const {
  DeviceImpl& target = resolve_device(device, "to");
  if (&impl_of(*this).device() == &target) return *this;
  OnDevice on(target);
  return identity(*this);
}

Tensor Tensor::to(DType dtype) const { return cast(*this, dtype); }

}  // namespace tandem
