// Any string as a rendezvous URL or a launcher's variable results in its parsed value or a typed
// error.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "comm/rendezvous/cluster_environment.h"
#include "comm/rendezvous/url.h"
#include "core/status.h"

namespace {

using namespace tandem;

void check_url(const std::string& text) {
  try {
    const RendezvousUrl url = parse_rendezvous_url(text);
    TANDEM_ASSERT(!url.rank || *url.rank >= 0);
    TANDEM_ASSERT(!url.world_size || *url.world_size >= 0);
    TANDEM_ASSERT((url.scheme == RendezvousUrl::Scheme::kTcp) == !url.host.empty());
    TANDEM_ASSERT((url.scheme == RendezvousUrl::Scheme::kFile) == !url.path.empty());
  } catch (const InvalidArgumentError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  check_url(text);
  for (const char* scheme : {"env://", "tcp://", "file://"}) check_url(scheme + text);

  const std::string value = text.c_str();  // a variable ends at the first zero byte
  TANDEM_ASSERT(first_slurm_host(value).size() <= value.size());
  for (const int node : {0, 1, 1000}) {
    const auto tasks = slurm_tasks_of(value, node);
    TANDEM_ASSERT(!tasks || *tasks >= 1);
  }
  setenv("SLURM_PROCID", "0", 1);
  setenv("SLURM_NODEID", "1", 1);
  for (const char* name : {"SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_NODELIST",
                           "SLURM_STEP_TASKS_PER_NODE", "MASTER_PORT", "RANK"}) {
    setenv(name, value.c_str(), 1);
    try {
      const ClusterEnvironment found = cluster_environment();
      TANDEM_ASSERT(!found.size || *found.size >= 1);
    } catch (const InvalidArgumentError&) {
    }
    unsetenv(name);
  }
  return 0;
}
