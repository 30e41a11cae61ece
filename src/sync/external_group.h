// A collective group of which this program runs one rank. The other ranks run the same program in
// other threads or processes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "graph/collective.h"

namespace tandem {

// Called while a program runs, for the communicator's owner. Each may be empty.
struct ExternalGroupHooks {
  std::function<void()> begin{};                    // a run starts; an exception ends the run
  std::function<void(const std::string&)> abort{};  // a lane of the run has failed
};

class ExternalGroup final : public CollectiveGroup {
 public:
  explicit ExternalGroup(std::shared_ptr<Communicator> communicator, ExternalGroupHooks hooks = {})
      : communicator_(std::move(communicator)), hooks_(std::move(hooks)) {}

  int size() const override { return communicator_->size(); }
  Communicator& communicator(int) override { return *communicator_; }
  bool within_program() const override { return false; }
  void begin() override {
    if (hooks_.begin) hooks_.begin();
  }
  void abort(const std::string& reason) override {
    if (hooks_.abort) hooks_.abort(reason);
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  ExternalGroupHooks hooks_;
};

}  // namespace tandem
