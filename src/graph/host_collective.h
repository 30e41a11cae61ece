// Collectives that the host runs for devices that only run compiled programs
// (graph/compiled_region.h), where the ranks' programs differ.
#pragma once

#include <memory>

#include "graph/program_step.h"

namespace tandem {

// One collective of all ranks, which are in one process. The operation's inputs and outputs are
// those of the ranks, in their order.
struct HostCollective {
  const OpDef* op = nullptr;  // of graph/collective.h
  std::shared_ptr<const void> attrs;
  std::size_t num_ranks = 0;
};

// The operation of a host collective in a block.
extern const OpDef kHostCollective;

// Reads the tensors, computes the results in the order of the ranks, and writes them.
class HostCollectiveStep final : public LoneStep {
 public:
  // `step`: the operation's step, whose context has the addresses of each run. Throws
  // UnimplementedError for other collectives than reduce, broadcast and gather.
  HostCollectiveStep(const BlockOperation& operation, ProgramStep& step);

  const BlockOperation& operation() const override { return operation_; }
  void run() override;

 private:
  using Bytes = std::vector<std::byte>;
  Bytes read(std::size_t input) const;
  void write(std::size_t output, const Bytes& bytes) const;
  void reduce() const;
  void broadcast() const;
  void gather() const;

  const BlockOperation& operation_;
  ProgramStep& step_;
  std::size_t ranks_, inputs_, outputs_;  // inputs and outputs of a rank
};

}  // namespace tandem
