#include "graph/compiled_region.h"

namespace tandem {

const OpDef kCompiledRegion = {.name = "_CompiledRegion", .traits = kStateful};

bool runs_compiled(const DeviceImpl& device) { return device.backend() == DeviceBackend::kPjrt; }

}  // namespace tandem
