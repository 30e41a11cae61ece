#include "ops/cuda/module/cudnn_descriptor.h"

#include "core/status.h"

namespace tandem::cuda {

Descriptor::Descriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type)
    : library_(&library) {
  check_cudnn(library, library.create_descriptor(type, &raw_), "cudnnBackendCreateDescriptor");
}

Descriptor::~Descriptor() {
  if (raw_) library_->destroy_descriptor(raw_);
}

void Descriptor::set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         std::int64_t count, const void* values) {
  const cudnnStatus_t status = library_->set_attribute(raw_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    check_cudnn(*library_, status,
                fmt::format("attribute {} of cuDNN", static_cast<int>(name)).c_str());
}

std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             std::int64_t count, void* values) const {
  std::int64_t found = 0;
  const cudnnStatus_t status = library_->get_attribute(raw_, name, type, count, &found, values);
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    check_cudnn(*library_, status,
                fmt::format("attribute {} of cuDNN", static_cast<int>(name)).c_str());
  return found;
}

void Descriptor::finalize(const char* what) {
  check_cudnn(*library_, library_->finalize(raw_), what);
}

bool Descriptor::try_finalize(const char* what) {
  const cudnnStatus_t status = library_->finalize(raw_);
  if (is_refusal(status)) return false;
  check_cudnn(*library_, status, what);
  return true;
}

}  // namespace tandem::cuda
