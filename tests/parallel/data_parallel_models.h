// Devices and a comparison for tests of DataParallel.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "parallel/ddp_models.h"
#include "support/gpus.h"
#include "tandem/tandem.h"

namespace tandem::testing {

// `count` devices, logical CPUs or GPUs, of which the first one is the default while it lives.
class Devices {
 public:
  Devices(const std::string& type, int count) : type_(type) {
    if (type == "gpu")
      use_gpus(count);
    else
      config::set_logical_cpus(count);
    for (int i = 0; i < count; ++i) ids_.emplace_back("/" + type + ":" + std::to_string(i));
    first_ = std::make_unique<DeviceScope>(ids_.front().name());
  }
  const std::vector<parallel::DeviceId>& ids() const { return ids_; }
  std::string name(int i) const {
    const std::string type = type_ == "gpu" ? "GPU:" : "CPU:";
    return "/job:localhost/replica:0/task:0/device:" + type + std::to_string(i);
  }

 private:
  std::string type_;
  std::vector<parallel::DeviceId> ids_;
  std::unique_ptr<DeviceScope> first_;
};

inline Weights gradients_of(const std::vector<Variable>& variables) {
  Weights gradients;
  for (const Variable& variable : variables) {
    EXPECT_TRUE(variable.grad().defined()) << variable.name();
    if (variable.grad().defined()) gradients.push_back(variable.grad().to_vector<float>());
  }
  return gradients;
}

inline void zero_gradients(const std::vector<Variable>& variables) {
  for (Variable variable : variables) variable.zero_grad();
}

}  // namespace tandem::testing
