// The number of recording gradient tapes of the calling thread.
#pragma once

namespace tandem {

extern constinit thread_local int live_tapes;

}  // namespace tandem
