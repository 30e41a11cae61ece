// A PJRT plug-in: a library that compiles StableHLO for its devices and runs it there.
//
// https://openxla.org/xla/pjrt. The module tandem_pjrt implements the interface; no other code
// includes the header of the PJRT C API.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tandem/dtype.h"
#include "tandem/shape.h"

namespace tandem::pjrt {

struct PluginInfo {
  std::string path;
  int api_major = 0, api_minor = 0;        // version of the PJRT C API that it was built for
  std::string platform, platform_version;  // "cpu", "tpu", "cuda"
  // Versions of StableHLO; zeros if the plug-in does not tell.
  std::array<std::int64_t, 3> stablehlo_current{}, stablehlo_minimum{};
};

struct DeviceInfo {
  int id = 0;  // among those of all processes
  int local_hardware_id = -1;
  std::string kind;                       // "TPU v5 lite"
  std::string description;                // "TFRT_CPU_0"
  std::vector<std::int64_t> coordinates;  // in the mesh of chips; empty if there is none
  std::int64_t core_on_chip = 0;
  std::vector<std::string> memory_kinds;  // "device", "pinned_host"
};

struct MemoryStats {
  std::int64_t bytes_in_use = 0;
  std::optional<std::int64_t> peak_bytes_in_use, bytes_limit;
};

// A tensor in the memory of a device. Its elements never change. Thread-safe.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual DType dtype() const = 0;
  virtual const Shape& shape() const = 0;
  virtual int device() const = 0;  // index in Client::devices()
  // Copies the elements to host memory, in row-major order. Waits for them; throws the error of
  // what computes them. `bytes`: at least those of the elements.
  virtual void to_host(void* host, std::size_t bytes) = 0;
  // A copy on another device of the client.
  virtual std::shared_ptr<Buffer> copy_to(int device) = 0;
};

// Bytes of one replica of a compiled program; 0 if the plug-in does not tell.
struct CompiledMemory {
  std::int64_t arguments = 0, outputs = 0, temporaries = 0, code = 0;
  std::int64_t aliased = 0;  // of arguments whose memory is that of outputs
};

// A program that is loaded on devices. Thread-safe.
class Executable {
 public:
  virtual ~Executable() = default;
  using Buffers = std::vector<std::shared_ptr<Buffer>>;
  // Starts the program on its devices. `arguments`: by replica, by parameter. The results, by
  // replica and output, may not be computed yet. A parameter with tf.aliasing_output takes the
  // memory of its argument if nothing but `arguments` refers to the buffer. Such a buffer cannot
  // be used again, unless the call throws. Throws InvalidArgumentError for arguments of other
  // counts, types or devices.
  virtual std::vector<Buffers> run(const std::vector<Buffers>& arguments) = 0;
  virtual CompiledMemory memory() const = 0;
  // Floating-point operations per run and replica; 0 if the plug-in does not tell.
  virtual double flops() const = 0;
};

struct ParameterType {
  DType dtype;
  Shape shape;
  bool donated = false;  // has tf.aliasing_output
};

struct CompileOptions {
  std::string name;          // in messages
  std::vector<int> devices;  // of each replica, as indices in Client::devices()
  std::vector<ParameterType> parameters, results;
};

class Client {
 public:
  virtual ~Client() = default;
  virtual const PluginInfo& plugin() const = 0;
  // The devices of this process.
  virtual const std::vector<DeviceInfo>& devices() const = 0;
  // Nothing if the plug-in does not tell.
  virtual std::optional<MemoryStats> memory_stats(int device) const = 0;
  // Copies elements in row-major order to a device. Does not wait: `keep` keeps them alive,
  // unchanged, until the copy is complete.
  virtual std::shared_ptr<Buffer> from_host(const void* host, DType dtype, const Shape& shape,
                                            int device, std::shared_ptr<const void> keep) = 0;
  // Compiles a StableHLO module, in its textual form.
  virtual std::unique_ptr<Executable> compile(std::string_view module,
                                              const CompileOptions& options) = 0;
};

using Option = std::variant<std::string, std::int64_t, bool, float>;
using Options = std::map<std::string, Option>;

// Loads a plug-in and creates its client. `options` are the plug-in's, by name. A library is loaded
// once per process and never unloaded.
//
// Throws NotFoundError for a file that does not exist, InvalidArgumentError for one that is not a
// plug-in, FailedPreconditionError for one of another version, UnavailableError if this build has
// no module tandem_pjrt, and the plug-in's own errors.
std::shared_ptr<Client> load_client(const std::string& path, const Options& options);

// The same for devices that this machine need not have: those of a topology that the plug-in knows
// by name, such as "v5e:2x2". Its programs can be compiled but not run, and its devices hold no
// buffers: both throw UnimplementedError.
std::shared_ptr<Client> load_compiler(const std::string& path, const std::string& topology);

}  // namespace tandem::pjrt
