// The client object of a plug-in.
#pragma once

#include <pjrt_c_api.h>

#include <chrono>
#include <vector>

#include "device/pjrt/module/plugin.h"

namespace tandem::pjrt {

// Without the properties that only devices of this machine have.
DeviceInfo describe(const PJRT_Api& api, PJRT_DeviceDescription* description);

// Lives as long as the buffers and executables of the client.
class ClientHandle {
 public:
  explicit ClientHandle(const Plugin& plugin);
  ~ClientHandle();
  ClientHandle(const ClientHandle&) = delete;
  ClientHandle& operator=(const ClientHandle&) = delete;

  // Creates the plug-in's client. Apart from the constructor, so that a failure frees it.
  void open(const Options& options);

  const PJRT_Api& api() const { return api_; }
  PJRT_Client* get() const { return client_; }
  const PluginInfo& plugin() const { return info_; }
  const std::vector<DeviceInfo>& devices() const { return devices_; }
  // How long a program may run before a wait for its results fails (TANDEM_PJRT_TIMEOUT).
  std::chrono::seconds time_limit() const { return time_limit_; }
  // Throws InvalidArgumentError for an index that is out of range.
  PJRT_Device* device(int index) const;

 private:
  void create(const Options& options);
  void find_devices();

  const PJRT_Api& api_;
  PluginInfo info_;
  std::chrono::seconds time_limit_;
  PJRT_Client* client_ = nullptr;
  std::vector<PJRT_Device*> handles_;
  std::vector<DeviceInfo> devices_;
};

}  // namespace tandem::pjrt
