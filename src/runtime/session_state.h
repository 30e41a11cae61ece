// The state of a session between runs: the elements of its variables.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "graph/node.h"

namespace tandem {

// The memory of one variable of a graph in one session.
class SessionVariable final : public Resource {
 public:
  SessionVariable(const Node& handle, Device& device) : handle_(handle), device_(device) {}

  const void* identity() const override { return this; }
  const std::string& name() const override { return handle_.name; }
  Device& device() const override { return device_; }
  const TensorSpec& spec() const override { return handle_.outputs[0]; }
  Tensor value() override;
  // May be called before the first assignment, which overwrites all elements.
  Tensor writable() override;

  bool initialized() const { return initialized_; }
  void set_initialized() { initialized_ = true; }
  const Node& handle() const { return handle_; }

 private:
  const Node& handle_;
  Device& device_;
  Tensor value_;
  bool initialized_ = false;
};

class SessionState {
 public:
  // The variable's memory, created on `device` at the first call.
  RefPtr<SessionVariable> variable(const Node& handle, Device& device);
  // The value of an int64 scalar, either a variable of the session or a captured one.
  std::int64_t count(const Node& handle) const;
  void clear() { variables_.clear(); }

 private:
  std::unordered_map<const Node*, RefPtr<SessionVariable>> variables_;
};

}  // namespace tandem
