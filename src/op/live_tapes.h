// How many gradient tapes of the calling thread are recording.
#pragma once

namespace tandem {

extern constinit thread_local int live_tapes;

}  // namespace tandem
