// Windows and trainers of the C interface.
#pragma once

#include <memory>
#include <mutex>

#include "c/model.h"

namespace tandem::c {

// Samples of a model.
struct HostWindow {
  HostWindow(std::shared_ptr<const HostModel> model, const online::WindowOptions& options)
      : model(std::move(model)), window(options) {}
  const std::shared_ptr<const HostModel> model;
  const online::Window window;
  std::optional<online::Trainer> trainer;  // that has it
  std::mutex mutex;                        // of one call at a time; taken after the model's
};

Handles<tandem_window, HostWindow>& windows();

// The host's report.
tandem_report host_report(const online::Report& report);

}  // namespace tandem::c
