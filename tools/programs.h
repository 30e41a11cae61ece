// The commands of `tandem` that are programs of their own, which `tandem` finds beside itself.
#pragma once

#include <array>

namespace tandem::tools {

struct Program {
  const char* command;
  const char* file;
  const char* help;  // empty: not listed
};

inline constexpr Program kRun = {"run", "tandem-run",
                                 "Launch a program on one or more hosts, one process per rank"};
inline constexpr Program kAgent = {"agent", "tandem-run", ""};
inline constexpr Program kRendezvous = {
    "rendezvous", "tandem-run", "Run the rendezvous server of a job until the job has ended"};
inline constexpr Program kTop = {
    "top", "tandem-top", "Show what the tasks of a cluster are doing, until it is interrupted"};
inline constexpr Program kCompile = {
    "compile", "tandem-compile",
    "Compile a training step for TPUs that this machine need not have"};
inline constexpr std::array kPrograms = {kRun, kTop, kCompile, kRendezvous, kAgent};

}  // namespace tandem::tools
